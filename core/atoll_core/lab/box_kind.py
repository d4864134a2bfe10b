# SPDX-License-Identifier: Apache-2.0
"""The kinds of chain boxes. A kind is a declaration: other code asks its properties, and knows no kind by its name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address
from typing import Any, ClassVar

from atoll_core.codec import register_by_name
from atoll_core.metrics.metrics_schema import LINK_NS, Measurement, MetricField
from atoll_core.plan.plan import HostSettings, Privilege

Configuration = dict[str, Any]
"""The first line that the program of a box reads, as JSON."""


class Forwarding(StrEnum):
    """How a box forwards frames."""

    TRANSPARENT = "transparent"  # frames leave as they came, VLAN tag included
    ROUTED = "routed"  # packets leave in frames of the box's own, untagged


CALIBRATION_PORT = 5311
"""The UDP port of calibrations (docs/calibration.md). Not the one that `udp` of an experiment has by default."""

PEER_PORT = 1
"""The TCP port of connections between two boxes (``BoxKind.peer_setting``): tcpmux, which no host uses. The box at the
island connects, from this port or the next one."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The box to which a box keeps a connection, on its ``side``, and the connection's addresses at the two ends."""

    side: str
    world: str
    island: str


@dataclass(frozen=True, slots=True)
class BoxUse:
    """A box in an experiment, for the functions of its kind.

    ``legs``: the names of its interfaces, world and island, of the first pair and then of the spare one.
    ``settings``: resolved, quantities in base units. ``mtu``: IP bytes of the longest packet that all chains through
    the box carry. ``macs``: of its interfaces by name, and of all hosts by address. ``leg_mtus``: IP bytes of the
    longest packet on each leg, by name. ``tunnels``: of a kind that encapsulates, docs/box-kinds.md. ``peer``: of
    a box that keeps a connection to another one.
    """

    legs: tuple[tuple[str, str], ...]
    settings: Mapping[str, Any]
    world_hosts: tuple[IPv4Address, ...]
    island_hosts: tuple[IPv4Address, ...]
    mtu: int
    macs: Mapping[str, str]
    leg_mtus: Mapping[str, int]
    tunnels: tuple[Configuration, ...] = ()
    peer: Peer | None = None


def plain_configuration(use: BoxUse) -> Configuration:
    """The names of the box's interfaces as ``world`` and ``island``, its settings, and its ``tunnels``, if any."""
    (world, island), *_ = use.legs
    tunnels = {"tunnels": list(use.tunnels)} if use.tunnels else {}
    return {"world": world, "island": island, **use.settings, **tunnels}


@dataclass(frozen=True, slots=True)
class BoxKind:
    """The declaration of a kind of chain box; ``register`` makes it known to descriptions.

    ``forwarding``: None of a foreign program or device. Each box then declares in lab.yaml how it forwards, and whether
    it is stateful and conserves packets.
    ``stateful``: connections break when their packets bypass the box or use its other port pair.
    ``conserves_packets``: each packet leaves the box once and unchanged, or is counted as dropped. The box adds no
    packets and does not split, merge or encode any.
    ``is_link``: a satellite link, which has settings in the experiment and counts dropped packets.
    ``has_program``: its program is the user's. A foreign kind without one is a device, on which no agent runs.
    ``subcommand``: the subcommand of atoll-host that runs on the box while a chain contains it, with ``privileges``.
    ``configuration``: what that program reads.
    ``settings``: returns a subclass of ``atoll_core.description.raw_types.BoxSettings`` with a default for each;
    lab.yaml and experiment.yaml override them. None: boxes of the kind have no settings. Only routed kinds have any, as
    all can be switched to a plain router by ``mode: off``. A setting whose name ends with ``congestion_control`` is the
    kernel's name of one, which is checked to be available. ``buffer_max`` is the largest size of a socket's buffer.
    ``pair``: the kind with which it makes sense: a chain has as many boxes of one as of the other.
    ``ends_connections``: TCP connections end at the box, which opens others in their place. Its counter ``connections``
    has their number: a run in which it stays 0 although TCP connections passed the box's chains is invalid.
    ``settable``: the keys that its program takes by the request ``set`` while it runs: those of the configuration, and
    ``admit``, whether connections may begin (docs/contracts.md, "pep").
    ``encapsulates``: the protocol of its outer packets ("udp"), in which it and its pair carry the packets of others.
    The plan gives each pair addresses for them (``atoll_core.experiment.tunnels``).
    ``overhead_bytes``: the bytes that a packet is longer between the two, which reduce the MTU of hosts.
    ``redundancy``: of settings, the share by which packets of redundancy make the traffic of its chains towards the
    island larger, if the box is at the world's end of a pair. Descriptions whose links have less room are warned of.
    ``passes_tests``: it encapsulates no probes, no whistles and no packets of calibrations.
    ``peer_setting``: a setting and its value with which a box keeps a TCP connection to another box of its chain that
    has the same value.
    ``host_settings``: makes the settings of its machine from those of a plain router. They should not depend on the
    chains, so that a swap changes no machine that packets pass.
    ``max_residence_ns``: with these settings, the longest time from a packet's arrival at a box of the kind until it
    leaves, or until a packet leaves that recovers it. If the kind has a pair: from the first box of the two to the
    second one, without the links between them. Of a foreign kind each box declares its own.
    ``holding``: the levels that are 0 when a box holds no packet.
    ``counters``: sums that its program's counter lines and marks hold: metrics of the kind's name, figures of a run.
    ``levels``: numbers of the counter lines that are no sums, such as open connections: metrics alone.
    """

    name: str
    forwarding: Forwarding | None
    stateful: bool = False
    conserves_packets: bool = False
    is_link: bool = False
    has_program: bool = False
    subcommand: str = ""
    privileges: tuple[Privilege, ...] = ()
    settings: Callable[[], type[Any]] | None = None
    pair: str = ""
    ends_connections: bool = False
    settable: tuple[str, ...] = ()
    encapsulates: str = ""
    overhead_bytes: int = 0
    redundancy: Callable[[Mapping[str, Any]], float] | None = None
    passes_tests: bool = False
    peer_setting: tuple[str, Any] | None = None
    configuration: Callable[[BoxUse], Configuration] = plain_configuration
    host_settings: Callable[[HostSettings, BoxUse], HostSettings] | None = None
    max_residence_ns: Callable[[Mapping[str, Any]], int] = lambda _: 0
    holding: tuple[str, ...] = ()
    counters: tuple[MetricField, ...] = ()
    levels: tuple[MetricField, ...] = ()

    registered: ClassVar[dict[str, "BoxKind"]] = {}

    def __post_init__(self) -> None:
        if self.settings and self.forwarding is not Forwarding.ROUTED:
            msg = f"kind {self.name!r} has settings, and thus a mode, but cannot be a plain router: declare it routed"
            raise ValueError(msg)
        if self.ends_connections and not self.stateful:
            msg = f"kind {self.name!r} ends connections, which break when packets bypass it: declare it stateful"
            raise ValueError(msg)
        if self.ends_connections and self.conserves_packets:
            msg = f"kind {self.name!r} sends packets of its own: it cannot conserve packets"
            raise ValueError(msg)
        if self.overhead_bytes and not (self.encapsulates and self.pair):
            msg = f"kind {self.name!r} makes packets longer: declare what it encapsulates them in, and its pair"
            raise ValueError(msg)
        if not {*self.holding} <= {level.name for level in self.levels}:
            msg = f"kind {self.name!r} holds packets while {', '.join(self.holding)} are not 0: declare them as levels"
            raise ValueError(msg)
        if self.host_settings and not self.subcommand:
            msg = f"kind {self.name!r} has settings for its machine, which are for its program: declare its subcommand"
            raise ValueError(msg)

    @classmethod
    def named(cls, name: str) -> "BoxKind":
        """The registered kind of this name. Raises ValueError."""
        if name not in cls.registered:
            msg = f"unknown kind of box {name!r}"
            raise ValueError(msg)
        return cls.registered[name]

    def __str__(self) -> str:
        return self.name

    def described_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of a box in base units as in a description."""
        return self.settings().described(settings) if self.settings else dict(settings)

    @property
    def measurement(self) -> Measurement | None:
        """The metrics of its boxes, if it has any of its own."""
        if not self.counters and not self.levels:
            return None
        tags = (("box", "name of the box in lab.yaml"),)
        return Measurement(self.name, f"the program of a {self.name}", LINK_NS, tags, (*self.counters, *self.levels))

    @property
    def is_foreign(self) -> bool:
        """Whether the program or device is not this project's, so that each box has to declare its properties."""
        return self.forwarding is None

    @property
    def is_managed(self) -> bool:
        """Whether an agent sets it up and starts programs there."""
        return self.has_program or not self.is_foreign

    def keeps_peer(self, settings: Mapping[str, Any]) -> bool:
        """Whether a box with these settings keeps a connection to another one."""
        return self.peer_setting is not None and settings.get(self.peer_setting[0]) == self.peer_setting[1]


register_by_name(BoxKind, BoxKind.named)


def register(kind: BoxKind) -> BoxKind:
    """Make a kind known to descriptions; returns it."""
    BoxKind.registered[kind.name] = kind
    return kind


LINK = register(BoxKind("link", Forwarding.TRANSPARENT, conserves_packets=True, is_link=True))
"""A satellite emulator."""

ROUTER = register(BoxKind("router", Forwarding.ROUTED, conserves_packets=True))
"""A plain router in the place of a PEP or coder: sends with true MAC addresses."""

PROGRAM = register(BoxKind("program", None, has_program=True))
"""A machine that runs the user's program."""

EXTERNAL = register(BoxKind("external", None))
"""A device with two ports on which nothing is started: a modem, a hardware emulator."""
