# SPDX-License-Identifier: Apache-2.0
"""The load of an experiment: channels of TCP flows, and UDP traffic."""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from atoll_core.described import FileName, settings_of
from atoll_core.experiment.flow_sizes import PUBLISHED, FlowSizes, published
from atoll_core.units import Duration, Rate, Size


class SizeMeaning(StrEnum):
    """The meaning of the sizes of a flow-size distribution."""

    PAYLOAD = "payload"  # TCP payload, which a client requests
    IP = "ip"  # IP bytes of the flow from server to client


class FlowDirection(StrEnum):
    """The direction of the bytes of flows or a transfer; clients of the island connect in both."""

    DOWNLOAD = "download"  # from the world to the island
    UPLOAD = "upload"  # from the island to the world

    @property
    def of_link(self) -> str:
        """The direction of links that the bytes take (``experiment.DIRECTIONS``)."""
        return "to_island" if self is FlowDirection.DOWNLOAD else "to_world"


UPLOADS_ONLY = frozenset({FlowDirection.UPLOAD})
"""The ``flow_directions`` of an experiment without any download."""


MIN_IP_BYTES = 269
"""IP bytes of the smallest flow of a connection, one byte of payload with all packets that only open, acknowledge or
close (hosts/crates/flow-sizes, headers.rs)."""


REQUEST_BYTES = 8
"""Payload of the request of a flow, and of an upload of a transfer."""


class ThinkShape(StrEnum):
    """The distribution of a channel's pauses between flows."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class Think:
    """Closed loop: a pause after each flow of a channel."""

    mean: Duration
    distribution: ThinkShape

    @property
    def described(self) -> Duration | dict[str, Any]:
        """As in a description; a constant pause alone."""
        return self.mean if self.distribution is ThinkShape.CONSTANT else settings_of(self, "mean", "distribution")


FLOW_TIMEOUT = Duration(180 * 10**9)
"""That of ``atoll-host load``."""

MAX_CHANNELS = 100_000
"""Channels of all clients, or of a group. Numbers of those whose first client is the nth begin at n times this."""

REST = "rest"
"""The name of the group of the clients that are in no other group."""


@dataclass(frozen=True, slots=True)
class Load:
    """The channels of some or all clients: their number, the starts of their flows, and the flow sizes.

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
    write_rate: Rate | None = None  # the most that a sender sends by one connection
    write_chunk: Size | None = None  # bytes between the pauses that keep a server's write_rate; None: the kernel paces
    sizes_count: SizeMeaning = SizeMeaning.PAYLOAD
    timeout: Duration = FLOW_TIMEOUT  # without a byte; then a connected flow has failed
    direction: FlowDirection = FlowDirection.DOWNLOAD
    line: int = field(default=0, compare=False)  # of the channels in the experiment's file; 0: unknown
    rate_line: int = field(default=0, compare=False)  # of flows_per_s, else of write_rate
    name: str = ""  # of the group; "": there are no groups
    clients: tuple[str, ...] = ()  # those of the group, in the lab's order; empty: all
    first_channel: int = 0  # the number of its first channel

    @property
    def key_path(self) -> tuple[str, ...]:
        """Where it is in a description."""
        return ("traffic",) if self.name in ("", REST) else ("traffic", "groups", self.name)

    @property
    def distribution(self) -> FlowSizes:
        """The distribution that flow sizes are drawn from."""
        return self.sizes or published()

    @property
    def settings(self) -> dict[str, Any]:
        """Channels, flow sizes and starts, as in a description."""
        sizes = _described(self.flow_sizes, self.sizes)
        counts_ip = self.sizes_count is SizeMeaning.IP
        return {
            "channels": self.channels,
            "flow_sizes": {"distribution": sizes, "counts": self.sizes_count} if counts_ip else sizes,
            "think_time": self.think and self.think.described,
            **settings_of(self, "pro_rate", "flows_per_s"),
            **({"direction": self.direction} if self.direction is FlowDirection.UPLOAD else {}),
        }


@dataclass(frozen=True, slots=True)
class Traffic(Load):
    """The load of all clients. Clients in no group have its own settings, and are the group REST.

    ``groups``: every client is in one of them; empty: all clients share the channels.
    """

    groups: tuple[Load, ...] = ()

    @property
    def loads(self) -> tuple[Load, ...]:
        """The load of each group; without groups this one."""
        return self.groups or (self,)

    @property
    def total_channels(self) -> int:
        """The number of channels of all clients."""
        return sum(load.channels for load in self.loads)

    @property
    def described(self) -> dict[str, Any]:
        """As in a description."""
        groups = {
            load.name: {
                "clients": load.clients,
                **load.settings,
                **settings_of(load, "timeout"),
                **({"direction": load.direction} if load.direction is not self.direction else {}),
            }
            for load in self.groups
            if load.name != REST
        }
        others = settings_of(self, "write_rate", "write_chunk", "timeout", "port")
        return {**self.settings, **others, **({"groups": groups} if groups else {})}


@dataclass(frozen=True, slots=True)
class UdpTraffic:
    """UDP from the world's special server to hosts of the island, unresponsive to loss.

    Flow after flow of drawn size, ``parallel`` at a time, together at ``rate`` of IP bytes.
    """

    rate: Rate
    flow_sizes: str
    port: int
    packet: Size  # IP bytes of all packets but the last of each flow
    parallel: int
    receivers: str = "special"  # the island's special host, or its "clients" in turn
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
        return {**settings_of(self, "rate", "packet", "parallel", "port", "receivers"), "flow_sizes": sizes}


def _described(sizes: str, distribution: FlowSizes | None) -> str | FileName:
    """The distribution of flow sizes as in a description."""
    is_file = sizes != PUBLISHED and ("/" in sizes or not sizes.lstrip()[0].isdigit())
    return FileName(sizes, distribution) if is_file else sizes


@dataclass(frozen=True, slots=True)
class ChannelAllocation:
    """The load of one island client. ``channels``: their number; with 0 no job is started there."""

    host: str
    capacity: float  # declared, relative to the other clients'
    channels: int
    group: str = ""  # of clients, "": there are no groups


def allocate_channels(channels: int, capacities: Sequence[float]) -> tuple[tuple[int, ...], ...]:
    """Allocate channels 0 to ``channels`` - 1: the numbers of the channels of each client.

    The rule is Sainte-Laguë's (Webster's): the next channel goes to the client with the least
    (2 x given + 1) / capacity, of several to the first. So channels per capacity are as even as whole channels allow,
    and equal capacities are served in turn. More channels or a higher capacity never reduce a client's channels.
    Each capacity is above 0 and is taken as its shortest decimal text, so that 0.1 and 0.3 are exactly one to three.
    The client of channel c does not depend on the number of channels after it.
    """
    fractions = [Fraction(str(capacity)) for capacity in capacities]
    common = math.lcm(*(capacity.numerator for capacity in fractions))
    steps = [2 * common * capacity.denominator // capacity.numerator for capacity in fractions]
    channels_of_client: list[list[int]] = [[] for _ in capacities]
    # In halves of a step: (2 x given + 1) / capacity, times a number that makes all of them whole.
    queue = [(step // 2, index) for index, step in enumerate(steps)]
    heapq.heapify(queue)
    for channel in range(channels if capacities else 0):
        quotient, index = queue[0]
        channels_of_client[index].append(channel)
        heapq.heapreplace(queue, (quotient + steps[index], index))
    return tuple(tuple(numbers) for numbers in channels_of_client)


def channels_by_client(traffic: Traffic, capacities: Mapping[str, float]) -> dict[str, tuple[Load, tuple[int, ...]]]:
    """The load of each client, and the numbers of its channels. ``capacities``: of all clients, in the lab's order."""
    allocated: dict[str, tuple[Load, tuple[int, ...]]] = {}
    for load in traffic.loads:
        clients = load.clients or tuple(capacities)
        channels = allocate_channels(load.channels, [capacities[client] for client in clients])
        for client, numbers in zip(clients, channels, strict=True):
            allocated[client] = load, tuple(load.first_channel + number for number in numbers)
    return {client: allocated[client] for client in capacities}
