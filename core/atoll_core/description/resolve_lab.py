# SPDX-License-Identifier: Apache-2.0
"""Resolve a raw lab.yaml to a Network: look up names, fill in defaults, refuse duplicates.

Resolution continues after a mistake, so that all of them are found.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import get_args

from atoll_core.description.parser import Parsed, parse
from atoll_core.description.raw_lab import (
    Driver,
    RawBox,
    RawBoxPort,
    RawCable,
    RawDelayBox,
    RawLab,
    RawLatencyClass,
    RawTap,
)
from atoll_core.description.raw_types import INTERFACE_NAME_MAX, PORT_MAX, RESERVED_INTERFACES
from atoll_core.description.resolve_box import resolve_settings, unfit_keys, unknown_placeholders
from atoll_core.description.validation_messages import ENTRY, entry_name, on_line, suggest
from atoll_core.description.yaml_document import Document, Place
from atoll_core.errors import DescriptionError, Diagnostic
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


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab without mistakes: its description and what that means."""

    document: Document
    raw: RawLab
    network: Network

    @classmethod
    def read(cls, document: Document) -> "Lab":
        """Resolve a document. Raises DescriptionError with its mistakes."""
        parsed = parse(RawLab, document)
        resolver = _Resolver(parsed)
        network = resolver.resolve()
        if resolver.mistakes:
            raise DescriptionError(resolver.mistakes)
        return cls(document, parsed.raw, network)

    def kind_of(self, name: str) -> str | None:
        """The noun for a name ("host", "delay box"), or None."""
        return next((ENTRY[section] for section in _SECTIONS if name in getattr(self.raw, section)), None)

    def where_rate_of(self, trunk: Trunk) -> str:
        """File and line of a trunk's rate."""
        index = next(index for index, raw in enumerate(self.raw.trunks) if raw.from_ == trunk.a)
        return self.document.where(("trunks", index, "rate"))


def _ports(raw: RawLab) -> Iterator[PortRef]:
    """Every switch port that a lab uses."""
    for trunk in raw.trunks:
        yield from (trunk.from_, trunk.to)
    yield from (each.uplink for each in raw.learning_switches.values())
    yield from (host.port for host in raw.hosts.values())
    for box in raw.boxes.values():
        for pair in (box, box.spare):
            if pair:
                yield from (pair.world.port, pair.island.port)
    for delay in raw.delay_boxes.values():
        legs = (leg for known in delay.classes.values() for leg in (known.world, known.island))
        yield from (leg.port for leg in legs if leg)
    optional = [
        *(delay.trunk for delay in raw.delay_boxes.values()),
        *(tap.port for tap in raw.taps.values()),
        raw.control and raw.control.port,
    ]
    yield from (port for port in optional if port)


def _has_ports(box: RawDelayBox) -> bool:
    """Whether any of its classes has ports of its own."""
    return any(known.world or known.island for known in box.classes.values())


class _Resolver:
    """One pass over a raw lab; ``taken`` has names, ports and addresses with the place that uses them."""

    def __init__(self, parsed: Parsed[RawLab]) -> None:
        self.document = parsed.document
        self.raw = raw = parsed.raw
        self.mistakes: list[Diagnostic] = []
        self.taken: dict[tuple[str, object], Place] = {}
        self.default_macs: dict[str, Place] = {}
        self.port_classes = 0
        self.used_ports = frozenset(_ports(raw))
        switches = (*raw.switches, *raw.learning_switches)
        self.switch_numbers = {name: number for number, name in enumerate(switches, start=1)}

    def resolve(self) -> Network:
        raw = self.raw
        self.take_names()
        switches = tuple(self.switches())
        trunks = tuple(self.trunks())
        learning = tuple(self.learning_switches())
        hosts, boxes, delay_boxes = tuple(self.hosts()), tuple(self.boxes()), tuple(self.delay_boxes())
        network = Network(
            name=raw.name,
            file=self.document.file,
            world=raw.networks.world,
            island=raw.networks.island,
            switches=switches,
            trunks=trunks,
            hosts=hosts,
            boxes=boxes,
            delay_boxes=delay_boxes,
            taps=(),
            learning_switches=learning,
            control=self.control(),
        )
        longest = max((each.mtu for found in network.machines.values() for each in found), default=MTU)
        network = replace(network, taps=tuple(self.taps(max(longest, MTU))))
        self.check_networks()
        self.check_control()
        self.check_default_macs()
        self.check_ends_apart(network)
        self.check_reachable(network)
        return network

    def wrong(self, place: Place, message: str) -> None:
        self.mistakes.append(self.document.mistake(place, f"{entry_name(place)}: {message}"))

    def take(self, what: str, thing: object, place: Place, remedy: str) -> None:
        """Note that ``place`` uses ``thing``; a second user of it is a mistake."""
        first = self.taken.setdefault((what, thing), place)
        if first != place:
            line = self.document.line(first)
            self.wrong(place, f"{what} {thing} is already taken by {entry_name(first)}{on_line(line)}; {remedy}")

    def take_names(self) -> None:
        """Names are unique across all sections; several taps may share a capture host."""
        owners: dict[str, Place] = {}
        for section in _SECTIONS:
            for name in getattr(self.raw, section):
                first = owners.setdefault(name, (section, name))
                if first != (section, name):
                    line = self.document.line(first)
                    where = f"line {line}" if line else "a setting"
                    self.wrong(
                        (section, name), f"{where} already gives this name to a {ENTRY[str(first[0])]}; rename one"
                    )
        for name, tap in self.raw.taps.items():
            if tap.host in owners:
                first = owners[tap.host]
                where = f"{entry_name(first)}{on_line(self.document.line(first))}"
                self.wrong(("taps", name, "host"), f"{where} has this name; give the capture host one of its own")
        machines: list[Place] = [
            (section, EMULATION) for section in _MACHINES if EMULATION in getattr(self.raw, section)
        ]
        machines += [("taps", name, "host") for name, tap in self.raw.taps.items() if tap.host == EMULATION]
        for place in machines:
            self.wrong(
                place, f"the machine of an emulated lab is called {EMULATION!r} in every run; choose another name"
            )

    def switches(self) -> Iterator[Switch]:
        for name, raw in self.raw.switches.items():
            place = ("switches", name)
            self.check_bridge(name, place)
            self.take("datapath id", raw.dpid, (*place, "dpid"), "give each switch its own")
            twin = raw.twin and TwinSettings(**dict(raw.twin))
            if twin and raw.driver not in HARDWARE:
                self.wrong(
                    (*place, "twin"), f"driver {raw.driver} has no twin; drivers that have one: {', '.join(HARDWARE)}"
                )
            if twin and twin.lag_min and twin.lag_max and twin.lag_min.ns > twin.lag_max.ns:
                self.wrong((*place, "twin", "lag_min"), f"{twin.lag_min} is above lag_max, {twin.lag_max}")
            yield Switch(name, raw.dpid, raw.driver, twin)

    def check_bridge(self, name: str, place: Place) -> None:
        """Check that the bridge of an emulated switch, an interface, can have its name."""
        if len(name) > SWITCH_NAME_MAX:
            self.wrong(place, f"the name is longer than {SWITCH_NAME_MAX} characters, an interface's most; shorten it")
        elif name in RESERVED_INTERFACES:
            self.wrong(place, "its bridge would have this name, which is the system's own word; rename it")

    def trunks(self) -> Iterator[Trunk]:
        for index, raw in enumerate(self.raw.trunks):
            place: Place = ("trunks", index)
            known = [self.port(raw.from_, (*place, "from")), self.port(raw.to, (*place, "to"))]
            if raw.from_.switch == raw.to.switch:
                self.wrong(place, f"both ends are on {raw.to.switch!r}; a trunk connects two switches")
            elif all(known):
                yield Trunk(raw.from_, raw.to, raw.rate)

    def learning_switches(self) -> Iterator[LearningSwitch]:
        for name, raw in self.raw.learning_switches.items():
            place: Place = ("learning_switches", name)
            self.check_bridge(name, place)
            self.port(raw.uplink, (*place, "uplink"))
            yield LearningSwitch(name, raw.uplink, raw.rate)

    def control(self) -> Control | None:
        raw = self.raw.control
        if raw is None:
            return None
        self.port(raw.port, (CONTROL, "port"))
        for section in _SECTIONS:
            if CONTROL in getattr(self.raw, section):
                self.wrong((section, CONTROL), "this name is that of the machine that runs atoll; choose another one")
        return Control(raw.network, raw.port, raw.arp)

    def check_control(self) -> None:
        """Check that control addresses are in a network of their own, which has one left for the daemon's machine."""
        raw = self.raw.control
        if raw is not None:
            for end, network in (("world", self.raw.networks.world), ("island", self.raw.networks.island)):
                if raw.network.overlaps(network):
                    self.wrong(
                        (CONTROL, "network"),
                        f"{raw.network} overlaps the {end} network {network}; choose a network of its own",
                    )
        for name, host in self.raw.hosts.items():
            place: Place = ("hosts", name, CONTROL)
            if host.control is None:
                continue
            self.check_control_address(host.control, place)
            if host.role in _TALK:
                self.wrong(
                    place,
                    f"results of the {host.role.value} would pass the network while it is measured; give it a second "
                    "interface for control, and remove this key",
                )
        if raw is not None:
            taken = {host.control for host in self.raw.hosts.values() if host.control and host.control in raw.network}
            usable = raw.network.num_addresses - (2 if raw.network.prefixlen < 31 else 0)
            if len(taken) >= usable:
                self.wrong(
                    (CONTROL, "network"),
                    f"hosts take all addresses of {raw.network}, and the machine that runs atoll needs one; choose a "
                    "larger network",
                )

    def check_control_address(self, address: IPv4Address, place: Place) -> None:
        control = self.raw.control
        if control is None:
            example = "{network: 192.168.10.0/24, port: SWITCH/PORT}"
            self.wrong(place, f"the lab has no in-band control; add a section 'control: {example}'")
            return
        self.take("address", address, place, "give each host its own")
        network = control.network
        if address not in network:
            self.wrong(place, f"{address} is outside the control network {network}; choose an address inside")
        elif network.prefixlen < 31 and address in (network.network_address, network.broadcast_address):
            self.wrong(place, f"{address} is the network's own or its broadcast address; choose another of {network}")

    def check_ends_apart(self, network: Network) -> None:
        """Check that no learning switch has hosts of both ends: their frames would not pass an OpenFlow switch."""
        for each in network.learning_switches:
            ends = {host.role.is_world: host for host in reversed(network.hosts_behind(each.name))}  # the first of each
            if len(ends) == 2:
                first, other = (host for host in network.hosts if host in ends.values())
                self.wrong(
                    ("hosts", other.name, "port"),
                    f"host {first.name!r} of the other end is behind {each.name!r}, too; frames between hosts behind "
                    "one learning switch pass no OpenFlow switch, so no chain would carry them; use another one",
                )

    def hosts(self) -> Iterator[Host]:
        firsts: dict[HostRole, str] = {}
        for name, raw in self.raw.hosts.items():
            place = ("hosts", name)
            first = firsts.setdefault(raw.role, name)
            if raw.role in _ONE_OF_ITS_KIND and first != name:
                line = self.document.line(("hosts", first))
                self.wrong(
                    (*place, "role"),
                    f"host {first!r}{on_line(line)} already is the {raw.role.value}; a lab has only one",
                )
            self.take("address", raw.ip, (*place, "ip"), "give each host its own")
            self.check_address(raw.ip, raw.role, (*place, "ip"))
            if raw.capacity is not None and raw.role is not HostRole.ISLAND_CLIENT:
                self.wrong((*place, "capacity"), "only island clients have channels; remove it")
            interface = self.interface(place, raw.port, raw, f"{name}-eth0", name)
            interface = self.with_mtu(interface, raw.mtu, (*place, "mtu"))
            yield Host(name, raw.role, raw.ip, interface, raw.capacity or 1.0, raw.control)

    def boxes(self) -> Iterator[ChainBox]:
        for name, raw in self.raw.boxes.items():
            place = ("boxes", name)
            world, island = self.leg(name, raw, "world"), self.leg(name, raw, "island")
            spare = raw.spare and PortPair(
                self.leg(name, raw, "world", spare=True), self.leg(name, raw, "island", spare=True)
            )
            program = raw.program and Program(
                tuple(raw.program.start),
                tuple(raw.program.stop),
                tuple(raw.program.report),
                tuple(raw.program.privileges),
                tuple(raw.program.needs.items()),
                raw.program.memory_max,
                self.document.line((*place, "program")),
            )
            declared = (raw.forwarding, raw.stateful or bool(raw.kind.stateful), program, raw.conserves_packets)
            settings = tuple(raw.settings.items())
            lasting = raw.conserves_payload, raw.residence_max
            box = ChainBox(name, raw.kind, world, island, spare, *declared, settings, *lasting)
            for key, message in unfit_keys(box):
                self.wrong((*place, key), message)
            self.check_mtus(place, box)
            for key, message in resolve_settings(box, {})[1]:
                self.mistakes.append(self.document.mistake((*place, "settings", key), message))
            for key, message in unknown_placeholders(program) if program else ():
                self.wrong((*place, "program", key), message)
            yield box

    def leg(self, name: str, box: RawBox, side: str, *, spare: bool = False) -> Interface:
        """An interface of a box. A spare one has the MTU of the first on its side, unless it declares its own."""
        first: RawBoxPort = getattr(box, side)
        raw: RawBoxPort = getattr(box.spare, side) if spare else first
        within: Place = ("boxes", name)
        place: Place = (*within, "spare", side) if spare else (*within, side)
        interface = self.interface(place, raw.port, raw, f"{name}-{side[0]}{2 if spare else ''}", name)
        for mtu, where in ((raw.mtu, place), (first.mtu, (*within, side)), (box.mtu, within)):
            if mtu is not None:
                return self.with_mtu(interface, mtu, (*where, "mtu"))
        return interface

    def with_mtu(self, interface: Interface, mtu: int | None, place: Place) -> Interface:
        if mtu is None:
            return interface
        return replace(interface, mtu=mtu, line=self.document.line(place))

    def check_mtus(self, place: Place, box: ChainBox) -> None:
        """Check that both pairs of a box have the same MTUs, and both sides of a transparent one."""
        sides = [(pair.world.mtu, pair.island.mtu) for pair in box.pairs]
        if len(set(sides)) > 1:
            self.wrong((*place, "spare"), "its MTUs differ from those of the first pair; give both pairs the same MTUs")
        elif not box.routed and sides[0][0] != sides[0][1]:
            world, island = sides[0]
            text = f"MTUs of {world} and {island} on both sides of a transparent box; write one mtu for the box"
            self.wrong(place, text)

    def delay_boxes(self) -> Iterator[DelayBox]:
        for name, raw in self.raw.delay_boxes.items():
            place = ("delay_boxes", name)
            trunk = self.interface(place, raw.trunk, raw, f"{name}-t", name) if raw.trunk else None
            trunk = trunk and self.with_mtu(trunk, raw.mtu, (*place, "mtu"))
            if not raw.trunk and not _has_ports(raw) and self.raw.switches:
                self.wrong(place, f"trunk is missing; add 'trunk: {self.free_port(next(iter(self.raw.switches)))}'")
            classes = tuple(self.classes(place, raw))
            self.check_leg_mtus(name, trunk, classes)
            yield DelayBox(name, trunk, raw.rate, classes)

    def check_leg_mtus(self, name: str, trunk: Interface | None, classes: tuple[LatencyClass, ...]) -> None:
        """Check that the legs of a delay box have one MTU: its program forwards frames between any of them."""
        legs = {("delay_boxes", name, "classes", each.name): each.ports for each in classes if each.ports}
        found = [leg for ports in legs.values() for leg in (ports.world, ports.island)] + ([trunk] if trunk else [])
        longest = max((leg.mtu for leg in found), default=MTU)
        for place, ports in legs.items():
            least = min(ports.world.mtu, ports.island.mtu)
            if least < longest:
                self.wrong(
                    place, f"an MTU of {least}, and its delay box has one of {longest}; write one mtu for the box"
                )

    def classes(self, place: Place, box: RawDelayBox) -> Iterator[LatencyClass]:
        for number, (name, raw) in enumerate(box.classes.items(), start=1):
            here = (*place, "classes", name)
            self.take("class", name, here, "choose another name")
            vlan, ports = raw.vlan, None
            if raw.vlan:
                self.take("VLAN id", raw.vlan, (*here, "vlan"), "give each class its own")
            if raw.world and raw.island:
                legs = {"world": raw.world, "island": raw.island}
                ports = PortPair(*(self.class_leg((*here, side), leg, box, number) for side, leg in legs.items()))
                vlan = _FIRST_NUMBER + 2 * self.port_classes
                self.port_classes += 1
            self.check_ends(here, raw, box)
            if 2 * raw.jitter.ns > raw.rtt.ns:
                most = Duration(raw.rtt.ns // 2)
                self.wrong((*here, "jitter"), f"{raw.jitter} exceeds the delay each way; at most half the rtt: {most}")
            yield LatencyClass(name, vlan or 0, raw.rtt, raw.jitter, ports)

    def class_leg(self, place: Place, raw: RawBoxPort, box: RawDelayBox, number: int) -> Interface:
        """An interface of a class with ports. It has the MTU of the box, unless it declares its own."""
        name, side = str(place[1]), str(place[-1])
        interface = self.interface(place, raw.port, raw, f"{name}-{number}{side[0]}", name)
        mtu, where = (raw.mtu, place) if raw.mtu is not None else (box.mtu, place[:2])
        return self.with_mtu(interface, mtu, (*where, "mtu"))

    def check_ends(self, place: Place, raw: RawLatencyClass, box: RawDelayBox) -> None:
        """Check that a class has either a VLAN id, on a trunk, or two ports."""
        ports = (raw.world is not None) + (raw.island is not None)
        if (raw.vlan is not None) + (ports > 0) != 1 or ports == 1:
            self.wrong(place, "write either vlan (a tag on the trunk), or world and island (two ports of its own)")
        elif raw.vlan is not None and box.trunk is None and _has_ports(box):
            self.wrong((*place, "vlan"), "its delay box has no trunk; add 'trunk: SWITCH/PORT' to it")

    def taps(self, mtu: int) -> Iterator[Tap]:
        """The taps, whose interfaces take the longest packets of the lab."""
        for name, raw in self.raw.taps.items():
            place = ("taps", name)
            default, line = f"{raw.host}-{name}", self.document.line(place)
            one_way = raw.direction == "to_island"
            if raw.port and not raw.cable:
                interface = self.interface(place, raw.port, raw, default, raw.host)
                yield Tap(name, raw.host, replace(interface, mtu=mtu, line=line), to_island_only=one_way)
            elif raw.cable and not raw.port:
                interface = self.physical(place, raw.cable, raw, default)
                interface = replace(interface, mtu=mtu, line=line)
                yield Tap(name, raw.host, interface, physical=True, to_island_only=one_way)
            else:
                self.wrong(
                    place, "write either port (a switch port that sends copies) or cable (a cable with a splitter)"
                )

    def physical(self, place: Place, cable: PortRef, raw: RawTap, default: str) -> Interface:
        """The interface behind a splitter in the cable of a used switch port."""
        if cable.switch in self.raw.learning_switches:
            self.port(cable, (*place, "cable"))
        elif cable not in self.used_ports:
            self.wrong((*place, "cable"), f"no cable ends at {cable}; name a port with an attached machine")
        name = raw.interface or default
        self.take(f"{raw.host}'s interface", name, (*place, "interface"), "give it another name")
        mac = raw.mac or b"\x02\xa8".hex(":") + self.default_mac(cable)[5:]
        return Interface(name, mac, cable)

    def interface(self, place: Place, port: PortRef, raw: RawCable, default: str, machine: str) -> Interface:
        """An interface with defaults filled in; reserves its name, MAC address and port for ``place``."""
        name, key = (
            raw.interface or default,
            "trunk" if place[0] == "delay_boxes" and "classes" not in place else "port",
        )
        behind = self.raw.learning_switches.get(port.switch) if place[0] == "hosts" else None
        if behind is None:
            self.port(port, (*place, key))
        else:
            self.take("port", port, (*place, key), f"free is {self.free_port(port.switch)}")
        if len(name) > INTERFACE_NAME_MAX:
            would = f"its interface would be named {name!r}, longer than {INTERFACE_NAME_MAX} characters"
            self.wrong(place, f"{would}; shorten the name, or add 'interface: ...'")
        self.take(f"{machine}'s interface", name, (*place, "interface"), "give it another name")
        if raw.mac:
            self.take("MAC address", raw.mac, (*place, "mac"), "give each interface its own, or leave it out")
        mac = raw.mac or self.default_mac(port)
        if not raw.mac:
            self.default_macs[mac] = place
        return Interface(name, mac, behind.uplink if behind else port, behind=port if behind else None)

    def default_mac(self, port: PortRef) -> str:
        """A locally administered address for each port: 02:a7, the switch's index in the file, the port number."""
        octets = bytes((0x02, 0xA7)) + self.switch_numbers.get(port.switch, 0).to_bytes(2) + port.port.to_bytes(2)
        return octets.hex(":")

    def port(self, port: PortRef, place: Place) -> bool:
        """Reserve a switch port. Returns whether the switch exists."""
        if port.switch in self.raw.switches:
            self.take("port", port, place, f"free is {self.free_port(port.switch)}")
        elif port.switch in self.raw.learning_switches:
            text = f"{port.switch!r} is a learning switch; only hosts can be attached to it"
            self.wrong(place, f"{text}; name a port of an OpenFlow switch")
        else:
            learning = self.raw.learning_switches if place[0] == "hosts" else ()
            known = suggest(port.switch, [*self.raw.switches, *learning], "switches")
            self.wrong(place, f"unknown switch {port.switch!r}; {known}")
        return port.switch in self.raw.switches

    def free_port(self, switch: str) -> PortRef:
        """The first unused port of a switch."""
        free = (PortRef(switch, number) for number in range(1, PORT_MAX + 1))
        return next((port for port in free if port not in self.used_ports), PortRef(switch, PORT_MAX))

    def check_default_macs(self) -> None:
        """Refuse a given MAC address that is another interface's default."""
        for (what, thing), place in tuple(self.taken.items()):
            if what == "MAC address" and thing in self.default_macs:
                owner = entry_name(self.default_macs[str(thing)])
                self.wrong(place, f"{thing} is the default of {owner}; choose another or leave it out")

    def check_networks(self) -> None:
        world, island = self.raw.networks.world, self.raw.networks.island
        if world.overlaps(island):
            self.wrong(("networks", "island"), f"{island} overlaps the world's {world}; choose networks that do not")

    def check_address(self, address: IPv4Address, role: HostRole, place: Place) -> None:
        end = "world" if role.is_world else "island"
        network = self.raw.networks.world if role.is_world else self.raw.networks.island
        if address not in network:
            inside = network[1] if network.num_addresses > 1 else network[0]
            self.wrong(place, f"{address} is outside the {end} network {network}; choose one inside, such as {inside}")
        elif network.prefixlen < 31 and address in (network.network_address, network.broadcast_address):
            self.wrong(place, f"{address} is the network's own or its broadcast address; choose another of {network}")

    def check_reachable(self, network: Network) -> None:
        """Check that trunks connect every switch with the rest of the lab."""
        lost = len(self.raw.trunks) - len(network.trunks)  # one of them may be the trunk that is missing
        if lost or not network.switches:
            return
        topology = Topology((switch.name for switch in network.switches), network.trunks)
        rest = max((topology.reachable(switch.name) for switch in network.switches), key=len)
        for name in [switch.name for switch in network.switches if switch.name not in rest]:
            stranded = [
                machine
                for machine, interfaces in network.machines.items()
                if name in {interface.attached.switch for interface in interfaces}
            ]
            what = f", so {', '.join(stranded)} cannot be reached" if stranded else ""
            add = f"{{from: {self.free_port(name)}, to: {self.free_port(min(rest))}, rate: 1 Gbit/s}}"
            message = f"no trunk connects it with the rest of the lab{what}; add one such as {add}"
            self.wrong(("switches", name), message)
