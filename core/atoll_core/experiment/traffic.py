# SPDX-License-Identifier: Apache-2.0
"""The load of an experiment: channels of TCP flows, and UDP traffic."""

from dataclasses import dataclass, field
from enum import StrEnum

from atoll_core.experiment.flow_sizes import FlowSizes, published
from atoll_core.units import Duration, Rate, Size


class SizesCount(StrEnum):
    """The meaning of the sizes of a flow-size distribution."""

    PAYLOAD = "payload"  # TCP payload, which a client requests
    IP = "ip"  # IP bytes of the flow from server to client


LEAST_IP_BYTES = 269
"""IP bytes of the smallest flow of a connection, one byte of payload with all packets that only open, acknowledge or
close (hosts/crates/flow-sizes, headers.rs)."""


class ThinkTime(StrEnum):
    """The distribution of a channel's pauses between flows."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Think:
    """Closed loop: a pause after each flow of a channel."""

    mean: Duration
    distribution: ThinkTime


@dataclass(frozen=True, slots=True)
class Traffic:
    """The load: the number of channels, the starts of their flows, and the flow sizes.

    With ``flows_per_s`` it is an open loop: the channels are Poisson processes with this rate together. Without, a
    channel starts its next flow ``think`` after the end of the one before.
    """

    channels: int
    flow_sizes: str  # as described: "published", a size, or a file
    port: int
    sizes: FlowSizes | None = None  # the distribution of ``flow_sizes``; None: published
    pro_rate: Size | None = None  # already applied to ``sizes``
    think: Think | None = None
    flows_per_s: float | None = None
    write_rate: Rate | None = None  # the most that a server sends by one connection
    sizes_count: SizesCount = SizesCount.PAYLOAD
    line: int = field(default=0, compare=False)  # of the channels in the experiment's file; 0: unknown

    @property
    def distribution(self) -> FlowSizes:
        """The distribution that flow sizes are drawn from."""
        return self.sizes or published()


@dataclass(frozen=True, slots=True)
class UdpTraffic:
    """UDP from the world's special server to the island's special host, unresponsive to loss.

    Flow after flow of drawn size, ``parallel`` at a time, together at ``rate`` of IP bytes.
    """

    rate: Rate
    flow_sizes: str
    port: int
    packet: Size  # IP bytes of all packets but the last of each flow
    parallel: int
    sizes: FlowSizes | None = None
    line: int = field(default=0, compare=False)  # of the rate in the experiment's file; 0: unknown

    @property
    def distribution(self) -> FlowSizes:
        """The distribution that flow sizes are drawn from."""
        return self.sizes or published()
