# SPDX-License-Identifier: Apache-2.0
"""An experiment as resolved from experiment.yaml against its Network: valid, typed, frozen."""

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from itertools import groupby, pairwise
from typing import Any

from atoll_core.codec import tagged
from atoll_core.described import Described, FileName, changes, percent, settings_of
from atoll_core.experiment.traffic import FlowDirection, Load, Traffic, UdpTraffic, channels_by_client
from atoll_core.lab.box_kind import ROUTER
from atoll_core.lab.network import Host, HostRole, Network
from atoll_core.units import Duration, Rate, Size


class Counted(StrEnum):
    """The bytes of a packet that a link's rate and queue count."""

    IP = "ip"  # the IP packet, without its Ethernet header
    ETHERNET = "ethernet"  # the frame as captured: IP packet plus 14 bytes


class JitterShape(StrEnum):
    """The distribution of jitter around the delay."""

    UNIFORM = "uniform"
    NORMAL = "normal"
    PARETO = "pareto"


_MAX_DEVIATIONS = 4  # where the link cuts both tails, as netem does


@dataclass(frozen=True, slots=True)
class Jitter:
    """Variation of the propagation delay from packet to packet."""

    distribution: JitterShape
    amount: Duration  # half the width if uniform, else the standard deviation
    correlation: float = 0.0  # of a packet's jitter with that of the packet before, 0 to 1

    @property
    def bound(self) -> Duration:
        """The largest deviation from the delay."""
        return self.amount if self.distribution is JitterShape.UNIFORM else Duration(_MAX_DEVIATIONS * self.amount.ns)

    @property
    def described(self) -> Duration | dict[str, Any]:
        """As in a description; the amount alone if all else is usual."""
        if self == Jitter(JitterShape.UNIFORM, self.amount):
            return self.amount
        correlation = percent(self.correlation)
        return {"amount": self.amount, "distribution": self.distribution, "correlation": correlation}


class LossPoint(StrEnum):
    """The position of the loss relative to queue and transmitter."""

    AFTER = "after"  # at the receiver: a lost packet has used the link, as with noise and interference
    BEFORE = "before"  # at the input of the queue: a lost packet uses nothing


_UNRECORDED = {"unrecorded": LossPoint.BEFORE}  # the position in runs recorded before there was a choice


@tagged("Bernoulli")
@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Every packet is lost with the same probability, independently of the others."""

    probability: float
    where: LossPoint = field(default=LossPoint.AFTER, metadata=_UNRECORDED)

    @property
    def described(self) -> str | dict[str, Any]:
        """As in a description; the probability alone at the usual position."""
        probability = percent(self.probability)
        return probability if self.where is LossPoint.AFTER else {"probability": probability, "where": self.where}


@tagged("BitError")
@dataclass(frozen=True, slots=True)
class BitError:
    """Every bit is wrong with the same probability; a packet with a wrong bit is lost."""

    probability: float  # of one bit
    where: LossPoint = field(default=LossPoint.AFTER, metadata=_UNRECORDED)

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        return {"bit_error": self.probability, "where": self.where}

    def of_packet(self, counted_bytes: int) -> float:
        """The probability that a packet of this many counted bytes is lost."""
        if self.probability == 1:
            return 1.0
        return -math.expm1(8 * counted_bytes * math.log1p(-self.probability))


@tagged("GilbertElliott")
@dataclass(frozen=True, slots=True)
class GilbertElliott:
    """Bursty loss: a channel with a good and a bad state, which may change with every packet.

    Sources: Gilbert 1960, Elliott 1963.
    """

    good_to_bad: float
    bad_to_good: float
    loss_good: float = 0.0
    loss_bad: float = 1.0
    where: LossPoint = field(default=LossPoint.AFTER, metadata=_UNRECORDED)

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        shares = settings_of(self, "good_to_bad", "bad_to_good", "loss_good", "loss_bad")
        percents = {key: percent(share) for key, share in shares.items()}
        return {"model": "gilbert-elliott", **percents, "where": self.where}

    @property
    def mean(self) -> float:
        """The share of lost packets in the long run; a channel that never changes is good."""
        change_rate = self.good_to_bad + self.bad_to_good
        bad_share = self.good_to_bad / change_rate if change_rate else 0.0
        return bad_share * self.loss_bad + (1 - bad_share) * self.loss_good


@tagged("LossTrace")
@dataclass(frozen=True, slots=True)
class LossTrace:
    """The fate of each packet in turn; the trace repeats at its end."""

    file: str = field(compare=False)
    lost: tuple[bool, ...]
    where: LossPoint = field(default=LossPoint.AFTER, metadata=_UNRECORDED)

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        return {"trace": FileName(self.file, self.lost), "where": self.where}


@tagged("Codel")
@dataclass(frozen=True, slots=True)
class Codel:
    """Controlled delay (RFC 8289) instead of drop-tail."""

    target: Duration  # acceptable standing sojourn time
    interval: Duration  # how long a longer one is accepted; about the longest round-trip time

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        return {"codel": settings_of(self, "target", "interval")}


@tagged("Red")
@dataclass(frozen=True, slots=True)
class Red:
    """Random early detection (Floyd and Jacobson 1993) instead of drop-tail."""

    min: Size  # of the average queue; below it nothing is dropped
    max: Size  # of the average queue; above it everything is
    probability: float  # of a drop as the average comes near max
    weight: float  # of the present queue in the moving average

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        return {"red": {**settings_of(self, "min", "max", "weight"), "probability": percent(self.probability)}}


@dataclass(frozen=True, slots=True)
class LowPriority(Described):
    """A second queue for packets marked LE (RFC 8622), which the transmitter serves while the first one is empty."""

    queue: Size
    queue_packets: int | None = None  # also a limit in packets


Loss = Bernoulli | BitError | GilbertElliott | LossTrace


def mean_loss(loss: Loss, counted_bytes: int) -> float:
    """The share of packets of this many counted bytes that is lost in the long run."""
    match loss:
        case Bernoulli(probability):
            return probability
        case BitError():
            return loss.of_packet(counted_bytes)
        case GilbertElliott():
            return loss.mean
        case LossTrace(_, lost):
            return sum(lost) / len(lost)


Aqm = Codel | Red


@dataclass(frozen=True, slots=True)
class TraceRow:
    """The state of a link direction from ``t`` on; None: as configured."""

    t: Duration  # since the load began
    rate: Rate | None = None
    delay: Duration | None = None
    loss: float | None = None  # probability of each packet, after the queue
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class LinkTrace:
    """A link direction as a function of time: each row applies until the next one, the last one until the end.

    The first row is at 0 and also applies before the load starts. Times ascend strictly. docs/traces.md
    """

    file: str = field(compare=False)
    rows: tuple[TraceRow, ...]

    @property
    def described(self) -> FileName:
        """As in a description."""
        return FileName(self.file, self.rows)

    @property
    def blockages(self) -> int:
        """How often the link is blocked; rate and delay may change meanwhile."""
        return sum(blocked for blocked, _ in groupby(row.blocked for row in self.rows))


@dataclass(frozen=True, slots=True)
class LinkDirection:
    """One direction of a satellite link: byte queue or two, serialisation, loss, propagation.

    ``rate`` and ``queue`` are upper bounds: no row of a trace has a higher rate, and an AQM can only drop earlier.
    """

    rate: Rate
    delay: Duration  # one way
    queue: Size
    jitter: Jitter | None = None
    queue_packets: int | None = None  # also a limit in packets
    reorder: bool = False  # whether packets may overtake each other through jitter
    loss: Loss | None = None
    aqm: Aqm | None = None  # None: drop-tail
    trace: LinkTrace | None = None
    low_priority: LowPriority | None = None  # None: packets marked LE wait with the others

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        queues = settings_of(self, "rate", "delay", "queue", "queue_packets", "low_priority", "aqm")
        return {**queues, **settings_of(self, "jitter", "reorder", "loss", "trace")}

    @property
    def rate_at_start(self) -> Rate:
        """The rate until the load begins."""
        first = self.trace.rows[0].rate if self.trace else None
        return first or self.rate

    @property
    def delay_at_start(self) -> Duration:
        """The delay until the load begins."""
        first = self.trace.rows[0].delay if self.trace else None
        return self.delay if first is None else first

    @property
    def full_queue(self) -> Duration:
        """The time in which a full queue empties, at the least rate of the direction, pauses excepted."""
        rates = [self.rate.bit_s, *(row.rate.bit_s for row in (self.trace.rows if self.trace else ()) if row.rate)]
        return Duration(8 * self.queue.bytes * 10**9 // min(rate for rate in rates if rate))

    @property
    def longest_pause(self) -> Duration:
        """The longest time for which the trace blocks the direction, without a blockage that never ends."""
        begin: Duration | None = None
        longest = 0
        for row in self.trace.rows if self.trace else ():
            if row.blocked or (row.rate is not None and not row.rate.bit_s):
                begin = begin or row.t
            elif begin is not None:
                longest, begin = max(longest, row.t.ns - begin.ns), None
        return Duration(longest)

    @property
    def delays(self) -> tuple[Duration, Duration]:
        """The least and the greatest delay the direction ever has."""
        delays = [self.delay if row.delay is None else row.delay for row in self.trace.rows] if self.trace else []
        return min(delays, default=self.delay), max(delays, default=self.delay)


DIRECTIONS = ("to_island", "to_world")
"""The directions of a link, as in experiment.yaml, counters and figures."""


@dataclass(frozen=True, slots=True)
class Link:
    """Settings of one satellite emulator."""

    box: str
    to_island: LinkDirection
    to_world: LinkDirection
    counts: Counted
    line: int = field(default=0, compare=False)  # in the experiment's file; 0: unknown

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        return settings_of(self, *DIRECTIONS, "counts")


@dataclass(frozen=True, slots=True)
class BoxConfiguration:
    """The settings of one box, all that its kind has; quantities in base units."""

    box: str
    settings: tuple[tuple[str, Any], ...]
    line: int = field(default=0, compare=False)  # of its buffer_max or redundancy in the experiment's file; 0: unknown

    @property
    def is_off(self) -> bool:
        """Whether the box is a plain router in this experiment."""
        return dict(self.settings).get("mode") == "off"


class Protocol(StrEnum):
    """A transport protocol that a chain may be chosen by."""

    ICMP = "icmp"
    TCP = "tcp"
    UDP = "udp"

    @property
    def number(self) -> int:
        """As in the IPv4 header (IANA, Assigned Internet Protocol Numbers)."""
        return {"icmp": 1, "tcp": 6, "udp": 17}[self.value]


@dataclass(frozen=True, slots=True)
class TrafficSelector(Described):
    """The traffic of a chain, in both directions: packets between these prefixes, of this protocol; None: any.

    It has no port numbers: later fragments of a packet have none, and would take another chain.
    """

    world: IPv4Network | None = None
    island: IPv4Network | None = None
    protocol: Protocol | None = None

    @property
    def precedence(self) -> int:
        """The precedence, 0 to 2177, where several chains match a packet: the highest one carries it.

        A protocol comes before any prefix, a longer island prefix before a shorter one, then a longer world prefix.
        Equal precedence means equal or disjoint traffic.
        """
        world, island = (0 if prefix is None else prefix.prefixlen for prefix in (self.world, self.island))
        return 33 * 33 * (self.protocol is not None) + 33 * island + world

    def __str__(self) -> str:
        ends = (("world", self.world), ("island", self.island))
        parts = [f"{end} {prefix}" for end, prefix in ends if prefix]
        parts += [self.protocol.value.upper()] if self.protocol else []
        return ", ".join(parts) or "the rest"

    def matches(self, world: IPv4Address, island: IPv4Address, protocol: Protocol | None) -> bool:
        """Whether it selects packets between two hosts; ``protocol`` None: a protocol that Protocol does not name."""
        return (
            (self.world is None or world in self.world)
            and (self.island is None or island in self.island)
            and (self.protocol is None or self.protocol is protocol)
        )


MAIN = "main"  # the name of the chain that carries the traffic of no branch


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain: boxes and taps in order from world to island, and the traffic that passes them."""

    name: str
    hops: tuple[str, ...]
    carries: TrafficSelector = TrafficSelector()
    line: int = field(default=0, compare=False)  # of the experiment's file; 0: unknown

    @property
    def described(self) -> dict[str, Any]:
        """As in a description of a branch."""
        return {"carries": self.carries.described, "chain": self.hops}


@dataclass(frozen=True, slots=True)
class TcpSettings:
    """Settings that decide a TCP result; pinned on every host for the run, recorded, restored."""

    congestion_control: str  # kernel's name
    ecn: bool
    buffer_max: Size  # upper bound of send and receive buffers
    servers: tuple[tuple[str, str], ...] = ()  # (world server, congestion control), every server at most once
    initial_window: int | None = None  # segments; None: the kernel's
    quick_ack: bool = False  # no delayed acknowledgements
    sack: bool = True
    slow_start_after_idle: bool = True
    hystart: bool = True
    pacing: bool = False  # of the servers' segments, with any congestion control
    lines: tuple[tuple[str, int], ...] = field(default=(), compare=False)  # of keys in the experiment's file

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        keys = ("initial_window", "quick_ack", "sack", "slow_start_after_idle", "hystart", "pacing")
        common = settings_of(self, "congestion_control", "ecn", "buffer_max", *keys)
        return {**common, "servers": dict(self.servers)}


ONLY_TRANSFER = "transfer"
"""The name of the transfer that is described by the key ``transfer``."""


@dataclass(frozen=True, slots=True)
class Transfer(Described):
    """A fixed-size download from a world host to an island host, or upload, once or repeatedly."""

    size: Size
    start: Duration  # after the channels started
    tool: str  # "atoll" or "iperf3"
    port: int
    congestion_control: str | None = None  # None: that of every host
    write_rate: Rate | None = None  # the most that the sender sends
    write_chunk: Size | None = None  # as of Traffic
    name: str = ONLY_TRANSFER
    sender: str | None = None  # None: the special host of its side, for a download the world's
    receiver: str | None = None  # None: likewise
    every: Duration | None = None  # from one start to the next; None: there is one
    chain: str | None = None  # that carries it, as the description says; None: it does not say
    direction: FlowDirection = FlowDirection.DOWNLOAD
    line: int = field(default=0, compare=False)  # of its size in the experiment's file; 0: unknown

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        keys = ("size", "start", "every", "chain", "tool", "port", "congestion_control", "write_rate", "write_chunk")
        direction = {"direction": self.direction} if self.is_upload else {}
        return {**settings_of(self, *keys), **direction, "from": self.sender, "to": self.receiver}

    @property
    def is_upload(self) -> bool:
        """Whether the island's host sends."""
        return self.direction is FlowDirection.UPLOAD

    @property
    def key_path(self) -> tuple[str, ...]:
        """Where it is described."""
        return (self.name,) if self.name == ONLY_TRANSFER else ("transfers", self.name)

    def starts(self, end: Duration) -> int:
        """The number of starts before an instant of the run, those included that a longer transfer leaves out."""
        window_ns = max(0, end.ns - self.start.ns)
        return -(-window_ns // self.every.ns) if self.every else int(window_ns > 0)

    def job(self, end: str) -> str:
        """The name of its job at the end ``send`` or ``receive``."""
        return f"transfer-{end}" if self.name == ONLY_TRANSFER else f"transfer-{end}-{self.name}"

    @property
    def client_job(self) -> str:
        """The name of the job of the island's host, which connects, and times the transfer."""
        return self.job("send" if self.is_upload else "receive")

    @property
    def server_job(self) -> str:
        """The name of the job of the world's host, which listens."""
        return self.job("receive" if self.is_upload else "send")

    @property
    def world(self) -> str | None:
        """The world's host; None: the special server."""
        return self.receiver if self.is_upload else self.sender

    @property
    def island(self) -> str | None:
        """The island's host; None: the special host."""
        return self.sender if self.is_upload else self.receiver

    def ends(self, network: Network) -> tuple[Host, Host]:
        """Its host of the world and its host of the island. The lab has both special hosts."""
        world = network.host(self.world) if self.world else network.with_role(HostRole.WORLD_SPECIAL)[0]
        return world, network.host(self.island) if self.island else network.with_role(HostRole.ISLAND_SPECIAL)[0]


@dataclass(frozen=True, slots=True)
class PingSeries(Described):
    """Pings from the world's special server to the island's special host during the whole run."""

    interval: Duration
    line: int = field(default=0, compare=False)  # of the interval in the experiment's file; 0: unknown


@dataclass(frozen=True, slots=True)
class CaptureSettings(Described):
    """How packets are captured, at every tap and link."""

    snap: Size  # of each frame
    buffer: Size  # the kernel's ring of each capture


DEFAULT_CAPTURES = CaptureSettings(Size(96), Size(16 * 10**6))
"""Ethernet, VLAN, IPv4 and TCP headers with options; a second of 1500-byte frames at 1 Gbit/s."""


@dataclass(frozen=True, slots=True)
class VerdictBounds:
    """The bounds of the verdict that an experiment may set: a run beyond one of them is invalid.

    A stall is a period in which packets left a link or delay box late, by more than ``stall``: it lasts from the
    earliest scheduled to the latest actual departure of late packets that overlap.
    """

    lateness_p99: Duration  # of departures from link and delay boxes
    stall: Duration  # departures later than this belong to a stall
    stalled_share: float  # of the measured time, all stalls together
    lateness_of_rtt: float  # any departure, as a share of the shortest base RTT; ``stall`` where that is longer
    failed_flows: float  # share of the channels' flows

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        shares = settings_of(self, "stalled_share", "lateness_of_rtt", "failed_flows")
        return {**settings_of(self, "lateness_p99", "stall"), **{key: percent(share) for key, share in shares.items()}}


DEFAULT_LIMITS = VerdictBounds(Duration(10**6), Duration(5 * 10**6), 0.001, 0.1, 0.1)


@dataclass(frozen=True, slots=True)
class SteeringVersion:
    """Chains, latencies, load and links from an instant of the run on, until the next version.

    Load and links are those of the experiment if no change names them.
    """

    at: Duration  # since the load began
    chain: Chain
    branches: tuple[Chain, ...]
    latency: tuple[tuple[str, str], ...]
    line: int = field(default=0, compare=False)  # of the change in the experiment's file; 0: unknown
    traffic: Traffic | None = None
    udp_rate: Rate | None = None
    links: tuple[Link, ...] = ()

    @property
    def described(self) -> dict[str, Any]:
        """All that a change may change, as in the description of an experiment."""
        return {
            "chain": self.chain.hops,
            "branches": {branch.name: branch.described for branch in self.branches},
            "links": {link.box: link.described for link in self.links},
            "latency": dict(self.latency),
            "traffic": self.traffic.described if self.traffic else {},
            "udp": {"rate": self.udp_rate} if self.udp_rate else {},
        }

    def change_from(self, previous: "SteeringVersion") -> dict[str, Any]:
        """The change that makes this version of the one before it, as in a description."""
        old, new = previous.described, self.described
        old_groups, new_groups = (described["traffic"].pop("groups", {}) for described in (old, new))
        links = {
            link: {name: part for name in DIRECTIONS if (part := changes(old["links"][link][name], directions[name]))}
            for link, directions in new["links"].items()
        }
        groups = {name: part for name in new_groups if (part := changes(old_groups[name], new_groups[name]))}
        parts = {
            **changes({"chain": old["chain"]}, {"chain": new["chain"]}),
            **{key: changes(old[key], new[key]) for key in ("branches", "latency", "traffic", "udp")},
            "links": {link: directions for link, directions in links.items() if directions},
        }
        if groups:
            parts["traffic"]["groups"] = groups
        return {"at": self.at, **{key: part for key, part in parts.items() if part != {}}}


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment: its chains, links, latencies, load and duration. Those that changes alter are as at the start.

    ``at`` is the experiment at an instant of the run, ``states`` that of every version in turn; ``links_over_time`` are
    its links as functions of time.
    ``file`` and ``lab`` are paths as in messages; they are not compared.
    ``schedule``: every version of the steering, the first one first; empty if it never changes.
    ``given``: settings of the command line (``--set``): the key, and the setting as in messages.
    """

    name: str
    file: str = field(compare=False)
    lab: str = field(compare=False)
    seed: int
    duration: Duration
    chain: Chain
    links: tuple[Link, ...]
    latency: tuple[tuple[str, str], ...]  # (world host, latency class), every host at most once
    traffic: Traffic
    transfer: Transfer | None
    ping: PingSeries
    tcp: TcpSettings
    branches: tuple[Chain, ...] = ()  # chains that carry part of the traffic; the rest takes ``chain``
    schedule: tuple[SteeringVersion, ...] = ()
    udp: UdpTraffic | None = None
    captures: CaptureSettings = DEFAULT_CAPTURES
    limits: VerdictBounds = DEFAULT_LIMITS
    boxes: tuple[BoxConfiguration, ...] = ()  # of every box whose kind has settings
    transfers: tuple[Transfer, ...] = ()  # those with names; empty if there is ``transfer``
    given: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def versions(self) -> tuple[SteeringVersion, ...]:
        """Every version of the steering during the run, the first one first."""
        return self.schedule or (SteeringVersion(Duration(0), self.chain, self.branches, self.latency),)

    def described(self, network: Network) -> dict[str, Any]:
        """As in a description, without the name of the lab's file. ``network`` has the kinds of the boxes."""
        kinds = {box.box: network.box(box.box).kind for box in self.boxes}
        begin = replace(self.versions[0], links=self.links)
        return {
            **settings_of(self, "name", "seed", "duration"),
            **begin.described,
            "boxes": {box.box: kinds[box.box].described_settings(dict(box.settings)) for box in self.boxes},
            "changes": [version.change_from(previous) for previous, version in pairwise(self.schedule)],
            **settings_of(self, "traffic", "transfer", "udp", "ping", "captures", "tcp", "limits"),
            "transfers": {transfer.name: transfer.described for transfer in self.transfers},
        }

    def at(self, instant: Duration) -> "Experiment":
        """The experiment at an instant of the run: as it would be if chains, latencies, load and links stayed so."""
        current = (version for version in reversed(self.versions) if version.at <= instant)
        return self._with(next(current, self.versions[0]))

    def _with(self, version: SteeringVersion) -> "Experiment":
        return replace(
            self,
            chain=version.chain,
            branches=version.branches,
            latency=version.latency,
            traffic=version.traffic or self.traffic,
            udp=self.udp and replace(self.udp, rate=version.udp_rate or self.udp.rate),
            links=version.links or self.links,
            schedule=(),
        )

    @property
    def states(self) -> tuple["Experiment", ...]:
        """The experiment at the beginning of every version."""
        return tuple(map(self._with, self.versions))

    @property
    def steering(self) -> tuple[Chain, tuple[Chain, ...], tuple[tuple[str, str], ...]]:
        """Chains and latencies, which the switches have."""
        return self.chain, self.branches, self.latency

    @property
    def all_transfers(self) -> tuple[Transfer, ...]:
        """Every transfer, in the order of the description."""
        return (self.transfer,) if self.transfer else self.transfers

    @property
    def flow_directions(self) -> frozenset[FlowDirection]:
        """The directions of flows and transfers."""
        loads = [load for traffic in self.loads for load in traffic.loads if load.channels]
        udp = [FlowDirection.DOWNLOAD] if self.udp else []
        return frozenset([*(each.direction for each in (*loads, *self.all_transfers)), *udp])

    @property
    def has_uploads(self) -> bool:
        """Whether any flow or transfer is one."""
        return FlowDirection.UPLOAD in self.flow_directions

    @property
    def loads(self) -> tuple[Traffic, ...]:
        """The load of every version."""
        return tuple(version.traffic or self.traffic for version in self.versions)

    @property
    def max_channels(self) -> int:
        """The largest number of channels of any version."""
        return max(load.total_channels for load in self.loads)

    @property
    def first_load(self) -> Traffic:
        """The load of the first version that has channels; without any, that of the start."""
        return next((load for load in self.loads if load.total_channels), self.traffic)

    def allocated_channels(self, network: Network) -> tuple[dict[str, tuple[Load, tuple[int, ...]]], ...]:
        """The load of each island client and the numbers of its channels, in the lab's order, for every version."""
        capacities = {host.name: host.capacity for host in network.with_role(HostRole.ISLAND_CLIENT)}
        return tuple(channels_by_client(load, capacities) for load in self.loads)

    @property
    def mean_udp_rate(self) -> Rate:
        """The rate of UDP over the whole run; 0 without UDP."""
        rates = [state.udp.rate if state.udp else Rate(0) for state in self.states]
        ends = [*(version.at.ns for version in self.versions[1:]), self.duration.ns]
        spans = [end - version.at.ns for version, end in zip(self.versions, ends, strict=True)]
        return Rate(sum(rate.bit_s * span for rate, span in zip(rates, spans, strict=True)) // self.duration.ns)

    @property
    def links_over_time(self) -> tuple[Link, ...]:
        """The links, with a trace for each direction that changes: of its rate and delay in every version.

        The queue of such a direction is the largest that it has, the rate the highest.
        """
        links_of_versions = [version.links or self.links for version in self.versions]
        return tuple(
            replace(
                link,
                to_island=self._over_time([links[index].to_island for links in links_of_versions]),
                to_world=self._over_time([links[index].to_world for links in links_of_versions]),
            )
            for index, link in enumerate(self.links)
        )

    def _over_time(self, directions: list[LinkDirection]) -> LinkDirection:
        if len(set(directions)) == 1:
            return directions[0]
        rows = (TraceRow(version.at, d.rate, d.delay) for version, d in zip(self.versions, directions, strict=True))
        return replace(
            directions[0],
            rate=max(direction.rate for direction in directions),
            queue=max(direction.queue for direction in directions),
            trace=LinkTrace("changes", tuple(rows)),
        )

    @property
    def all_chains(self) -> tuple[Chain, ...]:
        """Every chain of every version, equal ones once, in order of time, the main one of each first."""
        return tuple(dict.fromkeys(chain for version in self.versions for chain in (version.chain, *version.branches)))

    @property
    def chains(self) -> tuple[Chain, ...]:
        """Every chain, in order of precedence; ``chain``, which carries the rest, is the last."""
        return (*sorted(self.branches, key=lambda chain: -chain.carries.precedence), self.chain)

    def carrier(self, world: IPv4Address, island: IPv4Address, protocol: Protocol | None = None) -> Chain:
        """The chain that carries packets between two hosts, in both directions."""
        return next(chain for chain in self.chains if chain.carries.matches(world, island, protocol))

    def udp_ends(self, network: Network) -> tuple[Host, tuple[Host, ...]] | None:
        """The sender and the receivers of UDP; None: there is no UDP, or the lab has no special hosts."""
        if self.udp is None or network.specials is None:
            return None
        world, island = network.specials
        in_turn = self.udp.receivers == "clients"
        return world, network.with_role(HostRole.ISLAND_CLIENT) if in_turn else (island,)

    def as_used(self, network: Network) -> Network:
        """The lab as this experiment uses it: boxes with ``mode: off`` are plain routers."""
        off = {box.box for box in self.boxes if box.is_off}
        boxes = (replace(box, kind=ROUTER, stateful=False) if box.name in off else box for box in network.boxes)
        return replace(network, boxes=tuple(boxes)) if off else network

    def link(self, box: str) -> Link:
        """The satellite emulator of that name over the whole run (KeyError otherwise)."""
        return {link.box: link for link in self.links_over_time}[box]

    def congestion_control(self, host: str) -> str:
        """The congestion control of a host's sockets, but for those of transfers."""
        return dict(self.tcp.servers).get(host, self.tcp.congestion_control)

    def transfer_congestion_control(self, transfer: Transfer) -> str:
        """The congestion control of a transfer."""
        return transfer.congestion_control or self.tcp.congestion_control

    @property
    def congestion_controls(self) -> dict[str, tuple[str, ...]]:
        """Every congestion control that the experiment names, and the keys of the description that name it."""
        keys_and_controls = [("tcp.congestion_control", self.tcp.congestion_control)]
        keys_and_controls += [(f"tcp.servers.{server}", control) for server, control in self.tcp.servers]
        keys_and_controls += [
            (".".join((*transfer.key_path, "congestion_control")), transfer.congestion_control)
            for transfer in self.all_transfers
            if transfer.congestion_control
        ]
        keys_and_controls += [
            (f"boxes.{box.box}.{key}", str(setting))
            for box in self.boxes
            for key, setting in box.settings
            if key.endswith("congestion_control") and not box.is_off
        ]
        keys_by_control: dict[str, tuple[str, ...]] = {}
        for key, control in keys_and_controls:
            keys_by_control[control] = (*keys_by_control.get(control, ()), key)
        return keys_by_control
