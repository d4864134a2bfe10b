# SPDX-License-Identifier: Apache-2.0
"""The laboratory as resolved from lab.yaml: valid, typed, frozen. No strings with units, no dangling names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from atoll_core.described import Described, settings_of
from atoll_core.lab.box_kind import EXTERNAL, LINK, PROGRAM, ROUTER, BoxKind, Forwarding
from atoll_core.lab.coder import CODER
from atoll_core.lab.pep import PEP
from atoll_core.lab.port_ref import PortRef
from atoll_core.lab.twin import TwinSettings
from atoll_core.metrics.metrics_schema import Measurement
from atoll_core.plan.plan import Privilege
from atoll_core.units import Duration, Rate, Size

MTU = 1500
"""The MTU of cables that declare none: Ethernet's (RFC 894)."""

BUILT_IN_KINDS = (LINK, ROUTER, PEP, CODER, PROGRAM, EXTERNAL)
"""The kinds of boxes that the JSON Schema of lab.yaml lists."""


def measurements_of_kinds() -> dict[str, Measurement]:
    """The metrics of all kinds of boxes that have any, by name."""
    measurements = (kind.measurement for kind in BoxKind.registered.values())
    return {measurement.name: measurement for measurement in measurements if measurement is not None}


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface in the experiment network and the OpenFlow port by which its frames enter the switches.

    ``mtu``: IP bytes of the longest packet, at both ends of the cable. ``behind``: the port of a learning switch at
    which its cable ends; ``attached`` is then the port of that switch's uplink. None: the cable ends at ``attached``.
    """

    name: str
    mac: str
    attached: PortRef
    mtu: int = MTU
    line: int = field(default=0, compare=False)  # of the MTU in the lab's file; 0: unknown
    behind: PortRef | None = None

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        return {"port": self.cable_end, "interface": self.name, "mac": self.mac, "mtu": self.mtu}

    @property
    def cable_end(self) -> PortRef:
        """The port at which its cable ends, of an OpenFlow switch or of a learning switch."""
        return self.behind or self.attached


@dataclass(frozen=True, slots=True)
class Switch(Described):
    """An OpenFlow switch; ``driver`` names its capability profile in switch-configs.

    ``twin``: in an emulated lab it behaves as the hardware of its driver, with these settings.
    """

    name: str
    dpid: int
    driver: str
    twin: TwinSettings | None = None


class HostRole(StrEnum):
    """The purpose of a host."""

    WORLD_SERVER = "world-server"
    WORLD_SPECIAL = "world-special"  # large transfer, ping series
    WORLD_WHISTLE = "world-whistle"
    ISLAND_CLIENT = "island-client"
    ISLAND_SPECIAL = "island-special"

    @property
    def is_world(self) -> bool:
        """Whether the host is at the world end of the chain."""
        return self.value.startswith("world-")


@dataclass(frozen=True, slots=True)
class Host:
    """An end host of the experiment network."""

    name: str
    role: HostRole
    address: IPv4Address
    interface: Interface
    capacity: float = 1.0  # of an island client: its part of the channels, relative to the others'
    control: IPv4Address | None = None  # of its interface, for in-band control; None: it has another one for control

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        keys = ("role", "control", *(["capacity"] if self.role is HostRole.ISLAND_CLIENT else []))
        return {"ip": self.address, **settings_of(self, *keys), **self.interface.described}


@dataclass(frozen=True, slots=True)
class Program:
    """A program that makes a machine a box; ``{world}`` and ``{island}`` in an argv are the interfaces' names.

    ``stop`` ends it (empty: it gets SIGTERM); ``report`` prints its statistics after a run (empty: none).
    ``privileges``: capabilities that all three keep. Emulated machines run them in the folder of the lab's file.
    ``needs``: other programs that it starts, each with how to get it. ``memory_max``: the most memory that each of its
    processes may write to; None: no limit.
    """

    start: tuple[str, ...]
    stop: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    privileges: tuple[Privilege, ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    memory_max: Size | None = None
    line: int = field(default=0, compare=False)  # of the lab's file; 0: unknown

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        return {**settings_of(self, "start", "stop", "report", "privileges", "memory_max"), "needs": dict(self.needs)}


@dataclass(frozen=True, slots=True)
class PortPair(Described):
    """The two interfaces by which frames pass a box."""

    world: Interface
    island: Interface


_NO_TIME = Duration(0)


@dataclass(frozen=True, slots=True)
class ChainBox:
    """A box of the satellite chain: one world-facing and one island-facing interface.

    ``spare``: a second pair of interfaces. Frames that enter by one pair leave by the same, so that two versions of a
    chain can pass a routed box at the same time. ``stateful``: connections break when their packets move to the other
    pair.
    ``settings``: as written in lab.yaml.
    ``conserves_packets``: as declared in lab.yaml; None: the kind's own, or not declared.
    ``conserves_payload``: TCP payload that has entered it arrives, in connections between the same two hosts.
    ``residence_max``: as declared in lab.yaml, of a foreign kind.
    """

    name: str
    kind: BoxKind
    world: Interface
    island: Interface
    spare: PortPair | None = None
    forwarding: Forwarding | None = None  # None: the kind's own
    stateful: bool = False
    program: Program | None = None
    conserves_packets: bool | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    conserves_payload: bool = True
    residence_max: Duration = _NO_TIME

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        foreign = ("forwarding", "stateful", "conserves_packets", "conserves_payload", "residence_max")
        keys = ("kind", "world", "island", "spare", "program", *(foreign if self.kind.is_foreign else ()))
        return {**settings_of(self, *keys), "settings": dict(self.settings)}

    def max_residence_ns(self, settings: Mapping[str, Any]) -> int:
        """The longest time for which it holds a packet with these settings; 0 of a link, which has its own."""
        return self.residence_max.ns if self.kind.is_foreign else self.kind.max_residence_ns(settings)

    @property
    def is_link(self) -> bool:
        """Whether it is a satellite link."""
        return self.kind.is_link

    @property
    def is_managed(self) -> bool:
        """Whether an agent sets it up and starts programs there."""
        return self.kind.is_managed

    @property
    def conserves(self) -> bool:
        """Whether packets leave unchanged, except those that the box counts as dropped.

        False for a box that does not declare it, so that its losses are not attributed to the testbed.
        """
        return bool(self.conserves_packets) if self.kind.is_foreign else self.kind.conserves_packets

    @property
    def ends_connections(self) -> bool:
        """Whether TCP connections end there. Of a stateful program or device of the user's that is assumed."""
        return self.kind.ends_connections or (self.kind.is_foreign and self.stateful)

    @property
    def properties(self) -> str:
        """Its kind and what it does with packets, in words."""
        properties = [self.kind.name, "routed" if self.routed else "transparent"]
        properties += ["ends connections"] if self.kind.ends_connections else []
        if self.kind.overhead_bytes:
            properties.append(f"adds {self.kind.overhead_bytes} bytes up to its pair, in {self.kind.encapsulates}")
        return ", ".join(properties)

    @property
    def routed(self) -> bool:
        """Whether packets leave in frames of the box's own, which carry no tag."""
        return (self.kind.forwarding or self.forwarding) is Forwarding.ROUTED

    @property
    def mtu(self) -> int:
        """IP bytes of the longest packet that passes both sides."""
        return min(self.world.mtu, self.island.mtu)

    @property
    def pairs(self) -> tuple[PortPair, ...]:
        """Its interface pairs: the first one, and the spare one if there is one."""
        first = PortPair(self.world, self.island)
        return (first, self.spare) if self.spare else (first,)


@dataclass(frozen=True, slots=True)
class LatencyClass:
    """A terrestrial latency a delay box can impose: half of ``rtt`` in each direction.

    Its frames have the tag ``vlan`` on the box's trunk. A class with ``ports`` has cables of its own instead: its
    frames are untagged, enter by one port and leave by the other. Its ``vlan`` is then a number above all VLAN ids, by
    which programs call its frames to the island; the next number is that of its frames to the world.
    """

    name: str
    vlan: int
    rtt: Duration
    jitter: Duration
    ports: PortPair | None = None
    reorder: bool = False  # whether packets may overtake each other through jitter

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        ends = self.ports.described if self.ports else {"world": None, "island": None}
        return {"vlan": self.tag, **ends, **settings_of(self, "rtt", "jitter", "reorder")}

    @property
    def tag(self) -> int | None:
        """The tag of its frames at the delay box; None: untagged."""
        return None if self.ports else self.vlan

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids by which programs call it: one, or one for each direction."""
        return (self.vlan, self.vlan + 1) if self.ports else (self.vlan,)


@dataclass(frozen=True, slots=True)
class DelayBox:
    """A box that delays the frames of each class: by VLAN on a trunk, or by pairs of ports. ``rate``: of each cable."""

    name: str
    trunk: Interface | None  # None: all classes have ports
    rate: Rate
    classes: tuple[LatencyClass, ...]

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        trunk = self.trunk.described if self.trunk else {}
        classes = {delay.name: delay.described for delay in self.classes}
        return {"trunk": trunk.pop("port", None), **trunk, "rate": self.rate, "classes": classes}

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        """All of them, the trunk first."""
        pairs = (leg for delay in self.classes if delay.ports for leg in (delay.ports.world, delay.ports.island))
        return (*((self.trunk,) if self.trunk else ()), *pairs)

    def ends(self, delay: LatencyClass) -> PortPair:
        """The interfaces of a class towards the world's hosts and towards the chain: on the trunk the same one."""
        if delay.ports:
            return delay.ports
        if self.trunk is None:  # descriptions are checked for this
            msg = f"delay box {self.name} has no trunk for class {delay.name}"
            raise ValueError(msg)
        return PortPair(self.trunk, self.trunk)


@dataclass(frozen=True, slots=True)
class Tap:
    """An observation point: frames copied to ``interface`` of the capture host ``host``.

    A ``physical`` tap is a splitter in a cable, which copies frames without a flow entry; ``interface.attached`` is
    the switch port at which that cable ends. ``to_island_only``: it gets no copies of frames to the world.
    """

    name: str
    host: str
    interface: Interface
    physical: bool = False
    to_island_only: bool = False

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        return {
            "host": self.host,
            "port": None if self.physical else self.interface.attached,
            "cable": self.interface.attached if self.physical else None,
            "interface": self.interface.name,
            "mac": self.interface.mac,
            "direction": "to_island" if self.to_island_only else "both",
        }


@dataclass(frozen=True, slots=True)
class Trunk:
    """A cable between two switches."""

    a: PortRef
    b: PortRef
    rate: Rate

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        return {"from": self.a, "to": self.b, "rate": self.rate}


@dataclass(frozen=True, slots=True)
class LearningSwitch(Described):
    """An ordinary switch, which forwards by MAC addresses: many hosts behind the OpenFlow port ``uplink``.

    ``rate``: of the cable between the two.
    """

    name: str
    uplink: PortRef
    rate: Rate


@dataclass(frozen=True, slots=True)
class Control(Described):
    """In-band control: how the daemon's machine reaches hosts with one interface, past the chain.

    ``network``: the addresses of both for that. ``port``: of the OpenFlow switch to which the daemon's machine is
    attached. ``arp``: whether they find each other by ARP; False: they have permanent neighbours.
    """

    network: IPv4Network
    port: PortRef
    arp: bool = True


CONTROL = "control"
"""The name of the daemon's machine in traces and drawings."""


@dataclass(frozen=True)  # without slots, for the cached properties
class Network:
    """The whole laboratory. Names are unique across hosts, boxes, delay boxes, taps, capture hosts and switches.

    Two networks are equal when they describe the same laboratory; the file's name is not compared.
    """

    name: str
    file: str = field(compare=False)
    world: IPv4Network
    island: IPv4Network
    switches: tuple[Switch, ...]
    trunks: tuple[Trunk, ...]
    hosts: tuple[Host, ...]
    boxes: tuple[ChainBox, ...]
    delay_boxes: tuple[DelayBox, ...]
    taps: tuple[Tap, ...]
    learning_switches: tuple[LearningSwitch, ...] = ()
    control: Control | None = None

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        sections = ("switches", "learning_switches", "hosts", "boxes", "delay_boxes", "taps")
        return {
            **settings_of(self, "name", "control"),
            "networks": settings_of(self, "world", "island"),
            "trunks": [entry.described for entry in self.trunks],
            **{key: {entry.name: entry.described for entry in getattr(self, key)} for key in sections},
        }

    @cached_property
    def world_hosts(self) -> tuple[Host, ...]:
        """Hosts at the world end, in the order of the description."""
        return tuple(host for host in self.hosts if host.role.is_world)

    @cached_property
    def island_hosts(self) -> tuple[Host, ...]:
        """Hosts at the island end, in the order of the description."""
        return tuple(host for host in self.hosts if not host.role.is_world)

    def with_role(self, role: HostRole) -> tuple[Host, ...]:
        """Hosts of one role, in the order of the description."""
        return tuple(host for host in self.hosts if host.role is role)

    @property
    def specials(self) -> "tuple[Host, Host] | None":
        """The hosts of transfer, ping series and UDP at the world and at the island end, if the lab has both."""
        world, island = self.with_role(HostRole.WORLD_SPECIAL), self.with_role(HostRole.ISLAND_SPECIAL)
        return (world[0], island[0]) if world and island else None

    def switch(self, name: str) -> Switch:
        """The switch of that name (KeyError otherwise)."""
        return {switch.name: switch for switch in self.switches}[name]

    def hosts_behind(self, learning_switch: str) -> tuple[Host, ...]:
        """The hosts behind a learning switch, in the order of the description."""
        behind = ((host, host.interface.behind) for host in self.hosts)
        return tuple(host for host, port in behind if port is not None and port.switch == learning_switch)

    @cached_property
    def in_band_hosts(self) -> tuple[Host, ...]:
        """Hosts whose control passes the experiment's switches, in the order of the description."""
        return tuple(host for host in self.hosts if host.control is not None)

    def host(self, name: str) -> Host:
        """The host of that name (KeyError otherwise)."""
        return self._hosts_by_name[name]

    def box(self, name: str) -> ChainBox:
        """The chain box of that name (KeyError otherwise)."""
        return {box.name: box for box in self.boxes}[name]

    def tap(self, name: str) -> Tap:
        """The tap of that name (KeyError otherwise)."""
        return {tap.name: tap for tap in self.taps}[name]

    @cached_property
    def machines(self) -> Mapping[str, tuple[Interface, ...]]:
        """Every machine that is not a switch, by name, with its interfaces at switch ports (capture hosts included).

        Those of physical taps are not among them.
        """
        machines: dict[str, tuple[Interface, ...]] = {}
        for host in self.hosts:
            machines[host.name] = (host.interface,)
        for box in self.boxes:
            machines[box.name] = tuple(interface for pair in box.pairs for interface in (pair.world, pair.island))
        for delay in self.delay_boxes:
            machines[delay.name] = delay.interfaces
        for tap in self.taps:
            machines[tap.host] = (*machines.get(tap.host, ()), *(() if tap.physical else (tap.interface,)))
        return machines

    @cached_property
    def _hosts_by_name(self) -> dict[str, Host]:
        return {host.name: host for host in self.hosts}
