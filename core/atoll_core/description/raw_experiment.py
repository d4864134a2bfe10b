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

    to_island: RawDirection = Field(
        description="Towards the island.", examples=["{rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}"]
    )
    to_world: RawDirection = Field(
        description="Towards the world.", examples=["{rate: 4 Mbit/s, delay: 250 ms, queue: 100 kB}"]
    )
    counts: Counted = Field(
        default=Counted.IP,
        strict=False,
        description=(
            "Bytes that rate and queue count. ip: the IP packet; ethernet: 14 bytes more for each packet. Default ip."
        ),
        examples=["ip"],
    )


class RawCarried(Raw):
    """The traffic of a branch, in both directions; several keys select their intersection."""

    world: Prefix | None = Field(
        default=None, description="Prefix of the world hosts; default any.", examples=["10.10.0.0/24"]
    )
    island: Prefix | None = Field(
        default=None, description="Prefix of the island hosts; default any.", examples=["10.20.0.0/30"]
    )
    protocol: Protocol | None = Field(
        default=None, strict=False, description="Transport protocol; default any.", examples=["tcp"]
    )


class RawBranch(Raw):
    """A chain that part of the traffic takes, at the same time as the rest takes another."""

    carries: RawCarried = Field(description="Its traffic.", examples=["{island: 10.20.0.0/30}"])
    chain: list[str] = Field(
        description="Boxes and taps in order from world to island.", examples=["[tap-w, coder-w, sat, coder-i, tap-i]"]
    )


class RawLinkChange(Raw):
    """Settings of one satellite emulator from a change on; a direction that is left out stays unchanged."""

    to_island: RawDirectionChange = Field(
        default=RawDirectionChange(), description="Towards the island.", examples=["{rate: 8 Mbit/s}"]
    )
    to_world: RawDirectionChange = Field(
        default=RawDirectionChange(), description="Towards the world.", examples=["{rate: 2 Mbit/s}"]
    )


class RawChange(Raw):
    """A change of chains, latencies, load or links during the run; keys that are left out stay unchanged."""

    at: ChangeTime = Field(description="Time of the change, after the start of the channels.", examples=["20 s"])
    chain: list[str] | None = Field(
        default=None,
        description="Boxes and taps of the chain after the change; default: unchanged.",
        examples=["[tap-w, coder-w, sat, coder-i, tap-i]"],
    )
    branches: dict[Key, RawBranch | None] = Field(
        default={},
        description="Branches to add or replace; null removes a branch. Other branches do not change.",
        examples=["{coded: null}"],
    )
    latency: dict[Key, str | None] = Field(
        default={},
        description="Latency class of servers after the change; null: none. Other servers do not change.",
        examples=["{w1: rtt-90}"],
    )
    traffic: RawTrafficChange | None = Field(
        default=None, description="The load from then on.", examples=["{channels: 40}"]
    )
    udp: RawUdpChange | None = Field(default=None, description="UDP from then on.", examples=["{rate: 4 Mbit/s}"])
    links: dict[Key, RawLinkChange] = Field(
        default={},
        description="Settings of links from then on; others keep theirs.",
        examples=["{sat: {to_island: {rate: 8 Mbit/s}}}"],
    )


_IPERF3_CHUNK_BYTES = 1 << 20  # MAX_BLOCKSIZE


class RawTransfer(Raw):
    """A download of fixed size from a world host to an island host, once or repeatedly."""

    size: TransferSize = Field(description="Bytes to transfer.", examples=["10 MB"])
    start: Start = Field(
        default=Duration(10 * 10**9),
        description="Start of the transfer, after the start of the channels; default 10 s.",
        examples=["10 s"],
    )
    from_: Key | None = Field(
        alias="from",
        default=None,
        description="World server that sends, or the world's special server; default the latter.",
        examples=["w1"],
    )
    to: Key | None = Field(
        default=None,
        description="Island client that receives, or the island's special host; default the latter.",
        examples=["i1"],
    )
    every: Repetition | None = Field(
        default=None,
        description=(
            "Time from one start to the next, until the run ends. A start while the download before it lasts is left "
            "out. Default one download."
        ),
        examples=["60 s"],
    )
    chain: Key | None = Field(
        default=None,
        description="Name of the branch that carries it, or main: a mistake if another one does; default any.",
        examples=["coded"],
    )
    tool: Literal["atoll", "iperf3"] = Field(
        default="atoll", description="Program that makes the transfer; default atoll.", examples=["atoll"]
    )
    port: int | None = Field(
        ge=1,
        le=65535,
        default=None,
        description="TCP port of the sender; default 5201, of the second of transfers 5202, and so on.",
    )
    congestion_control: CongestionControl | None = Field(
        default=None, description="Congestion control of this transfer; default that of tcp.", examples=["hybla"]
    )
    write_rate: WriteRate | None = Field(
        default=None, description="Largest rate of the sender; default no limit.", examples=["2 Mbit/s"]
    )
    write_chunk: WriteChunk | None = Field(
        default=None,
        description="Keep write_rate by writes of this size with pauses, in bursts; default paced by the kernel.",
        examples=["64 kB"],
    )

    @model_validator(mode="after")
    def _chunk_is_possible(self) -> Self:
        if self.write_chunk and self.write_rate is None:
            raise ValueError(CHUNK_WITHOUT_RATE)
        if self.tool == "iperf3" and self.every:
            raise ValueError("every: iperf3 makes one download; leave it out, or write 'tool: atoll'")
        if self.tool == "iperf3" and self.write_chunk and self.write_chunk.bytes > _IPERF3_CHUNK_BYTES:
            raise ValueError(
                f"write_chunk: {self.write_chunk} is more than iperf3 writes at once, {_IPERF3_CHUNK_BYTES} B"
            )
        return self


class RawPing(Raw):
    """The ping series from the world's special server to the island's special host."""

    interval: PingInterval = Field(
        default=Duration(100 * 10**6), description="Time between pings; default 100 ms.", examples=["100 ms"]
    )


class RawCaptures(Raw):
    """How packets are captured, at every tap and link."""

    snap: SnapLength = Field(
        default=DEFAULT_CAPTURES.snap,
        description="Bytes of each frame that are kept; default 96 B, which includes TCP's headers and options.",
        examples=["96 B"],
    )
    buffer: RingSize = Field(
        default=DEFAULT_CAPTURES.buffer,
        description="The kernel's ring for each capture; default 16 MB, a second of 1500-byte frames at 1 Gbit/s.",
        examples=["64 MB"],
    )


class RawLimits(Raw):
    """Bounds of the verdict: a run beyond one of them is invalid."""

    lateness_p99: LatenessLimit = Field(
        default=DEFAULT_LIMITS.lateness_p99,
        description="Largest 99th percentile of the lateness of departures from links and delay boxes; default 1 ms.",
        examples=["1 ms"],
    )
    stall: LatenessLimit = Field(
        default=DEFAULT_LIMITS.stall,
        description="A departure that is later than this belongs to a stall; default 5 ms.",
        examples=["5 ms"],
    )
    stalled_share: ShareLimit = Field(
        default=DEFAULT_LIMITS.stalled_share,
        description="Share of the measured time that all stalls together may cover; default 0.1 %.",
        examples=["0.1 %"],
    )
    lateness_of_rtt: ShareLimit = Field(
        default=DEFAULT_LIMITS.lateness_of_rtt,
        description="Largest lateness of a departure, as a share of the shortest base RTT; default 10 %.",
        examples=["10 %"],
    )
    failed_flows: ShareLimit = Field(
        default=DEFAULT_LIMITS.failed_flows,
        description="Share of the channels' flows that may fail; default 10 %.",
        examples=["10 %"],
    )


class RawTcp(Raw):
    """TCP settings of the hosts, pinned for the run."""

    congestion_control: CongestionControl = Field(
        default="cubic", description="Kernel's name of the congestion control; default cubic.", examples=["cubic"]
    )
    servers: dict[Key, CongestionControl] = Field(
        default={},
        description="Congestion control of individual world servers; other servers use congestion_control.",
        examples=["{w1: hybla}"],
    )
    ecn: bool = Field(default=False, description="Explicit congestion notification; default false.", examples=[False])
    buffer_max: BufferSize = Field(
        default=Size(16 * 10**6),
        description="Largest size of socket buffers; usually the bandwidth-delay product or more; default 16 MB.",
        examples=["16 MB"],
    )
    initial_window: int | None = Field(
        ge=1, le=1000, default=None, description="Initial congestion window in segments; default the kernel's, 10."
    )
    quick_ack: bool = Field(default=False, description="Acknowledge every segment, not every second; default false.")
    sack: bool = Field(default=True, description="Selective acknowledgements (RFC 2018); default true.")
    slow_start_after_idle: bool = Field(
        default=True, description="Begin with the initial window after an idle RTO (RFC 2861); default true."
    )
    hystart: bool = Field(
        default=True,
        description="Cubic leaves slow start when delays grow (HyStart); one value a kernel; default true.",
    )
    pacing: bool = Field(
        default=False,
        description="Servers pace the segments of each connection as fq would; bbr always does; default false.",
    )


class RawExperiment(Raw):
    """An experiment: its chains, links, latencies, load and duration."""

    name: Name = Field(description="Name of the experiment; its runs are stored in runs/NAME.", examples=["geo"])
    lab: str = Field(description="Path of the lab, relative to this file.", examples=["../emulation/labs/island.yaml"])
    seed: int = Field(ge=0, le=2**63 - 1, default=1, description="Seed of everything random; default 1.", examples=[1])
    duration: RunTime = Field(description="Duration of the measurement.", examples=["60 s"])
    chain: list[str] = Field(
        description="Boxes and taps in order from world to island.", examples=["[tap-w, sat, tap-i]"]
    )
    branches: dict[Key, RawBranch] = Field(
        default={},
        description="Further chains for parts of the traffic, by name; all other traffic takes chain.",
        examples=["{coded: {carries: {island: 10.20.0.0/30}, chain: [tap-w, coder-w, sat, coder-i, tap-i]}}"],
    )
    links: dict[Key, RawLink] = Field(
        default={},
        description="Settings of every satellite emulator in a chain, by its name.",
        examples=["{sat: {to_island: &d {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}, to_world: *d}}"],
    )
    latency: dict[Key, str] = Field(
        default={},
        description="Latency class of each world host; a host without one is not delayed.",
        examples=["{w1: rtt-5}"],
    )
    boxes: dict[Key, dict[str, Any]] = Field(
        default={},
        description="Settings of boxes by name, according to their kind; other settings are those of the lab.",
        examples=["{coder-w: {mode: 'off'}}"],
    )
    changes: list[RawChange] = Field(
        default=[],
        description="Changes of chains, latencies, load and links during the run, in order of time.",
        examples=["[{at: 20 s, chain: [tap-w, coder-w, sat, coder-i, tap-i]}, {at: 40 s, latency: {w1: rtt-90}}]"],
    )
    traffic: RawTraffic = Field(description="The load.", examples=["{channels: 20}"])
    transfer: RawTransfer | None = Field(
        default=None, description="A download of fixed size; none if left out.", examples=["{size: 10 MB}"]
    )
    transfers: dict[Key, RawTransfer] = Field(
        default={},
        description="Several downloads by name, in place of transfer.",
        examples=["{coded: {size: 5 MB, to: i1, every: 60 s}, uncoded: {size: 5 MB, to: i5, every: 60 s}}"],
    )
    udp: RawUdp | None = Field(
        default=None, description="UDP flows at a constant rate; none if left out.", examples=["{rate: 2 Mbit/s}"]
    )
    ping: RawPing = Field(default=RawPing(), description="The ping series.", examples=["{interval: 100 ms}"])
    captures: RawCaptures = Field(
        default=RawCaptures(), description="Settings of packet captures.", examples=["{snap: 96 B, buffer: 64 MB}"]
    )
    tcp: RawTcp = Field(
        default=RawTcp(), description="TCP settings of the hosts.", examples=["{congestion_control: cubic}"]
    )
    limits: RawLimits = Field(
        default=RawLimits(), description="Bounds of the verdict.", examples=["{stalled_share: 0.1 %}"]
    )
