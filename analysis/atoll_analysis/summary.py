# SPDX-License-Identifier: Apache-2.0
"""The figures of a run in summary.json, from which the verdict is judged and the report is made.

None means "not measured" (no tap, no transfer, cut short). Loss, queue, utilisation and rate are those of the
island-bound direction unless a key says otherwise. Queue and utilisation count what the link's rate counts (IP bytes,
or Ethernet frames); all other bytes are IP bytes.

A flow is one direction of a connection. Flows are counted towards the island: each connection of a channel is one.
"""

from typing import NotRequired, TypedDict

from atoll_analysis.figures.clock_drift import ClockFigures
from atoll_analysis.figures.concurrency import Concurrency
from atoll_analysis.figures.flow_classes import FlowClass, InitialWindow
from atoll_analysis.figures.loss_bursts import LossBursts
from atoll_analysis.figures.losses import LostFigures
from atoll_analysis.figures.regimes import RegimeFigures
from atoll_analysis.figures.standing_queue import StandingQueue
from atoll_analysis.figures.start_skew import StartFigures
from atoll_analysis.figures.udp import UdpFigures
from atoll_analysis.verdict.drop_report import LostOutside
from atoll_analysis.verdict.loss_agreement import Payload, Section
from atoll_analysis.verdict.silence import SilenceFigures


class LimitFigures(TypedDict):
    """The bounds of the verdict that the experiment set (atoll_core.experiment.experiment.VerdictBounds)."""

    lateness_p99_ms: float
    stall_ms: float
    stalled_share: float
    lateness_of_rtt: float
    failed_flows: float


class TerrestrialRtt(TypedDict):
    """A server's terrestrial RTT in ms: the RTT of the whole path without links and the lab's own delay."""

    configured: float
    measured: float
    tolerance: float  # what they may differ by


class Capture(TypedDict):
    """Completeness of one capture."""

    captured: int | None  # packets, as the capture counts them; None: it did not say
    dropped: int | None  # that its ring had no room for; None: it did not say
    unchecked: int | None  # of the captured, without the checksum that their sender left to hardware; None: likewise
    decoded: int | None  # packets in the file; None: there is no file
    other_frames: int  # not IPv4
    truncated: bool


class Volume(TypedDict):
    """Bytes that one host sent towards or received on the island."""

    goodput_bytes: int
    share: float  # of its role's total
    first_s: float | None  # from the start of the measurement; None: never seen
    last_s: float | None
    payload_first_s: float | None  # likewise, of new TCP payload
    payload_last_s: float | None


class SojournFigures(TypedDict):
    """Time in a queue.

    Of a link: of all packets, serialisation included (``boxes.Sojourn``); percentiles at most 1/16 too long. Of the
    ping series: RTT less base RTT, percentiles by linear interpolation.
    """

    mean_ms: float | None
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class LinkFigures(TypedDict):
    """One satellite link between the marks, island-bound but for ``*_to_world``."""

    chains: list[str]  # that ever pass it, by name
    rate_bit_s: int
    queue_bytes: int
    queue_max_bytes: int | None
    loss_bytes: int | None  # IP bytes dropped, whatever the cause
    losses: dict[
        str, LostFigures
    ]  # by cause (atoll_analysis.figures.losses.CAUSES), those that the backend tells apart
    sojourn: SojournFigures | None  # None: the backend does not measure it, or nothing was sent
    loss_fraction: float | None  # packets dropped of those that came
    loss_fraction_to_world: float | None
    losses_to_world: dict[str, LostFigures]
    idle_s: float | None  # the link had nothing to send
    queue_full_s: float | None  # 100 ms intervals in which a full-size packet would at some instant not have fitted
    windows_over_rate: (
        int | None
    )  # 100 ms windows captured at the output port; None: no capture, or no lateness to judge
    scheduled_windows_over_rate: int | None
    utilisation: float | None  # within the measurement


class ChainFigures(TypedDict):
    """Traffic of one chain towards the island, by its arrival capture and the version that was active at arrival."""

    carries: str  # "the rest", or whose traffic
    hops: list[str]  # of its last version
    arrival: str | None  # capture
    throughput_mbit_s: float | None
    goodput_mbit_s: float | None
    flows_completed: int
    mean_flow_bytes: float | None
    loss_bytes: int | None  # IP bytes between the captures world and island; None: not both, or the chains changed
    loss_fraction: float | None  # of packets, likewise


class ChangeFigures(TypedDict):
    """One scheduled change."""

    number: int  # from 1
    what: list[str]
    planned_s: float  # since the start of the measurement
    began_s: float | None  # None: not attempted
    lateness_ms: float | None
    turned_ms: float | None  # after it began: when packets had turned to the new version
    duration_s: float | None  # until the version before had drained and its entries were gone
    drain_s: float | None  # how much of this was the drain
    beyond_drain_ms: float | None
    failure: str | None


class EndedConnections(TypedDict):
    """TCP connections at a box that ends them."""

    counted: int  # by the box, established within the measurement
    completed: int  # of channels and transfer, by their clients, through chains that have the box in all versions


class Summary(TypedDict):
    """summary.json."""

    verdict: str  # atoll_analysis.verdict.findings.Verdict
    reasons: list[str]  # why it is invalid
    caveats: list[str]  # figures beyond a bound that the results must be read with
    notes: list[str]  # what could not be measured or judged, and why
    experiment: str
    run_dir: str
    seed: int
    cut_short: str | None  # how a run that did not complete ended: "cancelled at step measure"
    origin_ns: int  # where window 0 of the tables begins: the start of the measurement, CLOCK_REALTIME
    arrival: str | None  # the capture that counts as "has reached the island"
    duration_s: float | None  # of the measurement
    planned_s: float
    overhead_s: float | None  # wall time beyond the measurement
    drained: bool
    limits: LimitFigures
    clocks: ClockFigures | None  # None: the measurement did not end, or an older version made the run
    # latency
    terrestrial_rtt_ms: dict[str, TerrestrialRtt]
    base_rtt_ms: float | None
    rtt_max_ms: float | None
    ping_sojourn: SojournFigures | None  # None: no ping was answered, or the base RTT is unknown
    sojourn_max_ms: float | None  # the largest that a ping had; of all packets: links
    sojourn_bound_ms: float | None  # 8Q/R of all queues that a ping waits in, at their least rates; both directions
    sojourn_bound_to_island_ms: float | None  # those towards the island alone
    sojourn_bound_to_world_ms: float | None
    ping_sent: int
    ping_lost: int
    ping_planned: int | None  # within the measurement; None: no ping series
    ping_last_s: float | None  # when the last one that was answered was sent, from the start of the measurement
    ping_path_loss: float | None  # share of packets that the links of the ping series dropped, both directions
    ping_blocked_share: float  # of the measured time, at most: a link of their way was blocked by its trace
    base_rtt_shortest_ms: float | None  # of all paths, as configured
    ping_unsent: int | None  # refused by the kernel of the host that pings, and so lost; None: the job did not say
    ping_unstamped: int | None  # answered, with a stamp that is not the kernel's; None: likewise
    # link and queue
    bottleneck: str | None  # the slowest link's box; queue_max_bytes, utilisation and idle_s are its
    links: dict[str, LinkFigures]
    boxes: NotRequired[dict[str, dict[str, int]]]  # within the measurement; absent: no kind of box declares counters
    ended_connections: NotRequired[dict[str, EndedConnections]]  # of boxes that end connections; absent: none counts
    queue_max_bytes: int | None
    windows_over_rate: int | None  # of all links
    scheduled_windows_over_rate: int | None
    lateness_max_ms: float | None  # of link and delay boxes
    lateness_p99_ms: float | None
    stalls: int | None  # of link and delay boxes; None: lateness was not measured
    stalled_s: float | None  # how long all stalls together lasted
    overloaded: list[str]  # boxes that lost packets at their own sockets
    oversize_packets: int  # larger than the MTU, refused by links and delay boxes
    unknown_vlan_packets: int  # frames of no class, lost in delay boxes
    unread_packets: int  # lost at the boxes' own sockets
    unstamped_packets: int  # taken to have arrived when a box read them
    no_checksum_packets: int  # of senders that leave checksums to hardware: receivers discard them
    clamped_packets: int  # known to a box too late for their instants; their lateness counts from these
    clamped_max_ms: float
    idle_s: float | None
    queue_full_s: float | None
    standing_queue: StandingQueue | None  # of the bottleneck; None: its queue was not measured for a base RTT
    regime: RegimeFigures | None  # of the bottleneck; None: there is none
    # chains
    chains: dict[str, ChainFigures]  # by name; empty if one carries everything
    changes: list[ChangeFigures]
    # loss
    loss_bursts: dict[str, LossBursts]  # by link, of those between two captures
    stretches: list[Section]  # parts of the chains whose loss captures and links agree on, or do not
    payload: Payload | None  # None: packets are conserved between the captures world and island
    # between the captures world and island; None: boxes between them do not conserve packets, or a capture is missing
    loss_bytes_captures: int | None  # without the probes of scheduled changes, which taps may miss
    loss_bytes_link: int | None
    probed_bytes_max: int  # the most of loss_bytes_link that can be such probes
    loss_packets_captures: int | None
    loss_fraction: float | None
    tcp_payload_loss_bytes: int | None  # of all segments, those sent again included: what links lost of payload
    lost_outside: LostOutside | None  # outside the boxes, by kernels; None: not counted
    # traffic
    throughput_mbit_s: float | None
    goodput_mbit_s: float | None
    utilisation: float | None
    channels: int
    placement: dict[str, int]  # channels of each client
    start: StartFigures | None  # None: no client said when it began
    connections: int | None  # of the channels, however they ended, at the arrival capture; None: there is none
    flows_completed: int  # of the channels: all that was asked for came
    flows_cut: int  # by the end of the run
    flows_failed: int
    flows_silent: int | None  # of these, given up because nothing came for three minutes; None: not counted
    flows_failed_in_changes: int  # of these, while a change moved traffic to or from stateful boxes
    mean_flow_bytes: float | None  # TCP payload of the completed
    flow_classes: list[FlowClass]  # the channels' flows by size
    initial_window: InitialWindow | None  # None: there are no channels
    long_flows_mean: float | None  # open at once, larger than rate x base RTT of the bottleneck; None: not known
    concurrency: Concurrency | None  # None: no capture, or a measurement too short for it
    concurrent_flows_max: int | None  # connections of the channels open at the end of a 100 ms window
    fairness: float | None  # Jain's index over what channels completed of what they asked for, the least of the clients
    longest_wait_ms: float | None  # of a ready channel for its service, the most of the clients
    servers: dict[str, Volume]
    clients: dict[str, Volume]
    silences: list[SilenceFigures]  # of them, while something waited for them
    # Tries of the connections of all flows, at least, if none of them had payload; None: one had, or there was no flow.
    flow_tries: int | None
    path_loss: float  # the largest share of packets that the links of a chain lost, both directions, not while blocked
    # transfer
    transfer_bytes: int | None  # asked for
    transfer_room_s: float | None  # from its start to the end of the measurement, as planned
    transfer_received_bytes: int | None
    transfer_complete: bool | None
    transfer_tries: int | None  # of its connection, for certain, if nothing ever arrived; None: no transfer
    transfer_failure: str | None  # why it broke off, as its programs say
    transfer_s: float | None
    transfer_mbit_s: float | None
    # UDP; None: none was asked for
    udp: UdpFigures | None
    # quality of the captures
    captures: dict[str, Capture]
    whistles: dict[str, dict[str, bool]]  # capture: {"start": seen, "end": seen}
