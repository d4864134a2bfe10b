# SPDX-License-Identifier: Apache-2.0
"""The plan: the flow entries, host settings and jobs of an experiment, as one printable, comparable value."""

import re
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from atoll_core.experiment.traffic import ChannelAllocation
from atoll_core.plan.flow_entry import FlowEntry
from atoll_core.plan.tag_layout import UNTAGGED, Layout


class Privilege(StrEnum):
    """A capability, without its prefix CAP_."""

    NET_ADMIN = "net-admin"
    NET_RAW = "net-raw"
    NET_BIND_SERVICE = "net-bind-service"
    SYS_NICE = "sys-nice"
    IPC_LOCK = "ipc-lock"
    DAC_OVERRIDE = "dac-override"


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """An on-link route of an experiment interface. None: the interface's MTU, the kernel's windows."""

    prefix: str = field(metadata={"alone": True})
    mtu: int | None = None  # of packets to the prefix
    initial_window: int | None = None  # of TCP, in segments
    initial_receive_window: int | None = None
    quick_ack: bool = False  # every TCP segment is acknowledged at once


@dataclass(frozen=True, slots=True)
class InterfaceSettings:
    """The settings of one experiment interface on its machine.

    ``in_band``: the machine's control passes it, too. ARP stays on, and routes name the interface's address as source.
    """

    name: str
    mac: str
    address: str | None  # "10.10.0.1/32", or None
    routes: tuple[RouteSettings, ...]
    neighbours: tuple[tuple[str, str], ...]  # (IPv4 address, MAC address), permanent
    promiscuous: bool = False
    mtu: int = 1500
    in_band: bool = False


@dataclass(frozen=True, slots=True)
class PacketMark:
    """Some bits of a packet's firewall mark: those set in ``mask`` have the values in ``value``."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class LegPair:
    """A pair of legs of a routed box: packets that come in by one leave by the other."""

    world: str  # an interface's name
    island: str
    table: int | None = (
        None  # routing table of both interfaces' routes, for packets that arrive here; None: the main one
    )
    mark: PacketMark | None = None  # of packets that arrive here; a program's packets with this mark use the table
    accept_foreign: bool = False  # frames addressed to other machines are routed


@dataclass(frozen=True, slots=True)
class LocalDelivery:
    """Packets to the experiment's hosts that have the mark are delivered to this machine's sockets."""

    table: int  # a routing table of its own
    mark: PacketMark


class Packets(StrEnum):
    """The kind of packets that a rule is for. All are between hosts of the experiment."""

    ALL = "all"
    TCP = "tcp"
    SYN = "syn"  # the first of a TCP connection
    UDP = "udp"
    ICMP_ERRORS = "icmp-errors"  # from any router
    TCP_ICMP_ERRORS = "tcp-icmp-errors"  # those about TCP


class FilterVerdict(StrEnum):
    """The fate of a packet."""

    ACCEPT = "accept"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class PacketRule:
    """A rule for packets that arrive at a box. They are dropped or passed by the first rule with a verdict."""

    interfaces: tuple[str, ...]  # experiment interfaces; "lo": packets of programs that local delivery returns
    packets: Packets
    transparent_socket: bool = False  # only packets of a transparent socket of this machine
    mark: PacketMark | None = None  # only packets with this mark
    set_mark: PacketMark | None = None
    tproxy_port: int | None = None  # of a transparent listener, at 127.0.0.1 or any address
    verdict: FilterVerdict | None = None


TCP_RECEIVE_BUFFER, TCP_SEND_BUFFER = (4096, 131072), (4096, 16384)
"""Least and initial bytes, the kernel's defaults (tcp(7)); only the bound decides the throughput of a long path."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings that the agent makes on a machine, and reverts.

    On every experiment interface, offloads, IPv6 and reverse-path filtering are off. The rest is for boxes. It matches
    packets of experiment interfaces and hosts only; the agent refuses anything else.
    """

    host: str
    interfaces: tuple[InterfaceSettings, ...]
    sysctls: tuple[tuple[str, str], ...] = ()  # ("net.ipv4.tcp_rmem", "4096 131072 6291456")
    forwarding: bool | None = None  # by the kernel, of packets that arrive at experiment interfaces; None: unchanged
    legs: tuple[LegPair, ...] = ()
    local: LocalDelivery | None = None
    packet_rules: tuple[PacketRule, ...] = ()


class Backend(StrEnum):
    """The emulator of links and delay boxes."""

    ENGINE = "engine"  # atoll's own: exact, and reports its timing errors
    TC = "tc"  # the kernel's queueing disciplines, where it has netem


class Phase(StrEnum):
    """When a job runs."""

    SERVICE = "service"  # from apply to down: links, delay boxes
    CHECK = "check"  # configuration test before anything is measured
    CAPTURE = "capture"
    SERVER = "server"
    CLIENT = "client"
    WHISTLE = "whistle"
    TRANSFER_SERVER = "transfer-server"
    TRANSFER = "transfer"
    PING = "ping"
    REPORT = "report"  # after the load: statistics of the user's programs


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Resource limits of a job; None, and no CPUs: those of the agent. docs/contracts.md, "Limits"."""

    wall_ns: int | None = None  # since its start
    cpu_ns: int | None = None  # CPU time of a single process, counted in whole seconds
    memory_bytes: int | None = None
    data_bytes: int | None = None  # writable memory of a single process, also with a control group
    open_files: int | None = None  # file descriptors of a single process
    file_bytes: int | None = None  # size of any file that it writes
    nice: int | None = None  # niceness, 0 to 19
    cpus: tuple[int, ...] = ()  # the CPUs that it may run on
    follow_from: tuple[str, ...] = ()  # the settings that they are computed from, for people

    @property
    def requested(self) -> dict[str, Any]:
        """The limits that are set, as in a request to an agent."""
        limits = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "follow_from"}
        return {name: limit for name, limit in limits.items() if limit not in (None, ())}


UNLIMITED = JobLimits()

_RUN_FILE = re.compile(r"\{run\}/([\w./-]+)")


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One process that the agent starts on a host.

    ``argv``: ``{run}`` in it is replaced by the run directory; the first word is a program name (the platform knows the
    path of ``atoll-host``). ``config`` is sent as the first line of standard input, as JSON; None: a program that does
    not follow docs/contracts.md.
    ``stdout`` and ``stderr`` name files in the run directory, or None: JSON lines go to the daemon.
    """

    name: str
    host: str
    phase: Phase
    argv: tuple[str, ...]
    config: dict[str, Any] | None = field(default=None, hash=False)
    stdout: str | None = None
    stderr: str | None = None
    stop: tuple[str, ...] = ()  # command that ends it; empty: it gets SIGTERM
    limits: JobLimits = UNLIMITED
    privileges: tuple[Privilege, ...] = ()  # capabilities that it keeps

    @property
    def files(self) -> frozenset[str]:
        """The files that it writes, by their paths below the run directory."""
        texts = (*self.argv, *(text for text in (self.config or {}).values() if isinstance(text, str)))
        names = (name for text in texts for name in _RUN_FILE.findall(text))
        return frozenset({*names, *(text for text in (self.stdout, self.stderr) if text is not None)})


def terrestrial_allowance_ns(configured_ns: float) -> float:
    """The allowed deviation of a measured terrestrial RTT: processing by the lab itself, and 2 % of the RTT."""
    return 500_000 + 0.02 * configured_ns


@dataclass(frozen=True, slots=True)
class PathCheck:
    """A path tested before the run: RTT expected from the configuration, without the lab's own processing time."""

    src: str
    dst: str
    address: str
    rtt_ns: int  # links + latency class, both directions
    terrestrial_rtt_ns: int
    jitter_ns: int  # the largest effect of both directions' jitter on one RTT
    serialisation_ns: int = 0  # of a ping on all links, both directions; a token bucket lets one packet pass at once


@dataclass(frozen=True, slots=True)
class CapturePoint:
    """A capture: on ``interface`` of ``host`` into captures/<name>.pcap."""

    name: str  # "world", "island", a tap's; "link-<box>" and "into-<box>": a satellite emulator's ports
    host: str
    interface: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The configuration of switches, boxes and hosts for an experiment. Equal inputs give byte-identical JSON."""

    lab: str
    experiment: str
    flows: tuple[FlowEntry, ...]  # sorted by switch, priority descending, match
    hosts: tuple[HostSettings, ...]
    jobs: tuple[JobSpec, ...]
    captures: tuple[CapturePoint, ...]
    checks: tuple[PathCheck, ...]
    seed: int
    placement: tuple[ChannelAllocation, ...] = ()  # of the channels, by island client; empty: there are none
    layout: Layout = UNTAGGED  # tags in use on the switches; a swap starts from it
