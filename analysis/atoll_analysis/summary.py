# SPDX-License-Identifier: Apache-2.0
"""The figures of a run in summary.json, from which the verdict is judged and the report is made.

The comment of each key is its meaning in the reference that `atoll results` prints (summary_keys).
"""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, cast

from atoll_analysis.figures.clocks import ClockFigures, StartFigures
from atoll_analysis.figures.flow_packets import FlowPackets
from atoll_analysis.figures.flows import Concurrency, FlowClass, InitialWindow
from atoll_analysis.figures.loss_bursts import LossBursts
from atoll_analysis.figures.regimes import RegimeFigures
from atoll_analysis.figures.standing_queue import StandingQueue
from atoll_analysis.figures.transfers import SINGLE_TRANSFER_KEYS, TransferFigures
from atoll_analysis.figures.udp import UdpFigures
from atoll_analysis.tables.box_counters import LostFigures, LowPriorityFigures, SojournFigures
from atoll_analysis.tables.directions import TO_ISLAND, Direction
from atoll_analysis.verdict.duplicate_addresses import DuplicateAddress
from atoll_analysis.verdict.flow_shares import ShareTest
from atoll_analysis.verdict.host_heat import HostHeat
from atoll_analysis.verdict.imported import ImportedFigures
from atoll_analysis.verdict.loss_agreement import Payload, Section
from atoll_analysis.verdict.lost_outside import LostOutside
from atoll_analysis.verdict.silence import SilenceFigures
from atoll_core.experiment.experiment import DEFAULT_LIMITS, ONLY_TRANSFER, VerdictBounds


class LimitFigures(TypedDict):
    """The bounds of the verdict that the experiment set (`limits` of experiment.yaml)."""

    lateness_p99_ms: float  # 99th percentile of the lateness
    stall_ms: float  # lateness from which a box counts as stalled
    stalled_share: float  # share of the measurement that stalls may last
    lateness_of_rtt: float  # largest lateness as a share of the base RTT
    failed_flows: float  # share of flows that may fail


class TerrestrialRtt(TypedDict):
    """A server's terrestrial RTT: that of its path without the satellite links and the delay of the lab itself."""

    configured: float  # in ms, as configured
    measured: float  # in ms, as measured before the run
    tolerance: float  # in ms, the most by which the two may differ
    # in ms, the typical difference between an RTT of the lab itself and the least; large on a busy machine. Absent from
    # runs of earlier versions
    scatter: NotRequired[float]


class Capture(TypedDict):
    """Completeness of one capture."""

    captured: int | None  # packets that the capture counted; None: it reported no count
    dropped: int | None  # packets that it had no buffer for; None: it reported no count
    unchecked: int | None  # captured packets whose sender left the checksum to hardware; None: it reported no count
    decoded: int | None  # packets in the file; None: there is no file
    other_frames: int  # frames that are not IPv4, and packets of in-band control
    truncated: bool  # the file ends within a packet


class Volume(TypedDict):
    """Traffic in one direction that one host sent or received."""

    goodput_bytes: int  # new TCP payload from or to the host
    share: float  # its share in the total of all hosts of its role
    first_s: float | None  # first packet, from the start of the measurement; None: there was none
    last_s: float | None  # last packet, likewise
    payload_first_s: float | None  # first packet with new TCP payload, likewise
    payload_last_s: float | None  # last packet with new TCP payload, likewise
    goodput_mbit_s: NotRequired[float | None]  # new TCP payload over the measurement; None: nothing was measured
    # share of the TCP payload in the capture `world` that is missing in `island`, segments sent again included; absent
    # for servers, and where `tcp_payload_loss_bytes` is None
    loss_fraction: NotRequired[float]


class LinkFigures(TypedDict):
    """One satellite link within the measurement, in the direction to the island except ``*_to_world``.

    Those in `to_world` of the summary are of the direction to the world.
    """

    chains: list[str]  # names of the chains that pass the link at any time
    rate_bit_s: int  # configured rate; of a rate that changes the highest one
    mean_rate_bit_s: int | None  # mean of the rate within the measurement; None: nothing was measured
    least_rate_bit_s: int | None  # lowest rate within the measurement; None: likewise
    queue_bytes: int  # configured capacity of the queue
    queue_max_bytes: int | None  # most bytes in the queue; None: not measured
    mean_packet_bytes: NotRequired[float | None]  # mean size of the packets that came; None: not counted
    loss_bytes: int | None  # dropped IP bytes, whatever the cause; None: not counted
    losses: dict[str, LostFigures]  # losses by cause, those that the backend tells apart
    sojourn: SojournFigures | None  # time in the queue; None: the backend does not measure it, or no packet was sent
    loss_fraction: float | None  # dropped packets as a share of those that came; None: not counted
    # the same in the direction to the world; absent in `to_world`
    loss_fraction_to_world: NotRequired[float | None]
    losses_to_world: NotRequired[dict[str, LostFigures]]  # losses by cause in the direction to the world; likewise
    idle_s: float | None  # time in which the link had nothing to send; None: not measured
    # total of the intervals in which the queue was full by the table `queue`; None: not measured
    queue_full_s: float | None
    # 100 ms windows in which the capture behind the link has more than the link's rate; None: no capture, or lateness
    # was not measured
    windows_over_rate: int | None
    # 100 ms windows in which the box scheduled more departures than the rate allows; None: not counted
    scheduled_windows_over_rate: int | None
    utilisation: float | None  # share of the link's capacity that was used within the measurement; None: not measured


def limit_figures(limits: VerdictBounds) -> LimitFigures:
    """Return the bounds of an experiment as the summary has them."""
    return LimitFigures(
        lateness_p99_ms=limits.lateness_p99.ms,
        stall_ms=limits.stall.ms,
        stalled_share=limits.stalled_share,
        lateness_of_rtt=limits.lateness_of_rtt,
        failed_flows=limits.failed_flows,
    )


def mean_rate_bit_s(link: LinkFigures) -> int:
    """The mean rate of a link within the measurement; for runs analysed by older versions the highest rate."""
    return link.get("mean_rate_bit_s") or link["rate_bit_s"]


def least_rate_bit_s(link: LinkFigures) -> int:
    """The lowest rate of a link within the measurement; for runs analysed by older versions the highest rate."""
    return link.get("least_rate_bit_s") or link["rate_bit_s"]


class ChainFigures(TypedDict):
    """Traffic of one chain towards the island, by its arrival capture and the version that was active at arrival.

    Those in `to_world` of the summary are of the traffic towards the world.
    """

    carries: str  # `the rest`, or the traffic that the chain carries
    hops: list[str]  # boxes of its last version
    arrival: str | None  # capture where its packets count as arrived; None: there is none
    throughput_mbit_s: float | None  # IP bytes that arrived, over the measurement; None: no capture
    goodput_mbit_s: float | None  # new TCP payload that arrived, over the measurement; None: no capture
    flows_completed: int  # completed flows of channels
    mean_flow_bytes: float | None  # mean TCP payload of these; None: there is none
    # IP bytes lost between the captures `world` and `island`; None: a capture is missing, or the chains changed
    loss_bytes: int | None
    loss_fraction: float | None  # share of packets lost between these captures; None: likewise


class GroupFigures(TypedDict):
    """Traffic of one group of clients that have a load of their own (`traffic.groups` of experiment.yaml)."""

    clients: list[str]  # its clients
    channels: int  # channels that the experiment asks for; if they change, the most of them
    flows_completed: int  # flows that received all requested bytes, or uploads that the server confirmed
    flows_cut: int  # flows that the end of the run interrupted
    flows_failed: int  # flows that failed
    mean_flow_bytes: float | None  # mean TCP payload of the completed flows; None: no flow was completed
    # new TCP payload that reached the clients, or of uploads the world, over the measurement, without transfers; None:
    # no capture there, or nothing was measured
    goodput_mbit_s: float | None
    flow_classes: list[FlowClass]  # flows by size


class ChangeFigures(TypedDict):
    """One scheduled change."""

    number: int  # number of the change, from 1
    what: list[str]  # what it changes, a line each
    planned_s: float  # planned time, from the start of the measurement
    began_s: float | None  # when it began; None: it was not attempted
    lateness_ms: float | None  # how much later than planned it began; None: it was not attempted
    turned_ms: float | None  # time from its begin until all packets took the new version; None: not known
    # time from its begin until the entries of the old version were deleted; None: not completed
    duration_s: float | None
    drain_s: float | None  # the part of this time that was the drain; None: no drain
    beyond_drain_ms: float | None  # time of the change beyond its drain; None: not completed
    failure: str | None  # error that ended it; None: no error


class EndedConnections(TypedDict):
    """TCP connections at a box that ends them."""

    kind: str  # of the box; runs analysed by older versions do not have it
    counted: int  # connections established within the measurement, as the box counts them
    # flows of channels and transfers that were completed through chains that always have the box, as their clients
    # count them
    completed: int


class ControlPackets(TypedDict):
    """Packets of one direction."""

    packets: int  # packets, with those that were sent again
    bytes: int  # bytes of their frames


class ControlTraffic(TypedDict):
    """Packets of in-band control of all its hosts together, ARP included."""

    hosts: int  # hosts that have in-band control
    seconds: float  # time between the readings of the counters, which a hardware switch updates every 20 s by default
    to_hosts: ControlPackets  # from the machine that runs atoll
    to_daemon: ControlPackets  # from the hosts


class ToWorldFigures(TypedDict):
    """The direction to the world, of runs with uploads: keys of the summary, of this direction."""

    arrival: str | None  # the capture whose packets count as arrived in the world; None: there is none
    bottleneck: str | None  # name of the slowest link's box; None: no link
    links: dict[str, LinkFigures]  # figures of each satellite link, by the name of its box
    queue_max_bytes: int | None  # most bytes in the queue of the slowest link; None: not measured
    idle_s: float | None  # time in which the slowest link had nothing to send; None: not measured
    queue_full_s: float | None  # time in which its queue was full; None: not measured
    loss_fraction: float | None  # share of packets that the slowest link dropped; None: not counted
    utilisation: float | None  # share of the slowest link's capacity that was used; None: not measured
    # standing queue of the slowest link; None: its queue was not measured for a base RTT
    standing_queue: StandingQueue | None
    regime: RegimeFigures | None  # regime of the slowest link; None: there is no link
    chains: dict[str, ChainFigures]  # traffic of each chain by its name; empty if one chain carries everything
    loss_bursts: dict[str, LossBursts]  # bursts of lost packets by link, of links between two captures
    # bursts of packets that stayed lost behind coders, by chain; empty: no chain has coders alone
    residual_bursts: dict[str, LossBursts]
    # parts of the chains between two captures, from island to world: whether captures and links count the same losses
    stretches: list[Section]
    # TCP payload at both ends of the chains; None: all boxes between the captures conserve packets
    payload: Payload | None
    # IP bytes in the capture `island` that are missing in `world`; None: a box between them does not conserve packets,
    # or a capture is missing
    loss_bytes_captures: int | None
    loss_bytes_link: int | None  # IP bytes that the links between these captures count as dropped; None: not counted
    loss_packets_captures: int | None  # packets in `island` that are missing in `world`; None: likewise
    # TCP payload that is missing in the capture `world`, segments sent again included; None: likewise
    tcp_payload_loss_bytes: int | None
    throughput_mbit_s: float | None  # IP bytes that reached the world, over the measurement; None: no capture there
    goodput_mbit_s: float | None  # new TCP payload that reached the world, over the measurement; None: no capture there
    flow_packets: dict[str, FlowPackets]  # packets and rates of the connections that upload; empty: there are none
    # mean number of uploads open at once that are larger than the bandwidth-delay product; None: not known
    long_flows_mean: float | None
    servers: dict[str, Volume]  # traffic to each world server, by name
    clients: dict[str, Volume]  # traffic of each island client, by name


class Summary(TypedDict):
    """The whole of summary.json.

    If the run was imported from captures, the keys that `imported` lists are null, whatever their type says.
    Loss, queue, utilisation, rate and goodput are those of the direction to the island unless a key says otherwise;
    `to_world` has those of the other one. Queue and
    utilisation count what the link's rate counts (IP packets or Ethernet frames); all other bytes are IP bytes. Each
    connection of a channel is one flow.
    """

    # origin and clocks of an imported run, which also lists the keys that are null; absent: not imported
    imported: NotRequired[ImportedFigures]
    verdict: str  # `valid`, `valid with caveats` or `invalid`
    reasons: list[str]  # why the run is invalid, a sentence each
    reason_codes: list[str]  # the code of each reason, in the same order
    caveats: list[str]  # figures beyond a bound, which the results must be read with, a sentence each
    caveat_codes: list[str]  # the code of each caveat, in the same order
    notes: list[str]  # what could not be measured or judged, and why, a sentence each
    experiment: str  # name of the experiment
    settings: dict[str, Any]  # settings of the experiment as texts, in the shape of experiment.yaml, the unset left out
    run_dir: str  # the run directory
    seed: int  # seed of the run
    cut_short: str | None  # how a run that did not complete ended (`cancelled at step measure`); None: it completed
    origin_ns: int  # start of the measurement, CLOCK_REALTIME: window 0 of the tables begins here
    arrival: str | None  # the capture whose packets count as arrived on the island; None: there is none
    duration_s: float | None  # duration of the measurement; None: it did not begin or end
    planned_s: float  # duration that the experiment asks for
    overhead_s: float | None  # wall time of the run beyond the measurement; None: not known
    drained: bool  # all packets had left the chain when the run ended
    limits: LimitFigures  # bounds of the verdict that the experiment set
    # steps and drifts of clocks; None: the measurement did not end, or an older version made the run
    clocks: ClockFigures | None

    # latency

    terrestrial_rtt_ms: dict[str, TerrestrialRtt]  # terrestrial RTTs by server
    base_rtt_ms: float | None  # RTT of the pings' path without any queue; None: not measured
    rtt_max_ms: float | None  # largest RTT of a ping; None: no ping was answered
    # time that pings waited in queues; None: no ping was answered, or the base RTT is unknown
    ping_sojourn: SojournFigures | None
    sojourn_max_ms: float | None  # longest time that a ping waited in queues (of all packets: `links`)
    # time that all full queues of the pings' path can add to an RTT, at their lowest rates, both directions together
    sojourn_bound_ms: float | None
    sojourn_bound_to_island_ms: float | None  # the part of this bound that is to the island
    sojourn_bound_to_world_ms: float | None  # the part of this bound that is to the world
    ping_sent: int  # pings sent within the measurement
    ping_lost: int  # pings without an answer
    ping_planned: int | None  # pings that the measurement has room for; None: no ping series
    # when the last answered ping was sent, from the start of the measurement; None: none was answered
    ping_last_s: float | None
    # share of packets that the links of the pings' path dropped, both directions; None: not known
    ping_path_loss: float | None
    # upper bound of the share of the measurement in which a trace blocked a link of the pings' path
    ping_blocked_share: float
    base_rtt_shortest_ms: float | None  # shortest base RTT of all paths, as configured; None: there are no paths
    ping_unsent: int | None  # pings that the kernel of the sending host refused; they count as lost; None: not counted
    ping_unstamped: int | None  # answered pings without a time stamp of the kernel; None: not counted

    # link and queue

    # name of the slowest link's box; queue, utilisation and idle time in this object are that link's; None: no link
    bottleneck: str | None
    links: dict[str, LinkFigures]  # figures of each satellite link, by the name of its box
    # counters that kinds of boxes declare, by box, within the measurement; absent: no kind declares any
    boxes: NotRequired[dict[str, dict[str, int]]]
    # connections at boxes that end them, by box; absent: no box counts them
    ended_connections: NotRequired[dict[str, EndedConnections]]
    queue_max_bytes: int | None  # most bytes in the queue of the slowest link; None: not measured
    # 100 ms windows of all links in which captures show more than the link's rate; None: not judged
    windows_over_rate: int | None
    # 100 ms windows in which boxes scheduled more departures than the link's rate allows; None: not counted
    scheduled_windows_over_rate: int | None
    lateness_max_ms: float | None  # largest lateness of a departure from link and delay boxes; None: not measured
    lateness_p99_ms: float | None  # 99th percentile of the lateness, of the box where it is largest; None: not measured
    # stalls of link and delay boxes: times in which packets were due and none left; None: lateness was not measured
    stalls: int | None
    stalled_s: float | None  # total time of these stalls; None: likewise
    overloaded: list[str]  # boxes that lost packets at their own sockets
    oversize_packets: int  # packets larger than the MTU, which link and delay boxes refused
    unknown_vlan_packets: int  # frames without a latency class, which delay boxes dropped
    unread_packets: int  # packets lost at the sockets of the boxes
    # packets without an arrival time from the kernel; the time at which the box read them counts
    unstamped_packets: int
    no_checksum_packets: int  # packets whose sender left the checksum to hardware: receivers discard them
    # packets that a box received too late to send them at their instant; their lateness counts from then
    clamped_packets: int
    clamped_max_ms: float  # the most by which such a packet was too late
    idle_s: float | None  # time in which the slowest link had nothing to send; None: not measured
    # the same, of the slowest link
    queue_full_s: float | None
    # standing queue of the slowest link; None: its queue was not measured for a base RTT
    standing_queue: StandingQueue | None
    regime: RegimeFigures | None  # regime of the slowest link; None: there is no link

    # chains

    chains: dict[str, ChainFigures]  # traffic of each chain by its name; empty if one chain carries everything
    changes: list[ChangeFigures]  # scheduled changes in their order

    # loss

    low_priority: dict[str, LowPriorityFigures]  # low-priority queues by link, of links that have one
    loss_bursts: dict[str, LossBursts]  # bursts of lost packets by link, of links between two captures
    # bursts of packets that stayed lost behind coders, by chain: those that the captures `world` and `island` show;
    # absent: no chain has coders and no other box that changes packets
    residual_bursts: NotRequired[dict[str, LossBursts]]
    # parts of the chains between two captures: whether captures and links count the same losses
    stretches: list[Section]
    # TCP payload at both ends of the chains; None: all boxes between the captures conserve packets
    payload: Payload | None
    # IP bytes in the capture `world` that are missing in `island`, probes of changes left out; None: a box between
    # them does not conserve packets, or a capture is missing
    loss_bytes_captures: int | None
    loss_bytes_link: int | None  # IP bytes that the links between these captures count as dropped; None: not counted
    probed_bytes_max: int  # upper bound of the bytes of probes of changes in `loss_bytes_link`
    # packets in the capture `world` that are missing in `island`; None: as `loss_bytes_captures`
    loss_packets_captures: int | None
    loss_fraction: float | None  # share of packets to the island that the slowest link dropped; None: not counted
    # TCP payload that is missing in the capture `island`, segments sent again included; None: as `loss_bytes_captures`
    tcp_payload_loss_bytes: int | None
    lost_outside: LostOutside | None  # packets that kernels dropped outside the boxes; None: not counted
    # addresses of hosts that captures show with the MAC address of another machine, too; absent: none
    duplicate_addresses: NotRequired[list[DuplicateAddress]]
    # files that are missing, or other than when the run ended, a line each; absent: none
    damaged_files: NotRequired[list[str]]
    # heat and load of machines, by name; absent: of no machine is anything known
    host_heat: NotRequired[dict[str, HostHeat]]
    # packets of in-band control during the measurement; absent: no host has it, or a switch did not tell
    in_band_control: NotRequired[ControlTraffic]

    # traffic

    throughput_mbit_s: float | None  # IP bytes that reached the island, over the measurement; None: no capture there
    # new TCP payload that reached the island, over the measurement; None: no capture there
    goodput_mbit_s: float | None
    utilisation: float | None  # share of the slowest link's capacity that was used; None: not measured
    channels: int  # channels that the experiment asks for; if they change, the most of them
    placement: dict[str, int]  # channels of each client
    start: StartFigures | None  # when the clients' programs began; None: no client reported it
    connections: int | None  # connections of the channels at the island, however they ended; None: no capture there
    # flows of the channels that received all requested bytes, or uploads that the server confirmed
    flows_completed: int
    flows_cut: int  # flows that the end of the run interrupted
    flows_failed: int  # flows that failed
    flows_failed_by: NotRequired[dict[str, int]]  # failed flows by the name of the error, the most frequent first
    # failed flows that were given up because nothing came for three minutes; None: not counted
    flows_silent: int | None
    flows_failed_in_changes: int  # failed flows that failed while a change moved traffic to or from stateful boxes
    mean_flow_bytes: float | None  # mean TCP payload of the completed flows; None: no flow was completed
    # packets and rates of the channels' connections at the island: of `all`, and of those to 40 MB (`to 40 MB`);
    # absent: no capture there, or an older version analysed the run
    flow_packets: NotRequired[dict[str, FlowPackets]]
    flow_classes: list[FlowClass]  # flows of the channels by size
    # groups of clients by name, `rest` has the clients in no other group; absent: all clients have the same load, or
    # the run was imported
    groups: NotRequired[dict[str, GroupFigures]]
    initial_window: InitialWindow | None  # flows that fit into the initial window of TCP; None: there are no channels
    # mean number of flows open at once that are larger than the bandwidth-delay product; None: not known
    long_flows_mean: float | None
    concurrency: Concurrency | None  # open connections over time; None: no capture, or the measurement is too short
    concurrent_flows_max: int | None  # most connections open at the end of a 100 ms window; None: no capture
    # Jain's index over the share of its demand that each channel completed, of the client where it is lowest; None:
    # not known
    fairness: float | None
    # longest time that a channel with a flow to begin waited for its program; None: not known
    longest_wait_ms: float | None
    servers: dict[str, Volume]  # traffic of each world server, by name
    clients: dict[str, Volume]  # traffic of each island client, by name
    # flows by server (`servers`) and by client (`clients`), compared with equal shares; a role with one host or without
    # flows is left out; absent: an older version analysed the run
    flow_shares: NotRequired[dict[str, ShareTest]]
    silences: list[SilenceFigures]  # hosts from which nothing came while something waited for them
    # least number of connection attempts of all flows, if none of them received payload; None: one did, or there was
    # no flow
    flow_tries: int | None
    # largest share of packets that the links of a chain dropped, both directions, times of blocked links left out
    path_loss: float

    # transfers; the keys after the first one are those of the only transfer, and None if there are several

    transfers: NotRequired[dict[str, TransferFigures]]  # by name, which is `transfer` for the key `transfer`
    transfer_bytes: int | None  # size of the transfer that the experiment asks for; None: no transfer
    # planned time from the start of the transfer to the end of the measurement; None: no transfer
    transfer_room_s: float | None
    transfer_received_bytes: int | None  # bytes of the transfer that its receiver got; None: no transfer, or not known
    transfer_complete: bool | None  # the transfer was received in full; None: no transfer, or not known
    transfer_tries: int | None  # least number of attempts of its connection, if nothing arrived; None: no transfer
    transfer_failure: str | None  # error of the transfer's programs; None: no error
    transfer_s: float | None  # time that the transfer took, of several the median; None: it did not complete
    transfer_mbit_s: float | None  # rate of the transfer; None: it did not complete
    udp: UdpFigures | None  # UDP traffic; None: the experiment has none
    to_world: NotRequired[ToWorldFigures]  # figures of the direction to the world; absent: there are no uploads

    # quality of the captures

    captures: dict[str, Capture]  # completeness of each capture, by name
    whistles: dict[str, dict[str, bool]]  # by capture, whether it has the whistle packets of `start` and `end`


def of_direction(summary: Summary, direction: Direction) -> Mapping[str, Any]:
    """Return the figures of a direction, by the keys that both have; empty if the run has none of it."""
    return summary if direction is TO_ISLAND else summary.get("to_world", {})


def transfers_of(summary: Summary) -> dict[str, TransferFigures]:
    """Return the transfers by name; of a run that an older version analysed the only one, without its downloads."""
    if "transfers" in summary:
        return summary["transfers"]
    if summary["transfer_bytes"] is None:
        return {}
    known = {name: summary.get(f"transfer_{key}") for key, name in SINGLE_TRANSFER_KEYS.items()}
    unknown: dict[str, Any] = {"sender": "", "receiver": "", "chains": [], "downloads": [], "skipped": 0}
    return {ONLY_TRANSFER: cast("TransferFigures", {**unknown, **known})}


def bounds(summary: Summary) -> LimitFigures:
    """Return the bounds of a run's verdict; for runs analysed by older versions the usual ones."""
    return summary.get("limits") or limit_figures(DEFAULT_LIMITS)
