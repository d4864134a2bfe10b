# SPDX-License-Identifier: Apache-2.0
"""The load of an experiment: channels of TCP flows, and UDP beside them."""

from dataclasses import dataclass, field
from enum import StrEnum

from atoll.model.flow_sizes import FlowSizes, published
from atoll.model.units import Duration, Rate, Size


class ThinkTime(StrEnum):
    """How long a channel pauses between its flows."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Think:
    """Closed loop: a pause after each flow of a channel."""

    mean: Duration
    distribution: ThinkTime


@dataclass(frozen=True, slots=True)
class Traffic:
    """The load: how many channels, when they begin flows, of which sizes.

    With ``flows_per_s`` in an open loop: the channels are Poisson processes of so many flows a second together. Else a
    channel begins its next flow when the one before is over, after ``think``.
    """

    channels: int
    flow_sizes: str  # as described: "published", a size, or a file
    port: int
    sizes: FlowSizes | None = None  # what that comes to; None: published
    pro_rate: Size | None = None  # already in ``sizes``
    think: Think | None = None
    flows_per_s: float | None = None
    write_rate: Rate | None = None  # the most that a server sends by one connection

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
