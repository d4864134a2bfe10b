# SPDX-License-Identifier: Apache-2.0
"""Resolve a raw lab.yaml to a Network: build it with all defaults, then check it.

The network is built as far as possible, whatever its mistakes are. Each check is a function that yields mistakes.
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, get_args

from atoll_core.description.raw_lab import Driver, RawBox, RawBoxPort, RawCable, RawDelayBox, RawLab
from atoll_core.description.raw_types import INTERFACE_NAME_MAX, PORT_MAX, RESERVED_INTERFACES
from atoll_core.description.resolve_box import resolve_settings, unfit_keys, unknown_placeholders
from atoll_core.description.validation_messages import ENTRY, Mistakes, entry_name, on_line, parse, suggest
from atoll_core.description.yaml_document import Document, Place
from atoll_core.errors import DescriptionError
from atoll_core.lab.network import (
    CONTROL,
    MTU,
    ChainBox,
    Control,
    DelayBox,
    Host,
    HostRole,
    Interface,
    LatencyClass,
    LearningSwitch,
    Network,
    PortPair,
    Program,
    Switch,
    Tap,
    Trunk,
)
from atoll_core.lab.port_ref import PortRef
from atoll_core.lab.shortest_paths import Topology
from atoll_core.lab.twin import TwinSettings
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_core.units import Duration

HARDWARE = tuple(driver for driver in get_args(Driver) if driver != "ovs")
"""The drivers that can have a twin."""

SWITCH_NAME_MAX = INTERFACE_NAME_MAX  # the bridge of an emulated switch is an interface

_ONE_OF_ITS_KIND = (HostRole.WORLD_SPECIAL, HostRole.WORLD_WHISTLE, HostRole.ISLAND_SPECIAL)
_FIRST_NUMBER = 4096  # of classes with ports: above all VLAN ids
_TALK = (HostRole.WORLD_SPECIAL, HostRole.ISLAND_SPECIAL)  # their jobs print results while a run measures
_SECTIONS = ("switches", "learning_switches", "hosts", "boxes", "delay_boxes", "taps")
_MACHINES = ("hosts", "boxes", "delay_boxes")  # sections whose entries are machines

_Mistakes = Iterator[tuple[Place, str]]


class _Cable(NamedTuple):
    """The cable of a machine's interface. ``place``, ``written``: of the interface in the description."""

    place: Place
    key: str  # of its port: "port", "trunk", or "cable" of a splitter in another cable
    port: PortRef
    machine: str
    written: RawCable
    interface: Interface


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab without mistakes: its description and what that means."""

    document: Document
    raw: RawLab
    network: Network
    cables: tuple[_Cable, ...]

    @classmethod
    def read(cls, document: Document) -> "Lab":
        """Resolve a document. Raises DescriptionError with its mistakes."""
        raw, mistakes = parse(RawLab, document), Mistakes(document)
        builder = _Builder(raw, document)
        lab = cls(document, raw, builder.network(), tuple(builder.cables))
        for check in _CHECKS:
            for place, message in check(lab):
                mistakes.wrong(place, message)
        for box in lab.network.boxes:
            for key, message in resolve_settings(box, {})[1]:
                mistakes.diagnostics.append(document.mistake(("boxes", box.name, "settings", key), message))
        if mistakes.diagnostics:
            raise DescriptionError(mistakes.diagnostics)
        return lab

    def kind_of(self, name: str) -> str | None:
        """The noun for a name ("host", "delay box"), or None."""
        return next((ENTRY[section] for section in _SECTIONS if name in getattr(self.raw, section)), None)

    def where_rate_of(self, trunk: Trunk) -> str:
        """File and line of a trunk's rate."""
        return self.document.where(("trunks", self.network.trunks.index(trunk), "rate"))

    def ports(self) -> Iterator[tuple[PortRef, Place]]:
        """Every switch port at which a cable ends, with the place that names it."""
        for index, trunk in enumerate(self.raw.trunks):
            yield from ((trunk.from_, ("trunks", index, "from")), (trunk.to, ("trunks", index, "to")))
        for name, learning in self.raw.learning_switches.items():
            yield learning.uplink, ("learning_switches", name, "uplink")
        yield from ((cable.port, (*cable.place, cable.key)) for cable in self.cables if cable.key != "cable")
        if self.raw.control:
            yield self.raw.control.port, (CONTROL, "port")

    def can_be_attached(self, port: PortRef, place: Place) -> bool:
        """Whether a cable of ``place`` can end at a port: its switch exists, and learning switches have hosts only."""
        return port.switch in self.raw.switches or (place[0] == "hosts" and port.switch in self.raw.learning_switches)

    def free_port(self, switch: str) -> PortRef:
        """The first unused port of a switch."""
        used = {port.port for port, _ in self.ports() if port.switch == switch}
        return PortRef(switch, next((number for number in range(1, PORT_MAX + 1) if number not in used), PORT_MAX))

    def named(self, place: Place) -> str:
        """The name of a place in messages, with its line."""
        return entry_name(place) + on_line(self.document.line(place))


class _Builder:
    """Makes the network of a raw lab, and the list of its machines' cables."""

    def __init__(self, raw: RawLab, document: Document) -> None:
        self.file, self.line = document.file, document.line
        self.raw = raw
        self.cables: list[_Cable] = []
        self.numbers_of_classes = count(_FIRST_NUMBER, 2)
        switches = (*self.raw.switches, *self.raw.learning_switches)
        self.switch_numbers = {name: number for number, name in enumerate(switches, start=1)}

    def network(self) -> Network:
        raw = self.raw
        return Network(
            name=raw.name,
            file=self.file,
            world=raw.networks.world,
            island=raw.networks.island,
            switches=tuple(
                Switch(name, switch.dpid, switch.driver, switch.twin and TwinSettings(**dict(switch.twin)))
                for name, switch in raw.switches.items()
            ),
            trunks=tuple(Trunk(trunk.from_, trunk.to, trunk.rate) for trunk in raw.trunks),
            hosts=tuple(self.hosts()),
            boxes=tuple(self.box(name, box) for name, box in raw.boxes.items()),
            delay_boxes=tuple(self.delay_box(name, box) for name, box in raw.delay_boxes.items()),
            taps=tuple(self.taps()),
            learning_switches=tuple(
                LearningSwitch(name, switch.uplink, switch.rate) for name, switch in raw.learning_switches.items()
            ),
            control=raw.control and Control(raw.control.network, raw.control.port, raw.control.arp),
        )

    def hosts(self) -> Iterator[Host]:
        for name, raw in self.raw.hosts.items():
            place = ("hosts", name)
            interface = self.interface(place, raw.port, raw, f"{name}-eth0", [(raw.mtu, place)])
            yield Host(name, raw.role, raw.ip, interface, raw.capacity or 1.0, raw.control)

    def box(self, name: str, raw: RawBox) -> ChainBox:
        return ChainBox(
            name,
            raw.kind,
            world=self.leg(name, raw, "world"),
            island=self.leg(name, raw, "island"),
            spare=raw.spare
            and PortPair(self.leg(name, raw, "world", spare=True), self.leg(name, raw, "island", spare=True)),
            forwarding=raw.forwarding,
            stateful=raw.stateful or raw.kind.stateful,
            program=raw.program
            and Program(
                tuple(raw.program.start),
                tuple(raw.program.stop),
                tuple(raw.program.report),
                tuple(raw.program.privileges),
                tuple(raw.program.needs.items()),
                raw.program.memory_max,
                self.line(("boxes", name, "program")),
            ),
            conserves_packets=raw.conserves_packets,
            settings=tuple(raw.settings.items()),
            conserves_payload=raw.conserves_payload,
            residence_max=raw.residence_max,
        )

    def leg(self, name: str, box: RawBox, side: str, *, spare: bool = False) -> Interface:
        """An interface of a box. A spare one has the MTU of the first on its side, unless it declares its own."""
        around: Place = ("boxes", name)
        first: RawBoxPort = getattr(box, side)
        raw: RawBoxPort = getattr(box.spare, side) if spare else first
        place: Place = (*around, "spare", side) if spare else (*around, side)
        mtus = [(raw.mtu, place), (first.mtu, (*around, side)), (box.mtu, around)]
        return self.interface(place, raw.port, raw, f"{name}-{side[0]}{2 if spare else ''}", mtus)

    def delay_box(self, name: str, raw: RawDelayBox) -> DelayBox:
        place: Place = ("delay_boxes", name)
        mtus = [(raw.mtu, place)]
        trunk = self.interface(place, raw.trunk, raw, f"{name}-t", mtus, key="trunk") if raw.trunk else None
        return DelayBox(name, trunk, raw.rate, tuple(self.classes(place, raw)))

    def classes(self, place: Place, box: RawDelayBox) -> Iterator[LatencyClass]:
        """The classes. Interfaces of those with ports have the MTU of the box, unless they declare their own."""
        for index, (name, raw) in enumerate(box.classes.items(), start=1):
            vlan, ports, interfaces = raw.vlan or 0, None, list[Interface]()
            for side, leg in (("world", raw.world), ("island", raw.island)):
                if leg:
                    at = (*place, "classes", name, side)
                    mtus = [(leg.mtu, at), (box.mtu, place)]
                    interfaces.append(self.interface(at, leg.port, leg, f"{place[1]}-{index}{side[0]}", mtus))
            if len(interfaces) == 2:
                vlan, ports = next(self.numbers_of_classes), PortPair(*interfaces)
            yield LatencyClass(name, vlan, raw.rtt, raw.jitter, ports)

    def taps(self) -> Iterator[Tap]:
        """The taps, whose interfaces take the longest packets of the lab."""
        longest = max((MTU, *(cable.interface.mtu for cable in self.cables)))
        for name, raw in self.raw.taps.items():
            port, key = (raw.cable, "cable") if raw.cable else (raw.port, "port")
            if port and not (raw.port and raw.cable):
                place = ("taps", name)
                interface = self.interface(place, port, raw, f"{raw.host}-{name}", [(longest, place)], raw.host, key)
                yield Tap(name, raw.host, interface, key == "cable", raw.direction == "to_island")

    def interface(
        self,
        place: Place,
        port: PortRef,
        raw: RawCable,
        name: str,
        mtus: Iterable[tuple[int | None, Place]],
        machine: str | None = None,
        key: str = "port",
    ) -> Interface:
        """An interface with defaults: a name, and of the MTUs the first one that is declared, each with its place."""
        learning = self.raw.learning_switches.get(port.switch) if place[0] == "hosts" else None
        mtu, line = next(((mtu, self.line((*at, "mtu"))) for mtu, at in mtus if mtu is not None), (MTU, 0))
        interface = Interface(
            raw.interface or name,
            raw.mac or self.default_mac(port, 0xA8 if key == "cable" else 0xA7),
            learning.uplink if learning else port,
            mtu,
            line,
            port if learning else None,
        )
        self.cables.append(_Cable(place, key, port, machine or str(place[1]), raw, interface))
        return interface

    def default_mac(self, port: PortRef, second: int) -> str:
        """A locally administered address for each port: 02, ``second``, the switch's index in the file, the port."""
        octets = bytes((0x02, second)) + self.switch_numbers.get(port.switch, 0).to_bytes(2) + port.port.to_bytes(2)
        return octets.hex(":")


def _names(lab: Lab) -> _Mistakes:
    """Names are unique across all sections; several taps may share a capture host."""
    owners: dict[str, Place] = {}
    machines: list[tuple[str, Place]] = []
    for section in _SECTIONS:
        for name in getattr(lab.raw, section):
            place: Place = (section, name)
            first = owners.setdefault(name, place)
            if first != place:
                line = lab.document.line(first)
                where = f"line {line}" if line else "a setting"
                yield place, f"{where} already gives this name to a {ENTRY[str(first[0])]}; rename one"
            if section in _MACHINES:
                machines.append((name, place))
            if lab.raw.control and name == CONTROL:
                yield place, "this name is that of the machine that runs atoll; choose another one"
    for name, tap in lab.raw.taps.items():
        place = ("taps", name, "host")
        machines.append((tap.host, place))
        if tap.host in owners:
            yield place, f"{lab.named(owners[tap.host])} has this name; give the capture host one of its own"
    for name, place in machines:
        if name == EMULATION:
            yield place, f"the machine of an emulated lab is called {EMULATION!r} in every run; choose another name"


def _uniqueness(lab: Lab) -> _Mistakes:
    """Numbers, addresses, ports and names within a machine have one user."""
    first: dict[tuple[str, object], Place] = {}
    for what, thing, place, remedy in _uses(lab):
        owner = first.setdefault((what, thing), place)
        if owner != place:
            yield place, f"{what} {thing} is already taken by {lab.named(owner)}; {remedy}"


def _uses(lab: Lab) -> Iterator[tuple[str, object, Place, str]]:
    """All that can have one user only: its noun, itself, the user's place, and the remedy for a second one."""
    for name, switch in lab.raw.switches.items():
        yield "datapath id", switch.dpid, ("switches", name, "dpid"), "give each switch its own"
    free_port = functools.cache(lab.free_port)
    for port, place in lab.ports():
        if lab.can_be_attached(port, place):
            yield "port", port, place, f"free is {free_port(port.switch)}"
    for key in ("ip", CONTROL):
        for name, host in lab.raw.hosts.items():
            if address := getattr(host, key):
                yield "address", address, ("hosts", name, key), "give each host its own"
    for box, delay in lab.raw.delay_boxes.items():
        for name, latency in delay.classes.items():
            place = ("delay_boxes", box, "classes", name)
            yield "class", name, place, "choose another name"
            if latency.vlan:
                yield "VLAN id", latency.vlan, (*place, "vlan"), "give each class its own"
    for cable in lab.cables:
        name, place = cable.interface.name, (*cable.place, "interface")
        yield f"{cable.machine}'s interface", name, place, "give it another name"
        own = "give each interface its own, or leave it out"
        if cable.written.mac and cable.key != "cable":
            yield "MAC address", cable.written.mac, (*cable.place, "mac"), own


def _default_macs(lab: Lab) -> _Mistakes:
    """No MAC address that is given is another interface's default."""
    cables = [cable for cable in lab.cables if cable.key != "cable"]
    defaults = {cable.interface.mac: cable.place for cable in cables if not cable.written.mac}
    for cable in cables:
        mac = cable.written.mac
        if mac in defaults:
            owner = entry_name(defaults[mac])
            yield (*cable.place, "mac"), f"{mac} is the default of {owner}; choose another or leave it out"


def _attachment(lab: Lab) -> _Mistakes:
    """Cables end at switches that exist, trunks at two of them, and splitters are in cables."""
    raw = lab.raw
    splitters = [(cable.port, (*cable.place, cable.key)) for cable in lab.cables if cable.key == "cable"]
    used = {port for port, _ in lab.ports()}
    for port, place in (*lab.ports(), *splitters):
        if port.switch in raw.learning_switches and not lab.can_be_attached(port, place):
            text = f"{port.switch!r} is a learning switch; only hosts can be attached to it"
            yield place, f"{text}; name a port of an OpenFlow switch"
        elif place[-1] == "cable":
            if port not in used:
                yield place, f"no cable ends at {port}; name a port with an attached machine"
        elif not lab.can_be_attached(port, place):
            learning = raw.learning_switches if place[0] == "hosts" else ()
            suggestion = suggest(port.switch, [*raw.switches, *learning], "switches")
            yield place, f"unknown switch {port.switch!r}; {suggestion}"
    for index, trunk in enumerate(raw.trunks):
        if trunk.from_.switch == trunk.to.switch:
            yield ("trunks", index), f"both ends are on {trunk.to.switch!r}; a trunk connects two switches"
    for name, tap in raw.taps.items():
        if bool(tap.port) == bool(tap.cable):
            text = "write either port (a switch port that sends copies) or cable (a cable with a splitter)"
            yield ("taps", name), text


def _interface_names(lab: Lab) -> _Mistakes:
    """Interfaces and the bridges of emulated switches can have their names."""
    for section in ("switches", "learning_switches"):
        for name in getattr(lab.raw, section):
            if len(name) > SWITCH_NAME_MAX:
                text = f"the name is longer than {SWITCH_NAME_MAX} characters, an interface's most; shorten it"
                yield (section, name), text
            elif name in RESERVED_INTERFACES:
                yield (section, name), "its bridge would have this name, which is the system's own word; rename it"
    for cable in lab.cables:
        name = cable.interface.name
        if len(name) > INTERFACE_NAME_MAX and cable.key != "cable":
            would = f"its interface would be named {name!r}, longer than {INTERFACE_NAME_MAX} characters"
            yield cable.place, f"{would}; shorten the name, or add 'interface: ...'"


def _twins(lab: Lab) -> _Mistakes:
    for switch in lab.network.switches:
        twin, place = switch.twin, ("switches", switch.name, "twin")
        if twin and switch.driver not in HARDWARE:
            yield place, f"driver {switch.driver} has no twin; drivers that have one: {', '.join(HARDWARE)}"
        if twin and twin.lag_min and twin.lag_max and twin.lag_min.ns > twin.lag_max.ns:
            yield (*place, "lag_min"), f"{twin.lag_min} is above lag_max, {twin.lag_max}"


def _networks(lab: Lab) -> _Mistakes:
    """The networks are apart, each host's addresses are in theirs, and that of control has one to spare."""
    network, control = lab.network, lab.network.control
    within = {"world": network.world, "island": network.island}
    if network.world.overlaps(network.island):
        text = f"{network.island} overlaps the world's {network.world}; choose networks that do not"
        yield ("networks", "island"), text
    if control:
        for end, other in within.items():
            if control.network.overlaps(other):
                text = f"{control.network} overlaps the {end} network {other}; choose a network of its own"
                yield (CONTROL, "network"), text
        within[CONTROL] = control.network
        taken = {host.control for host in network.in_band_hosts if host.control in control.network}
        usable = control.network.num_addresses - (2 if control.network.prefixlen < 31 else 0)
        if len(taken) >= usable:
            text = f"hosts take all addresses of {control.network}, and the machine that runs atoll needs one"
            yield (CONTROL, "network"), f"{text}; choose a larger network"
    for host in network.hosts:
        end = "world" if host.role.is_world else "island"
        for key, name, address in (("ip", end, host.address), (CONTROL, CONTROL, host.control)):
            around = within.get(name)
            if address is None or around is None:
                continue
            place = ("hosts", host.name, key)
            if address not in around:
                inside = around[1] if around.num_addresses > 1 else around[0]
                text = f"{address} is outside the {name} network {around}; choose one inside, such as {inside}"
                yield place, text
            elif around.prefixlen < 31 and address in (around.network_address, around.broadcast_address):
                yield place, f"{address} is the network's own or its broadcast address; choose another of {around}"


def _hosts(lab: Lab) -> _Mistakes:
    firsts: dict[HostRole, str] = {}
    for name, raw in lab.raw.hosts.items():
        place, role = ("hosts", name), raw.role.value
        first = firsts.setdefault(raw.role, name)
        if raw.role in _ONE_OF_ITS_KIND and first != name:
            yield (*place, "role"), f"{lab.named(('hosts', first))} already is the {role}; a lab has only one"
        if raw.capacity is not None and raw.role is not HostRole.ISLAND_CLIENT:
            yield (*place, "capacity"), "only island clients have channels; remove it"
        if raw.control is not None and lab.raw.control is None:
            example = "{network: 192.168.10.0/24, port: SWITCH/PORT}"
            text = f"the lab has no in-band control; add a section 'control: {example}'"
            yield (*place, CONTROL), text
        if raw.control is not None and raw.role in _TALK:
            text = f"results of the {role} would pass the network while it is measured"
            yield (*place, CONTROL), f"{text}; give it a second interface for control, and remove this key"


def _ends(lab: Lab) -> _Mistakes:
    """No learning switch has hosts of both ends: their frames would not pass an OpenFlow switch."""
    for learning in lab.network.learning_switches:
        behind = lab.network.hosts_behind(learning.name)
        other = next((host for host in behind if host.role.is_world != behind[0].role.is_world), None)
        if other:
            text = f"host {behind[0].name!r} of the other end is behind {learning.name!r}, too; frames between hosts "
            text += "behind one learning switch pass no OpenFlow switch, so no chain would carry them; use another one"
            yield ("hosts", other.name, "port"), text


def _boxes(lab: Lab) -> _Mistakes:
    """Boxes have keys that fit their kind, and MTUs that fit each other."""
    for box in lab.network.boxes:
        place: Place = ("boxes", box.name)
        for key, message in unfit_keys(box):
            yield (*place, key), message
        for key, message in unknown_placeholders(box.program) if box.program else ():
            yield (*place, "program", key), message
        sides = [(pair.world.mtu, pair.island.mtu) for pair in box.pairs]
        world, island = sides[0]
        if len(set(sides)) > 1:
            text = "its MTUs differ from those of the first pair; give both pairs the same MTUs"
            yield (*place, "spare"), text
        elif not box.routed and world != island:
            text = f"MTUs of {world} and {island} on both sides of a transparent box; write one mtu for the box"
            yield place, text


def _delay_boxes(lab: Lab) -> _Mistakes:
    """Each class has a tag on the trunk or two ports, and all legs have one MTU: frames pass between any of them."""
    for box in lab.network.delay_boxes:
        raw, place = lab.raw.delay_boxes[box.name], ("delay_boxes", box.name)
        has_ports = any(latency.world or latency.island for latency in raw.classes.values())
        if not box.trunk and not has_ports and lab.raw.switches:
            yield place, f"trunk is missing; add 'trunk: {lab.free_port(next(iter(lab.raw.switches)))}'"
        longest = max((interface.mtu for interface in box.interfaces), default=MTU)
        for latency in box.classes:
            written, here = raw.classes[latency.name], (*place, "classes", latency.name)
            given = [each is not None for each in (written.vlan, written.world, written.island)]
            if given not in ([True, False, False], [False, True, True]):
                yield here, "write either vlan (a tag on the trunk), or world and island (two ports of its own)"
            elif written.vlan is not None and box.trunk is None and has_ports:
                yield (*here, "vlan"), "its delay box has no trunk; add 'trunk: SWITCH/PORT' to it"
            if 2 * latency.jitter.ns > latency.rtt.ns:
                most = Duration(latency.rtt.ns // 2)
                text = f"{latency.jitter} exceeds the delay each way; at most half the rtt: {most}"
                yield (*here, "jitter"), text
            if latency.ports and (least := min(latency.ports.world.mtu, latency.ports.island.mtu)) < longest:
                text = f"an MTU of {least}, and its delay box has one of {longest}; write one mtu for the box"
                yield here, text


def _reachability(lab: Lab) -> _Mistakes:
    """Trunks connect every switch with the rest of the lab."""
    names = [switch.name for switch in lab.network.switches]
    ends = [(trunk.a.switch, trunk.b.switch) for trunk in lab.network.trunks]
    if not names or any(a == b or not {a, b} <= {*names} for a, b in ends):
        return  # a wrong trunk may be the one that is missing
    topology = Topology(names, lab.network.trunks)
    rest = max(map(topology.reachable, names), key=len)
    for name in names:
        if name in rest:
            continue
        stranded = [
            machine
            for machine, interfaces in lab.network.machines.items()
            if name in {interface.attached.switch for interface in interfaces}
        ]
        consequence = f", so {', '.join(stranded)} cannot be reached" if stranded else ""
        add = f"{{from: {lab.free_port(name)}, to: {lab.free_port(min(rest))}, rate: 1 Gbit/s}}"
        text = f"no trunk connects it with the rest of the lab{consequence}; add one such as {add}"
        yield ("switches", name), text


_CHECKS = (
    _names,
    _uniqueness,
    _default_macs,
    _attachment,
    _interface_names,
    _twins,
    _networks,
    _hosts,
    _ends,
    _boxes,
    _delay_boxes,
    _reachability,
)
