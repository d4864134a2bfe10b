# SPDX-License-Identifier: Apache-2.0
"""One switch that tests of the controller run on: Open vSwitch, a twin of hardware, or hardware.

Its lab has the switch alone, with machines at its lowest ports that need not be there. Their addresses are those for
measurements (RFC 2544): entries with others are not of these tests.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from atoll_controller.fabric.flow_installer import apply_flows, read_tables, table_of
from atoll_controller.openflow.controller_client import Controller
from atoll_controller.planner.entry_diff import FlowChange
from atoll_controller.planner.planner import make_plan
from atoll_controller.probing.probe_frames import UDP, ProbeEnd, ProbeMark, probe_frame
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import Action, FlowEntry, Match, Output, UnmanagedEntry, sort_key
from atoll_core.plan.plan import Plan
from atoll_switches.capability_profile import Profile, feature_text, profile, refuse_unsupported, remedy_for
from tests.support.runtime import start_controller

PORTS = 13
"""The ports that the lab uses."""

CONNECTS_S = 90.0
"""For a switch to connect: a ProCurve may take up to a minute to try again."""

FOLLOWS_S = 60.0
"""For the data plane to follow; longer than any profile says."""

ADDRESSES = IPv4Network("198.18.0.0/15")
BURST = 20  # frames
COOKIE = 0x74657374000000
_TO_TABLES = 0xFFFFFFF9  # OFPP_TABLE (7.2.1): a packet out goes through the switch's tables
_POLL_S = 0.25
_SOURCE = ProbeEnd("02:00:00:00:00:01", IPv4Address("198.18.200.1"))
_TO = ProbeEnd("02:00:00:00:00:02", IPv4Address("198.19.200.1"))

_LAB = """\
name: switch-test
networks: {{world: 198.18.0.0/16, island: 198.19.0.0/16}}
switches: {{{name}: {{dpid: {dpid}, driver: {driver}}}}}
hosts:
  w1: {{role: world-server, ip: 198.18.0.1, port: {p[0]}}}
  ws: {{role: world-special, ip: 198.18.1.1, port: {p[1]}}}
  wh: {{role: world-whistle, ip: 198.18.1.2, port: {p[2]}}}
  i1: {{role: island-client, ip: 198.19.0.1, port: {p[3]}}}
  is: {{role: island-special, ip: 198.19.1.1, port: {p[4]}}}
boxes:
  sat: {{kind: link, world: {p[5]}, island: {p[6]}}}
  pep: {{kind: pep, world: {p[7]}, island: {p[8]}}}
delay_boxes:
  delay:
    trunk: {p[9]}
    rate: 1 Gbit/s
    classes:
      tagged: {{rtt: 20 ms, vlan: 101}}
      cabled: {{rtt: 40 ms, world: {p[10]}, island: {p[11]}}}
taps: {{tap-w: {{host: cap-w, port: {p[12]}}}}}
"""

_EXPERIMENT = """\
name: switch-test
lab: lab.yaml
duration: 10 s
chain: [{chain}]
links:
  sat:
    to_island: {{rate: 8 Mbit/s, delay: 20 ms, queue: 100 kB}}
    to_world: {{rate: 4 Mbit/s, delay: 20 ms, queue: 100 kB}}
latency: {{{latency}}}
traffic: {{channels: 1}}
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A switch. ``listen``: where it finds its controller; ``enter``: the command line that enters its namespaces."""

    name: str
    dpid: int
    driver: str
    listen: str
    enter: Sequence[str] = ()

    async def controller(self) -> Controller:
        """A controller that listens there. Raises LabError."""
        return await start_controller(self.enter, self.listen)


class SwitchUnderTest:
    """A connected switch, and a controller of its own. ``directory``: for descriptions of its lab."""

    def __init__(self, target: Target, controller: Controller, directory: Path) -> None:
        self.target = target
        self.controller = controller
        self.known: Profile = profile(target.driver)
        self.ports = sorted(port for port in controller.switches[target.dpid].ports if port < 0xFFFFFF00)
        self._directory = directory
        self.network: Network = self._load("sat", "")[0]
        self.table = -1  # not known before its features are read

    def plan(self, chain: str = "sat", latency: str = "") -> Plan:
        """The plan of a chain and of the latency of server w1. Raises PlanError if this hardware cannot do it."""
        network, experiment = self._load(chain, latency)
        return make_plan(network, experiment)

    def _load(self, chain: str, latency: str) -> tuple[Network, Experiment]:
        target, ports = self.target, [f"{self.target.name}/{port}" for port in self.ports[:PORTS]]
        lab = _LAB.format(name=target.name, dpid=target.dpid, driver=target.driver, p=ports)
        (self._directory / "lab.yaml").write_text(lab, encoding="utf-8")
        given = f"w1: {latency}" if latency else ""
        (self._directory / "experiment.yaml").write_text(
            _EXPERIMENT.format(chain=chain, latency=given), encoding="utf-8"
        )
        return load_experiment(self._directory / "experiment.yaml")

    def plan_of(self, *entries: FlowEntry) -> Plan:
        """A plan of these entries alone. Raises PlanError if this hardware cannot do it."""
        refuse_unsupported(self.network, entries)
        return replace(self.plan(), flows=tuple(sorted(entries, key=sort_key)))

    def entries(self, number: int) -> list[FlowEntry]:
        """That many entries that no plan of the lab has."""
        return [self.entry(self.to(each), (Output(self.ports[1]),), f"entry {each}") for each in range(number)]

    def entry(self, match: Match, actions: tuple[Action, ...], why: str = "test") -> FlowEntry:
        """An entry for frames of the test, above those of plans."""
        return FlowEntry(self.target.name, 2000, match, actions, COOKIE, why)

    def to(self, number: int) -> Match:
        """What frames from the first port to an address match."""
        base = int(IPv4Address("198.19.64.0"))
        return Match(self.ports[0], ipv4_dst=IPv4Network((base + number, 32)))

    @property
    def frames(self) -> Match:
        """What the frames that are sent match."""
        return Match(self.ports[0], ipv4_dst=IPv4Network(_TO.address))

    def refusals(self, features: Sequence[str], entries: int = 0) -> Iterator[tuple[str, str]]:
        """The refusal and the remedy for each of these features, and that table size, that the hardware lacks."""
        title = f"{self.target.name} ({self.known.title})"
        for need in features:
            if not self.known.supports(need):
                yield f"{title} cannot {feature_text(need)} in hardware", remedy_for(self.known, need)
        if entries > self.known.max_entries:
            yield (
                f"{title} has room for {self.known.max_entries} entries, but the plan has {entries}",
                "attach some of its machines to another switch",
            )

    # The switch

    async def start_controller(self) -> Controller:
        """Another controller, when the one before has ended, to which the switch has connected."""
        self.controller = await self.target.controller()
        await self.controller.wait_for([self.target.dpid], CONNECTS_S)
        return self.controller

    async def apply(self, plan: Plan, *, dry_run: bool = False) -> tuple[FlowChange, ...]:
        """Bring the switch to a plan."""
        return await apply_flows(self.controller, self.network, plan, dry_run)

    async def held(self) -> list[FlowEntry | UnmanagedEntry]:
        """Its entries."""
        self.table = await table_of(self.controller, self.network.switches[0])
        return [*(await read_tables(self.controller, self.network))[self.target.name]]

    async def change(self, delete: Sequence[FlowEntry | UnmanagedEntry] = (), add: Sequence[FlowEntry] = ()) -> None:
        """Change entries behind the back of whoever keeps the switch at a plan."""
        await self.controller.change(self.target.dpid, delete, add, self.table)

    async def clear(self) -> None:
        """Delete all entries."""
        if held := await self.held():
            await self.change(delete=held)

    async def sent(self, port: int) -> tuple[int, int]:
        """The packets and bytes that left by a port."""
        counters = (await self.controller.counters(self.target.dpid, self.table))["ports"][str(port)]
        return counters["tx_packets"], counters["tx_bytes"]

    async def send(self) -> None:
        """Send a burst of frames through the tables, as come in by the first port."""
        frame = probe_frame(_SOURCE, _TO, None, UDP, ProbeMark(0, 0, 0))
        through = self.entry(Match(self.ports[0]), (Output(_TO_TABLES),))
        refused = await self.controller.send(self.target.dpid, [(through, frame)] * BURST)
        assert set(refused) == {None}, f"{self.target.name} refuses packets out by its tables: {refused[0]}"

    async def forwards(self, *ports: int) -> tuple[int, ...] | None:
        """Send bursts until one comes out of all of these ports: the bytes a frame of each; None if it does not."""
        deadline_s = time.monotonic() + FOLLOWS_S
        while time.monotonic() < deadline_s:
            before = [await self.sent(port) for port in ports]
            await self.send()
            for _ in range(2):  # the ports of some switches are counted a moment later
                after = [await self.sent(port) for port in ports]
                new = [(now[0] - was[0], now[1] - was[1]) for was, now in zip(before, after, strict=True)]
                if all(packets == BURST for packets, _ in new):
                    return tuple(octets // packets for packets, octets in new)
                await asyncio.sleep(_POLL_S)
        return None

    async def stops(self, port: int) -> bool:
        """Send bursts until none comes out of a port any more."""
        deadline_s = time.monotonic() + FOLLOWS_S
        while time.monotonic() < deadline_s:
            before = await self.sent(port)
            await self.send()
            await asyncio.sleep(_POLL_S)
            if (await self.sent(port))[0] - before[0] < BURST:
                return True
        return False


def is_of_tests(entry: FlowEntry | UnmanagedEntry) -> bool:
    """Whether an entry is one of these tests': all of them match addresses for measurements."""
    if not isinstance(entry, FlowEntry):
        return False
    prefixes = (entry.match.ipv4_src, entry.match.ipv4_dst)
    return any(prefix is not None and prefix.subnet_of(ADDRESSES) for prefix in prefixes)
