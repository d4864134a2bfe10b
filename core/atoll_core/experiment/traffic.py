# SPDX-License-Identifier: Apache-2.0
"""The load of an experiment: channels of TCP flows, and UDP traffic."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from atoll_core.described import FileName, stated
from atoll_core.experiment.flow_sizes import PUBLISHED, FlowSizes, published
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

    @property
    def described(self) -> Duration | dict[str, Any]:
        """As in a description; a constant pause alone."""
        return self.mean if self.distribution is ThinkTime.CONSTANT else stated(self, "mean", "distribution")


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

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        sizes = _described(self.flow_sizes, self.sizes)
        of_ip = self.sizes_count is SizesCount.IP
        return {
            "channels": self.channels,
            "flow_sizes": {"distribution": sizes, "counts": self.sizes_count} if of_ip else sizes,
            "think_time": self.think and self.think.described,
            **stated(self, "pro_rate", "flows_per_s", "write_rate", "port"),
        }


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

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        sizes = _described(self.flow_sizes, self.sizes)
        return {**stated(self, "rate", "packet", "parallel", "port"), "flow_sizes": sizes}


def _described(sizes: str, distribution: FlowSizes | None) -> str | FileName:
    """The distribution of flow sizes as in a description."""
    is_file = sizes != PUBLISHED and ("/" in sizes or not sizes.lstrip()[0].isdigit())
    return FileName(sizes, distribution) if is_file else sizes
