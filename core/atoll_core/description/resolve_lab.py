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
from atoll_core.description.validation_messages import ENTRY_NOUNS, Mistakes, entry_name, on_line, parse, suggest
from atoll_core.description.yaml_document import Document, KeyPath
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

HARDWARE_DRIVERS = tuple(driver for driver in get_args(Driver) if driver != "ovs")
"""The drivers that can have a twin."""

SWITCH_NAME_MAX = INTERFACE_NAME_MAX  # the bridge of an emulated switch is an interface

_SINGLE_ROLES = (HostRole.WORLD_SPECIAL, HostRole.WORLD_WHISTLE, HostRole.ISLAND_SPECIAL)
_FIRST_CLASS_NUMBER = 4096  # of classes with ports: above all VLAN ids
_REPORTING_ROLES = (HostRole.WORLD_SPECIAL, HostRole.ISLAND_SPECIAL)  # their jobs print results while a run measures
_SECTIONS = ("switches", "learning_switches", "hosts", "boxes", "delay_boxes", "taps")
_MACHINE_SECTIONS = ("hosts", "boxes", "delay_boxes")  # sections whose entries are machines

_Mistakes = Iterator[tuple[KeyPath, str]]


class _Cable(NamedTuple):
    """The cable of a machine's interface. ``key_path``, ``raw``: of the interface in the description."""

    key_path: KeyPath
    key: str  # of its port: "port", "trunk", or "cable" of a splitter in another cable
    port: PortRef
    machine: str
    raw: RawCable
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
            for key_path, message in check(lab):
                mistakes.note(key_path, message)
        for box in lab.network.boxes:
            for key, message in resolve_settings(box, {})[1]:
                mistakes.diagnostics.append(document.mistake(("boxes", box.name, "settings", key), message))
        if mistakes.diagnostics:
            raise DescriptionError(mistakes.diagnostics)
        return lab

    def kind_of(self, name: str) -> str | None:
        """The noun for a name ("host", "delay box"), or None."""
        return next((ENTRY_NOUNS[section] for section in _SECTIONS if name in getattr(self.raw, section)), None)

    def rate_location(self, trunk: Trunk) -> str:
        """File and line of a trunk's rate."""
        return self.document.where(("trunks", self.network.trunks.index(trunk), "rate"))

    def ports(self) -> Iterator[tuple[PortRef, KeyPath]]:
        """Every switch port at which a cable ends, with the key path that names it."""
        for index, trunk in enumerate(self.raw.trunks):
            yield from ((trunk.from_, ("trunks", index, "from")), (trunk.to, ("trunks", index, "to")))
        for name, learning in self.raw.learning_switches.items():
            yield learning.uplink, ("learning_switches", name, "uplink")
        yield from ((cable.port, (*cable.key_path, cable.key)) for cable in self.cables if cable.key != "cable")
        if self.raw.control:
            yield self.raw.control.port, (CONTROL, "port")

    def can_be_attached(self, port: PortRef, key_path: KeyPath) -> bool:
        """Whether a cable of ``key_path`` can end at a port: its switch exists; learning switches have hosts only."""
        return port.switch in self.raw.switches or (
            key_path[0] == "hosts" and port.switch in self.raw.learning_switches
        )

    def free_port(self, switch: str) -> PortRef:
        """The first unused port of a switch."""
        used = {port.port for port, _ in self.ports() if port.switch == switch}
        return PortRef(switch, next((number for number in range(1, PORT_MAX + 1) if number not in used), PORT_MAX))

    def entry_with_line(self, key_path: KeyPath) -> str:
        """The name of a key path in messages, with its line."""
        return entry_name(key_path) + on_line(self.document.line(key_path))


class _Builder:
    """Makes the network of a raw lab, and the list of its machines' cables."""

    def __init__(self, raw: RawLab, document: Document) -> None:
        self.file, self.line = document.file, document.line
        self.raw = raw
        self.cables: list[_Cable] = []
        self.class_numbers = count(_FIRST_CLASS_NUMBER, 2)
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
            key_path = ("hosts", name)
            interface = self.interface(key_path, raw.port, raw, f"{name}-eth0", [(raw.mtu, key_path)])
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
        box_path: KeyPath = ("boxes", name)
        main: RawBoxPort = getattr(box, side)
        raw: RawBoxPort = getattr(box.spare, side) if spare else main
        key_path: KeyPath = (*box_path, "spare", side) if spare else (*box_path, side)
        mtus = [(raw.mtu, key_path), (main.mtu, (*box_path, side)), (box.mtu, box_path)]
        return self.interface(key_path, raw.port, raw, f"{name}-{side[0]}{2 if spare else ''}", mtus)

    def delay_box(self, name: str, raw: RawDelayBox) -> DelayBox:
        key_path: KeyPath = ("delay_boxes", name)
        mtus = [(raw.mtu, key_path)]
        trunk = self.interface(key_path, raw.trunk, raw, f"{name}-t", mtus, key="trunk") if raw.trunk else None
        return DelayBox(name, trunk, raw.rate, tuple(self.classes(key_path, raw)))

    def classes(self, key_path: KeyPath, box: RawDelayBox) -> Iterator[LatencyClass]:
        """The classes. Interfaces of those with ports have the MTU of the box, unless they declare their own."""
        for index, (name, raw) in enumerate(box.classes.items(), start=1):
            vlan, ports, interfaces = raw.vlan or 0, None, list[Interface]()
            for side, leg in (("world", raw.world), ("island", raw.island)):
                if leg:
                    leg_path = (*key_path, "classes", name, side)
                    mtus = [(leg.mtu, leg_path), (box.mtu, key_path)]
                    interfaces.append(self.interface(leg_path, leg.port, leg, f"{key_path[1]}-{index}{side[0]}", mtus))
            if len(interfaces) == 2:
                vlan, ports = next(self.class_numbers), PortPair(*interfaces)
            jitter = Duration(round(box.jitter * raw.rtt.ns / 2)) if raw.jitter is None else raw.jitter
            reorder = box.reorder if raw.reorder is None else raw.reorder
            yield LatencyClass(name, vlan, raw.rtt, jitter, ports, reorder=reorder)

    def taps(self) -> Iterator[Tap]:
        """The taps, whose interfaces take the longest packets of the lab."""
        max_mtu = max((MTU, *(cable.interface.mtu for cable in self.cables)))
        for name, raw in self.raw.taps.items():
            port, key = (raw.cable, "cable") if raw.cable else (raw.port, "port")
            if port and not (raw.port and raw.cable):
                key_path = ("taps", name)
                interface = self.interface(
                    key_path, port, raw, f"{raw.host}-{name}", [(max_mtu, key_path)], raw.host, key
                )
                yield Tap(name, raw.host, interface, key == "cable", raw.direction == "to_island")

    def interface(
        self,
        key_path: KeyPath,
        port: PortRef,
        raw: RawCable,
        name: str,
        mtus: Iterable[tuple[int | None, KeyPath]],
        machine: str | None = None,
        key: str = "port",
    ) -> Interface:
        """An interface with defaults: a name, and the first MTU that is declared; each of ``mtus`` has its key path."""
        learning = self.raw.learning_switches.get(port.switch) if key_path[0] == "hosts" else None
        mtu, line = next(((mtu, self.line((*path, "mtu"))) for mtu, path in mtus if mtu is not None), (MTU, 0))
        interface = Interface(
            raw.interface or name,
            raw.mac or self.default_mac(port, 0xA8 if key == "cable" else 0xA7),
            learning.uplink if learning else port,
            mtu,
            line,
            port if learning else None,
        )
        self.cables.append(_Cable(key_path, key, port, machine or str(key_path[1]), raw, interface))
        return interface

    def default_mac(self, port: PortRef, octet: int) -> str:
        """A locally administered address for each port: 02, ``octet``, the switch's index in the file, the port."""
        octets = bytes((0x02, octet)) + self.switch_numbers.get(port.switch, 0).to_bytes(2) + port.port.to_bytes(2)
        return octets.hex(":")


def _check_names(lab: Lab) -> _Mistakes:
    """Names are unique across all sections; several taps may share a capture host."""
    owners: dict[str, KeyPath] = {}
    machines: list[tuple[str, KeyPath]] = []
    for section in _SECTIONS:
        for name in getattr(lab.raw, section):
            key_path: KeyPath = (section, name)
            first = owners.setdefault(name, key_path)
            if first != key_path:
                line = lab.document.line(first)
                location = f"line {line}" if line else "a setting"
                yield key_path, f"{location} already gives this name to a {ENTRY_NOUNS[str(first[0])]}; rename one"
            if section in _MACHINE_SECTIONS:
                machines.append((name, key_path))
            if lab.raw.control and name == CONTROL:
                yield key_path, "this name is that of the machine that runs atoll; choose another one"
    for name, tap in lab.raw.taps.items():
        key_path = ("taps", name, "host")
        machines.append((tap.host, key_path))
        if tap.host in owners:
            yield (
                key_path,
                f"{lab.entry_with_line(owners[tap.host])} has this name; give the capture host one of its own",
            )
    for name, key_path in machines:
        if name == EMULATION:
            yield key_path, f"the machine of an emulated lab is called {EMULATION!r} in every run; choose another name"


def _check_uniqueness(lab: Lab) -> _Mistakes:
    """Numbers, addresses, ports and names within a machine have one user."""
    owners: dict[tuple[str, object], KeyPath] = {}
    for noun, value, key_path, remedy in _unique_values(lab):
        owner = owners.setdefault((noun, value), key_path)
        if owner != key_path:
            yield key_path, f"{noun} {value} is already taken by {lab.entry_with_line(owner)}; {remedy}"


def _unique_values(lab: Lab) -> Iterator[tuple[str, object, KeyPath, str]]:
    """All that can have one user only: its noun, itself, the user's key path, and the remedy for a second one."""
    for name, switch in lab.raw.switches.items():
        yield "datapath id", switch.dpid, ("switches", name, "dpid"), "give each switch its own"
    free_port = functools.cache(lab.free_port)
    for port, key_path in lab.ports():
        if lab.can_be_attached(port, key_path):
            yield "port", port, key_path, f"free is {free_port(port.switch)}"
    for key in ("ip", CONTROL):
        for name, host in lab.raw.hosts.items():
            if address := getattr(host, key):
                yield "address", address, ("hosts", name, key), "give each host its own"
    for box, delay in lab.raw.delay_boxes.items():
        for name, latency in delay.classes.items():
            key_path = ("delay_boxes", box, "classes", name)
            yield "class", name, key_path, "choose another name"
            if latency.vlan:
                yield "VLAN id", latency.vlan, (*key_path, "vlan"), "give each class its own"
    for cable in lab.cables:
        name, key_path = cable.interface.name, (*cable.key_path, "interface")
        yield f"{cable.machine}'s interface", name, key_path, "give it another name"
        remedy = "give each interface its own, or leave it out"
        if cable.raw.mac and cable.key != "cable":
            yield "MAC address", cable.raw.mac, (*cable.key_path, "mac"), remedy


def _check_default_macs(lab: Lab) -> _Mistakes:
    """No MAC address that is given is another interface's default."""
    cables = [cable for cable in lab.cables if cable.key != "cable"]
    defaults = {cable.interface.mac: cable.key_path for cable in cables if not cable.raw.mac}
    for cable in cables:
        mac = cable.raw.mac
        if mac in defaults:
            owner = entry_name(defaults[mac])
            yield (*cable.key_path, "mac"), f"{mac} is the default of {owner}; choose another or leave it out"


def _check_attachment(lab: Lab) -> _Mistakes:
    """Cables end at switches that exist, trunks at two of them, and splitters are in cables."""
    raw = lab.raw
    splitters = [(cable.port, (*cable.key_path, cable.key)) for cable in lab.cables if cable.key == "cable"]
    used = {port for port, _ in lab.ports()}
    for port, key_path in (*lab.ports(), *splitters):
        if port.switch in raw.learning_switches and not lab.can_be_attached(port, key_path):
            text = f"{port.switch!r} is a learning switch; only hosts can be attached to it"
            yield key_path, f"{text}; name a port of an OpenFlow switch"
        elif key_path[-1] == "cable":
            if port not in used:
                yield key_path, f"no cable ends at {port}; name a port with an attached machine"
        elif not lab.can_be_attached(port, key_path):
            learning = raw.learning_switches if key_path[0] == "hosts" else ()
            suggestion = suggest(port.switch, [*raw.switches, *learning], "switches")
            yield key_path, f"unknown switch {port.switch!r}; {suggestion}"
    for index, trunk in enumerate(raw.trunks):
        if trunk.from_.switch == trunk.to.switch:
            yield ("trunks", index), f"both ends are on {trunk.to.switch!r}; a trunk connects two switches"
    for name, tap in raw.taps.items():
        if bool(tap.port) == bool(tap.cable):
            text = "write either port (a switch port that sends copies) or cable (a cable with a splitter)"
            yield ("taps", name), text


def _check_interface_names(lab: Lab) -> _Mistakes:
    """Interfaces and the bridges of emulated switches can have their names."""
    for section in ("switches", "learning_switches"):
        for name in getattr(lab.raw, section):
            if len(name) > SWITCH_NAME_MAX:
                text = f"the name is longer than {SWITCH_NAME_MAX} characters, an interface's most; shorten it"
                yield (section, name), text
            elif name in RESERVED_INTERFACES:
                yield (section, name), "its bridge would have this name, which is reserved by Linux; rename it"
    for cable in lab.cables:
        name = cable.interface.name
        if len(name) > INTERFACE_NAME_MAX and cable.key != "cable":
            text = f"its interface would be named {name!r}, longer than {INTERFACE_NAME_MAX} characters"
            yield cable.key_path, f"{text}; shorten the name, or add 'interface: ...'"


def _check_twins(lab: Lab) -> _Mistakes:
    for switch in lab.network.switches:
        twin, key_path = switch.twin, ("switches", switch.name, "twin")
        if twin and switch.driver not in HARDWARE_DRIVERS:
            yield key_path, f"driver {switch.driver} has no twin; drivers that have one: {', '.join(HARDWARE_DRIVERS)}"
        if twin and twin.lag_min and twin.lag_max and twin.lag_min.ns > twin.lag_max.ns:
            yield (*key_path, "lag_min"), f"{twin.lag_min} is above lag_max, {twin.lag_max}"


def _check_networks(lab: Lab) -> _Mistakes:
    """The networks are apart, each host's addresses are in theirs, and that of control has one to spare."""
    network, control = lab.network, lab.network.control
    networks = {"world": network.world, "island": network.island}
    if network.world.overlaps(network.island):
        text = f"{network.island} overlaps the world's {network.world}; choose networks that do not"
        yield ("networks", "island"), text
    if control:
        for end, end_network in networks.items():
            if control.network.overlaps(end_network):
                text = f"{control.network} overlaps the {end} network {end_network}; choose a network of its own"
                yield (CONTROL, "network"), text
        networks[CONTROL] = control.network
        control_addresses = {host.control for host in network.in_band_hosts if host.control in control.network}
        usable = control.network.num_addresses - (2 if control.network.prefixlen < 31 else 0)
        if len(control_addresses) >= usable:
            text = f"hosts take all addresses of {control.network}, and the machine that runs atoll needs one"
            yield (CONTROL, "network"), f"{text}; choose a larger network"
    for host in network.hosts:
        end = "world" if host.role.is_world else "island"
        for key, name, address in (("ip", end, host.address), (CONTROL, CONTROL, host.control)):
            end_network = networks.get(name)
            if address is None or end_network is None:
                continue
            key_path = ("hosts", host.name, key)
            if address not in end_network:
                example = end_network[1] if end_network.num_addresses > 1 else end_network[0]
                text = f"{address} is outside the {name} network {end_network}; choose one inside, such as {example}"
                yield key_path, text
            elif end_network.prefixlen < 31 and address in (end_network.network_address, end_network.broadcast_address):
                yield (
                    key_path,
                    f"{address} is the network's own or its broadcast address; choose another of {end_network}",
                )


def _check_hosts(lab: Lab) -> _Mistakes:
    first_by_role: dict[HostRole, str] = {}
    for name, raw in lab.raw.hosts.items():
        key_path, role = ("hosts", name), raw.role.value
        first = first_by_role.setdefault(raw.role, name)
        if raw.role in _SINGLE_ROLES and first != name:
            yield (
                (*key_path, "role"),
                f"{lab.entry_with_line(('hosts', first))} already is the {role}; a lab has only one",
            )
        if raw.capacity is not None and raw.role is not HostRole.ISLAND_CLIENT:
            yield (*key_path, "capacity"), "only island clients have channels; remove it"
        if raw.control is not None and lab.raw.control is None:
            example = "{network: 192.168.10.0/24, port: SWITCH/PORT}"
            text = f"the lab has no in-band control; add a section 'control: {example}'"
            yield (*key_path, CONTROL), text
        if raw.control is not None and raw.role in _REPORTING_ROLES:
            text = f"results of the {role} would pass the network while it is measured"
            yield (*key_path, CONTROL), f"{text}; give it a second interface for control, and remove this key"


def _check_learning_switches(lab: Lab) -> _Mistakes:
    """No learning switch has hosts of both ends: their frames would not pass an OpenFlow switch."""
    for learning in lab.network.learning_switches:
        hosts = lab.network.hosts_behind(learning.name)
        host = next((host for host in hosts if host.role.is_world != hosts[0].role.is_world), None)
        if host:
            text = f"host {hosts[0].name!r} of the other end is behind {learning.name!r}, too; frames between hosts "
            text += "behind one learning switch pass no OpenFlow switch, so no chain would carry them; use another one"
            yield ("hosts", host.name, "port"), text


def _check_boxes(lab: Lab) -> _Mistakes:
    """Boxes have keys that fit their kind, and MTUs that fit each other."""
    for box in lab.network.boxes:
        key_path: KeyPath = ("boxes", box.name)
        for key, message in unfit_keys(box):
            yield (*key_path, key), message
        for key, message in unknown_placeholders(box.program) if box.program else ():
            yield (*key_path, "program", key), message
        sides = [(pair.world.mtu, pair.island.mtu) for pair in box.pairs]
        world, island = sides[0]
        if len(set(sides)) > 1:
            text = "its MTUs differ from those of the first pair; give both pairs the same MTUs"
            yield (*key_path, "spare"), text
        elif not box.routed and world != island:
            text = f"MTUs of {world} and {island} on both sides of a transparent box; write one mtu for the box"
            yield key_path, text


def _check_delay_boxes(lab: Lab) -> _Mistakes:
    """Each class has a tag on the trunk or two ports, and all legs have one MTU: frames pass between any of them."""
    for box in lab.network.delay_boxes:
        raw, key_path = lab.raw.delay_boxes[box.name], ("delay_boxes", box.name)
        has_ports = any(latency.world or latency.island for latency in raw.classes.values())
        if not box.trunk and not has_ports and lab.raw.switches:
            yield key_path, f"trunk is missing; add 'trunk: {lab.free_port(next(iter(lab.raw.switches)))}'"
        max_mtu = max((interface.mtu for interface in box.interfaces), default=MTU)
        for latency in box.classes:
            raw_class, class_path = raw.classes[latency.name], (*key_path, "classes", latency.name)
            is_set = [value is not None for value in (raw_class.vlan, raw_class.world, raw_class.island)]
            if is_set not in ([True, False, False], [False, True, True]):
                yield class_path, "write either vlan (a tag on the trunk), or world and island (two ports of its own)"
            elif raw_class.vlan is not None and box.trunk is None and has_ports:
                yield (*class_path, "vlan"), "its delay box has no trunk; add 'trunk: SWITCH/PORT' to it"
            if 2 * latency.jitter.ns > latency.rtt.ns:
                max_jitter = Duration(latency.rtt.ns // 2)
                text = f"{latency.jitter} exceeds the delay each way; at most half the rtt: {max_jitter}"
                yield (*class_path, "jitter"), text
            if latency.ports and (min_mtu := min(latency.ports.world.mtu, latency.ports.island.mtu)) < max_mtu:
                text = f"an MTU of {min_mtu}, and its delay box has one of {max_mtu}; write one mtu for the box"
                yield class_path, text


def _check_reachability(lab: Lab) -> _Mistakes:
    """Trunks connect every switch with the rest of the lab."""
    names = [switch.name for switch in lab.network.switches]
    ends = [(trunk.a.switch, trunk.b.switch) for trunk in lab.network.trunks]
    if not names or any(a == b or not {a, b} <= {*names} for a, b in ends):
        return  # a wrong trunk may be the one that is missing
    topology = Topology(names, lab.network.trunks)
    connected = max(map(topology.reachable, names), key=len)
    for name in names:
        if name in connected:
            continue
        unreachable = [
            machine
            for machine, interfaces in lab.network.machines.items()
            if name in {interface.attached.switch for interface in interfaces}
        ]
        consequence = f", so {', '.join(unreachable)} cannot be reached" if unreachable else ""
        example = f"{{from: {lab.free_port(name)}, to: {lab.free_port(min(connected))}, rate: 1 Gbit/s}}"
        text = f"no trunk connects it with the rest of the lab{consequence}; add one such as {example}"
        yield ("switches", name), text


_CHECKS = (
    _check_names,
    _check_uniqueness,
    _check_default_macs,
    _check_attachment,
    _check_interface_names,
    _check_twins,
    _check_networks,
    _check_hosts,
    _check_learning_switches,
    _check_boxes,
    _check_delay_boxes,
    _check_reachability,
)
