# SPDX-License-Identifier: Apache-2.0
"""experiment.yaml as it is written: one class for each mapping. ``resolve_experiment`` makes an Experiment of it."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from atoll_core.description.raw_link import RawDirection, RawDirectionChange
from atoll_core.description.raw_traffic import (
    CHUNK_WITHOUT_RATE,
    RawTraffic,
    RawTrafficChange,
    RawUdp,
    RawUdpChange,
    WriteChunk,
    WriteRate,
)
from atoll_core.description.raw_types import (
    Between,
    BufferSize,
    CongestionControl,
    Key,
    Name,
    Prefix,
    Raw,
    Share,
)
from atoll_core.experiment.experiment import DEFAULT_CAPTURES, DEFAULT_LIMITS, Counted, Protocol
from atoll_core.experiment.traffic import FlowDirection
from atoll_core.units import Duration, Size

SHORTEST_RUN, LONGEST_RUN = "1 s", "168 h"

RunTime = Annotated[Duration, Between(Duration, SHORTEST_RUN, LONGEST_RUN)]
Start = Annotated[Duration, Between(Duration, "0 s", LONGEST_RUN)]
ChangeTime = Annotated[Duration, Between(Duration, "1 ms", LONGEST_RUN)]
Repetition = Annotated[Duration, Between(Duration, "1 s", LONGEST_RUN)]
PingInterval = Annotated[Duration, Between(Duration, "1 ms", "1 h")]
TransferSize = Annotated[Size, Between(Size, "1 B", "1000 GB")]
SnapLength = Annotated[Size, Between(Size, "64 B", "65535 B")]
LatenessLimit = Annotated[Duration, Between(Duration, "1 us", "1 h")]
ShareLimit = Annotated[float, Share()]
RingSize = Annotated[Size, Between(Size, "1048576 B", "1 GB")]


class RawLink(Raw):
    """Settings of one satellite emulator."""

    to_island: RawDirection = Field(examples=["{rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}"])
    """Towards the island."""
    to_world: RawDirection = Field(examples=["{rate: 4 Mbit/s, delay: 250 ms, queue: 100 kB}"])
    """Towards the world."""
    counts: Counted = Field(default=Counted.IP, strict=False, examples=["ip"])
    """Bytes that rate and queue count. ip: the IP packet; ethernet: 14 bytes more for each packet. Default ip."""


class RawCarried(Raw):
    """The traffic of a branch, in both directions; several keys select their intersection."""

    world: Prefix | None = Field(default=None, examples=["10.10.0.0/24"])
    """Prefix of the world hosts; default any."""
    island: Prefix | None = Field(default=None, examples=["10.20.0.0/30"])
    """Prefix of the island hosts; default any."""
    protocol: Protocol | None = Field(default=None, strict=False, examples=["tcp"])
    """Transport protocol; default any."""


class RawBranch(Raw):
    """A chain that part of the traffic takes, at the same time as the rest takes another."""

    carries: RawCarried = Field(examples=["{island: 10.20.0.0/30}"])
    """Its traffic."""
    chain: list[str] = Field(examples=["[tap-w, coder-w, sat, coder-i, tap-i]"])
    """Boxes and taps in order from world to island."""


class RawLinkChange(Raw):
    """Settings of one satellite emulator from a change on; a direction that is left out stays unchanged."""

    to_island: RawDirectionChange = Field(default=RawDirectionChange(), examples=["{rate: 8 Mbit/s}"])
    """Towards the island."""
    to_world: RawDirectionChange = Field(default=RawDirectionChange(), examples=["{rate: 2 Mbit/s}"])
    """Towards the world."""


class RawChange(Raw):
    """A change of chains, latencies, load or links during the run; keys that are left out stay unchanged."""

    at: ChangeTime = Field(examples=["20 s"])
    """Time of the change, after the start of the channels."""
    chain: list[str] | None = Field(default=None, examples=["[tap-w, coder-w, sat, coder-i, tap-i]"])
    """Boxes and taps of the chain after the change; default: unchanged."""
    branches: dict[Key, RawBranch | None] = Field(default={}, examples=["{coded: null}"])
    """Branches to add or replace; null removes a branch. Other branches do not change."""
    latency: dict[Key, str | None] = Field(default={}, examples=["{w1: rtt-90}"])
    """Latency class of servers after the change; null: none. Other servers do not change."""
    traffic: RawTrafficChange | None = Field(default=None, examples=["{channels: 40}"])
    """The load from then on."""
    udp: RawUdpChange | None = Field(default=None, examples=["{rate: 4 Mbit/s}"])
    """UDP from then on."""
    links: dict[Key, RawLinkChange] = Field(default={}, examples=["{sat: {to_island: {rate: 8 Mbit/s}}}"])
    """Settings of links from then on; others keep theirs."""


_IPERF3_CHUNK_BYTES = 1 << 20  # MAX_BLOCKSIZE


class RawTransfer(Raw):
    """A download of fixed size from a world host to an island host, or an upload, once or repeatedly."""

    size: TransferSize = Field(examples=["10 MB"])
    """Bytes to transfer."""
    start: Start = Field(default=Duration(10 * 10**9), examples=["10 s"])
    """Start of the transfer, after the start of the channels; default 10 s."""
    from_: Key | None = Field(alias="from", default=None, examples=["w1"])
    """Host that sends: a world server or the world's special server, of an upload an island client or the island's
    special host; default the special one."""
    to: Key | None = Field(default=None, examples=["i1"])
    """Host that receives: an island client or the island's special host, of an upload a world server or the world's
    special server; default the special one."""
    every: Repetition | None = Field(default=None, examples=["60 s"])
    """Time from one start to the next, until the run ends. A start while the transfer before it lasts is left out.
    Default one transfer."""
    direction: FlowDirection = Field(default=FlowDirection.DOWNLOAD, strict=False, examples=["upload"])
    """download: the world's host sends. upload: the island's host sends. Default download."""
    chain: Key | None = Field(default=None, examples=["coded"])
    """Name of the branch that carries it, or main: a mistake if another one does; default any."""
    tool: Literal["atoll", "iperf3"] = Field(default="atoll", examples=["atoll"])
    """Program that makes the transfer; default atoll."""
    port: int | None = Field(ge=1, le=65535, default=None)
    """TCP port of the world's host; default 5201, of the second of transfers 5202, and so on."""
    congestion_control: CongestionControl | None = Field(default=None, examples=["hybla"])
    """Congestion control of this transfer; default that of tcp."""
    write_rate: WriteRate | None = Field(default=None, examples=["2 Mbit/s"])
    """Largest rate of the sender; default no limit."""
    write_chunk: WriteChunk | None = Field(default=None, examples=["64 kB"])
    """Keep write_rate by writes of this size with pauses, in bursts; default paced by the kernel."""

    @model_validator(mode="after")
    def _chunk_is_possible(self) -> Self:
        if self.write_chunk and self.write_rate is None:
            raise ValueError(CHUNK_WITHOUT_RATE)
        if self.tool == "iperf3" and self.every:
            raise ValueError("every: iperf3 makes one transfer; leave it out, or write 'tool: atoll'")
        if self.tool == "iperf3" and self.write_chunk and self.write_chunk.bytes > _IPERF3_CHUNK_BYTES:
            raise ValueError(
                f"write_chunk: {self.write_chunk} is more than iperf3 writes at once, {_IPERF3_CHUNK_BYTES} B"
            )
        return self


class RawPing(Raw):
    """The ping series from the world's special server to the island's special host."""

    interval: PingInterval = Field(default=Duration(100 * 10**6), examples=["100 ms"])
    """Time between pings; default 100 ms."""


class RawCaptures(Raw):
    """How packets are captured, at every tap and link."""

    snap: SnapLength = Field(default=DEFAULT_CAPTURES.snap, examples=["96 B"])
    """Bytes of each frame that are kept; default 96 B, which includes TCP's headers and options."""
    buffer: RingSize = Field(default=DEFAULT_CAPTURES.buffer, examples=["64 MB"])
    """The kernel's ring for each capture; default 16 MB, a second of 1500-byte frames at 1 Gbit/s."""


class RawLimits(Raw):
    """Bounds of the verdict: a run beyond one of them is invalid."""

    lateness_p99: LatenessLimit = Field(default=DEFAULT_LIMITS.lateness_p99, examples=["1 ms"])
    """Largest 99th percentile of the lateness of departures from links and delay boxes; default 1 ms."""
    stall: LatenessLimit = Field(default=DEFAULT_LIMITS.stall, examples=["5 ms"])
    """A departure that is later than this belongs to a stall; default 5 ms."""
    stalled_share: ShareLimit = Field(default=DEFAULT_LIMITS.stalled_share, examples=["0.1 %"])
    """Share of the measured time that all stalls together may cover; default 0.1 %."""
    lateness_of_rtt: ShareLimit = Field(default=DEFAULT_LIMITS.lateness_of_rtt, examples=["10 %"])
    """Largest lateness of a departure, as a share of the shortest base RTT; default 10 %."""
    failed_flows: ShareLimit = Field(default=DEFAULT_LIMITS.failed_flows, examples=["10 %"])
    """Share of the channels' flows that may fail; default 10 %."""


class RawTcp(Raw):
    """TCP settings of the hosts, pinned for the run."""

    congestion_control: CongestionControl = Field(default="cubic", examples=["cubic"])
    """Kernel's name of the congestion control; default cubic."""
    servers: dict[Key, CongestionControl] = Field(default={}, examples=["{w1: hybla}"])
    """Congestion control of individual world servers; other servers use congestion_control."""
    ecn: bool = Field(default=False, examples=[False])
    """Explicit congestion notification; default false."""
    buffer_max: BufferSize = Field(default=Size(16 * 10**6), examples=["16 MB"])
    """Largest size of socket buffers; usually the bandwidth-delay product or more; default 16 MB."""
    initial_window: int | None = Field(ge=1, le=1000, default=None)
    """Initial congestion window in segments; default the kernel's, 10."""
    quick_ack: bool = False
    """Acknowledge every segment, not every second; default false."""
    sack: bool = True
    """Selective acknowledgements (RFC 2018); default true."""
    slow_start_after_idle: bool = True
    """Begin with the initial window after an idle RTO (RFC 2861); default true."""
    hystart: bool = True
    """Cubic leaves slow start when delays grow (HyStart); one value a kernel; default true."""
    pacing: bool = False
    """Servers pace the segments of each connection as fq would; bbr always does; default false."""


class RawExperiment(Raw):
    """An experiment: its chains, links, latencies, load and duration."""

    name: Name = Field(examples=["geo"])
    """Name of the experiment; its runs are stored in runs/NAME."""
    lab: str = Field(examples=["../emulation/labs/island.yaml"])
    """Path of the lab, relative to this file."""
    seed: int = Field(ge=0, le=2**63 - 1, default=1, examples=[1])
    """Seed of everything random; default 1."""
    duration: RunTime = Field(examples=["60 s"])
    """Duration of the measurement."""
    chain: list[str] = Field(examples=["[tap-w, sat, tap-i]"])
    """Boxes and taps in order from world to island."""
    branches: dict[Key, RawBranch] = Field(
        default={},
        examples=["{coded: {carries: {island: 10.20.0.0/30}, chain: [tap-w, coder-w, sat, coder-i, tap-i]}}"],
    )
    """Further chains for parts of the traffic, by name; all other traffic takes chain."""
    links: dict[Key, RawLink] = Field(
        default={}, examples=["{sat: {to_island: &d {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}, to_world: *d}}"]
    )
    """Settings of every satellite emulator in a chain, by its name."""
    latency: dict[Key, str] = Field(default={}, examples=["{w1: rtt-5}"])
    """Latency class of each world host; a host without one is not delayed."""
    boxes: dict[Key, dict[str, Any]] = Field(default={}, examples=["{coder-w: {mode: 'off'}}"])
    """Settings of boxes by name, according to their kind; other settings are those of the lab."""
    changes: list[RawChange] = Field(
        default=[],
        examples=["[{at: 20 s, chain: [tap-w, coder-w, sat, coder-i, tap-i]}, {at: 40 s, latency: {w1: rtt-90}}]"],
    )
    """Changes of chains, latencies, load and links during the run, in order of time."""
    traffic: RawTraffic = Field(examples=["{channels: 20}"])
    """The load."""
    transfer: RawTransfer | None = Field(default=None, examples=["{size: 10 MB}"])
    """A download or upload of fixed size; none if left out."""
    transfers: dict[Key, RawTransfer] = Field(
        default={}, examples=["{coded: {size: 5 MB, to: i1, every: 60 s}, uncoded: {size: 5 MB, to: i5, every: 60 s}}"]
    )
    """Several downloads or uploads by name, in place of transfer."""
    udp: RawUdp | None = Field(default=None, examples=["{rate: 2 Mbit/s}"])
    """UDP flows at a constant rate; none if left out."""
    ping: RawPing = Field(default=RawPing(), examples=["{interval: 100 ms}"])
    """The ping series."""
    captures: RawCaptures = Field(default=RawCaptures(), examples=["{snap: 96 B, buffer: 64 MB}"])
    """Settings of packet captures."""
    tcp: RawTcp = Field(default=RawTcp(), examples=["{congestion_control: cubic}"])
    """TCP settings of the hosts."""
    limits: RawLimits = Field(default=RawLimits(), examples=["{stalled_share: 0.1 %}"])
    """Bounds of the verdict."""
