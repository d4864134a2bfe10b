# SPDX-License-Identifier: Apache-2.0
"""Random laboratories and experiments, as resolved values."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network

from hypothesis import strategies as st

from atoll_core.description.resolve_box import resolve_settings
from atoll_core.experiment.experiment import (
    MAIN,
    BoxConfiguration,
    Chain,
    Counted,
    Experiment,
    Link,
    LinkDirection,
    PingSeries,
    Protocol,
    TcpSettings,
    TrafficSelector,
    Transfer,
)
from atoll_core.experiment.traffic import Traffic
from atoll_core.lab.box_kind import EXTERNAL, LINK, PROGRAM, BoxKind, Forwarding
from atoll_core.lab.network import (
    ChainBox,
    DelayBox,
    Host,
    HostRole,
    Interface,
    LatencyClass,
    LearningSwitch,
    Network,
    PortPair,
    Switch,
    Tap,
    Trunk,
)
from atoll_core.lab.port_ref import PortRef
from atoll_core.units import Duration, Rate, Size

WORLD, ISLAND = IPv4Network("10.10.0.0/16"), IPv4Network("10.20.0.0/16")
_GIGABIT = Rate(10**9)


@dataclass
class Builder:
    """Puts machines on switches, each on the next free port."""

    used: Counter[str] = field(default_factory=Counter)
    macs: int = 0

    def port(self, switch: str) -> PortRef:
        self.used[switch] += 1
        return PortRef(switch, self.used[switch])

    def interface(self, name: str, switch: str) -> Interface:
        self.macs += 1
        return Interface(name, f"02:a7:00:00:{self.macs >> 8:02x}:{self.macs & 255:02x}", self.port(switch))

    def host(self, name: str, role: HostRole, address: IPv4Address, switch: str | LearningSwitch) -> Host:
        if isinstance(switch, str):
            return Host(name, role, address, self.interface(f"{name}-eth0", switch))
        cable = self.interface(f"{name}-eth0", switch.name)
        return Host(name, role, address, replace(cable, attached=switch.uplink, behind=cable.attached))


@st.composite
def laboratories(draw: st.DrawFn, *, gathered: bool = False, rings: bool = True, fewest_boxes: int = 0) -> Network:
    """Networks of up to 5 switches. ``gathered``: boxes, delay boxes and taps stand on one switch of a tree."""
    ports = draw(st.booleans())
    names = [f"sw-{number}" for number in range(1, draw(st.sampled_from([3, 2, 4, 5, 1])) + 1)]
    switch = st.sampled_from(names)
    inner = st.just(draw(switch)) if gathered else switch
    build = Builder()
    pairs = [(names[draw(st.integers(0, number - 1))], names[number]) for number in range(1, len(names))]
    if rings and not gathered and len(names) > 2 and draw(st.booleans()):
        pairs.append((names[0], names[-1]))
    trunks = tuple(Trunk(build.port(one), build.port(other), _GIGABIT) for one, other in pairs)
    learning = {  # switches with many hosts behind one port
        side: LearningSwitch(f"lan-{side}", build.port(draw(switch)), _GIGABIT)
        for side in draw(st.sampled_from([(), ("i",), ("w", "i")]))
    }
    at = {side: st.sampled_from([*names, *([learning[side]] * 3 if side in learning else ())]) for side in ("w", "i")}
    hosts = [
        build.host(f"{side}{number}", role, prefix[number], draw(at[side]))
        for side, prefix, role, most in (
            ("w", WORLD, HostRole.WORLD_SERVER, 4),
            ("i", ISLAND, HostRole.ISLAND_CLIENT, 3),
        )
        for number in range(1, draw(st.integers(1, most)) + 1)
    ]
    hosts += [
        build.host("ws", HostRole.WORLD_SPECIAL, WORLD[257], draw(at["w"])),
        build.host("wh", HostRole.WORLD_WHISTLE, WORLD[258], draw(at["w"])),
        build.host("is", HostRole.ISLAND_SPECIAL, ISLAND[257], draw(at["i"])),
    ]
    chain_boxes = tuple(
        _box(draw, build, f"b{n}", inner) for n in range(max(fewest_boxes, draw(st.sampled_from([2, 1, 3, 4, 0]))))
    )
    delays = tuple(
        DelayBox(
            f"d{n}", build.interface(f"d{n}-t", draw(inner)), _GIGABIT, _classes(draw, build, n, inner, ports=ports)
        )
        for n in range(draw(st.sampled_from([1, 2, 0])))
    )
    taps = tuple(
        Tap(f"t{n}", f"c{n}", build.interface(f"c{n}-t", draw(inner)))
        for n in range(draw(st.sampled_from([2, 1, 3, 0])))
    )
    switches = tuple(Switch(name, dpid, "ovs") for dpid, name in enumerate(names, start=1))
    parts = (switches, trunks, tuple(hosts), chain_boxes, delays, taps, tuple(learning.values()))
    return Network("lab", "lab.yaml", WORLD, ISLAND, *parts)


def _box(draw: st.DrawFn, build: Builder, name: str, switch: st.SearchStrategy[str]) -> ChainBox:
    kind = draw(st.sampled_from(list(BoxKind.registered.values())))
    foreign = kind in (PROGRAM, EXTERNAL)
    forwarding = draw(st.sampled_from(Forwarding)) if foreign else None
    first = PortPair(build.interface(f"{name}-w", draw(switch)), build.interface(f"{name}-i", draw(switch)))
    box = ChainBox(name, kind, first.world, first.island, forwarding=forwarding)
    if box.routed and draw(st.booleans()):
        spare = PortPair(build.interface(f"{name}-w2", draw(switch)), build.interface(f"{name}-i2", draw(switch)))
        return replace(box, spare=spare)
    return box


def _classes(
    draw: st.DrawFn, build: Builder, box: int, switch: st.SearchStrategy[str], *, ports: bool
) -> tuple[LatencyClass, ...]:
    """Up to three classes; with ``ports`` some have a pair of ports on one switch."""

    def known(number: int) -> LatencyClass:
        name, rtt = f"rtt-{box}-{number}", Duration(10**7 * (number + 1))
        if not ports or not draw(st.booleans()):
            return LatencyClass(name, 100 + 10 * box + number, rtt, Duration(0))
        at = draw(switch)
        pair = PortPair(build.interface(f"d{box}-{number}w", at), build.interface(f"d{box}-{number}i", at))
        return LatencyClass(name, 5000 + 10 * box + 2 * number, rtt, Duration(0), pair)

    return tuple(map(known, range(draw(st.integers(1, 3)))))


@st.composite
def experiments(draw: st.DrawFn, network: Network, *, taps: bool = True, branches: bool = True) -> Experiment:
    """Experiments with chains of any of the boxes and taps in any order, and any of the servers delayed."""
    known = [each.name for box in network.delay_boxes for each in box.classes]
    chosen = {host.name: draw(st.sampled_from([*known, None])) for host in network.with_role(HostRole.WORLD_SERVER)}
    latency = [(host, name) for host, name in chosen.items() if name is not None]
    asked = experiment(network, draw(_hops(network, taps)), latency)
    if not branches:
        return asked
    parts = draw(st.lists(carried(), max_size=2, unique=True).filter(lambda parts: TrafficSelector() not in parts))
    others = tuple(Chain(f"branch-{n}", draw(_hops(network, taps)), part) for n, part in enumerate(parts))
    return replace(asked, branches=others)


@st.composite
def _hops(draw: st.DrawFn, network: Network, taps: bool) -> tuple[str, ...]:
    passed = [box.name for box in network.boxes] + ([tap.name for tap in network.taps] if taps else [])
    return tuple(draw(st.permutations(passed))[draw(st.integers(0, min(2, len(passed)))) :])


@st.composite
def carried(draw: st.DrawFn) -> TrafficSelector:
    """Parts of the traffic of such labs: few hosts' prefixes, one host's, a protocol's."""
    world = draw(st.sampled_from([None, IPv4Network("10.10.0.0/30"), IPv4Network("10.10.0.2/32"), WORLD]))
    island = draw(st.sampled_from([None, IPv4Network("10.20.0.0/31"), IPv4Network("10.20.0.0/24")]))
    return TrafficSelector(world, island, draw(st.sampled_from([None, None, Protocol.TCP, Protocol.ICMP])))


def experiment(network: Network, hops: Sequence[str], latency: Sequence[tuple[str, str]] = ()) -> Experiment:
    """An experiment with this chain and these latency classes; every emulator in the chain is a GEO link."""
    kinds = {box.name: box.kind for box in network.boxes}
    to_island = LinkDirection(Rate(16 * 10**6), Duration(250 * 10**6), Size(100_000))
    to_world = replace(to_island, rate=Rate(4 * 10**6))
    return Experiment(
        name="geo",
        file="geo.yaml",
        lab=network.file,
        seed=1,
        duration=Duration(60 * 10**9),
        chain=Chain(MAIN, tuple(hops)),
        links=tuple(Link(hop, to_island, to_world, Counted.IP) for hop in hops if kinds.get(hop) is LINK),
        latency=tuple(latency),
        traffic=Traffic(20, "published", 5001),
        transfer=Transfer(Size(10_000_000), Duration(10 * 10**9), "atoll", 5201),
        ping=PingSeries(Duration(10**8)),
        tcp=TcpSettings("cubic", ecn=False, buffer_max=Size(16_000_000)),
        boxes=tuple(
            BoxConfiguration(box.name, tuple(settings.items()))
            for box in network.boxes
            for settings in [resolve_settings(box, {})[0]]
            if settings
        ),
    )
