# SPDX-License-Identifier: Apache-2.0
"""An experiment as resolved from experiment.yaml against its Network: valid, typed, frozen."""

from dataclasses import dataclass, field
from enum import StrEnum

from atoll.model.units import Duration, Rate, Size


class Counted(StrEnum):
    """What a link's rate and queue count as the bytes of a packet."""

    IP = "ip"  # the IP packet, without its Ethernet header
    ETHERNET = "ethernet"  # the frame as captured: IP packet plus 14 bytes


@dataclass(frozen=True, slots=True)
class LinkDirection:
    """One direction of a satellite link: drop-tail byte queue, serialisation, propagation."""

    rate: Rate
    delay: Duration  # one way
    queue: Size
    jitter: Duration  # uniform in +/- jitter around the delay, order kept


@dataclass(frozen=True, slots=True)
class Link:
    """Settings of one satellite emulator."""

    box: str
    to_island: LinkDirection
    to_world: LinkDirection
    counts: Counted


@dataclass(frozen=True, slots=True)
class Chain:
    """What flanks the link: boxes and taps in order from world to island."""

    name: str
    hops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TcpSettings:
    """Settings that decide a TCP result; pinned on every host for the run, recorded, restored."""

    congestion_control: str
    ecn: bool
    buffer_max: Size  # upper bound of send and receive buffers; at least the bandwidth-delay product


@dataclass(frozen=True, slots=True)
class Traffic:
    """The load: how many channels loop on flows drawn from which distribution."""

    channels: int
    flow_sizes: str  # "published", or later a file
    port: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """A fixed-size download from the world's special server to the island's special host."""

    size: Size
    start: Duration  # after the channels started
    tool: str  # "atoll" or "iperf3"
    port: int


@dataclass(frozen=True, slots=True)
class PingSeries:
    """Pings from the world's special server to the island's special host during the whole run."""

    interval: Duration


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment: what is steered where, with what settings, under what load, for how long.

    ``file`` and ``lab`` are paths as messages show them; they are no part of what makes two experiments equal.
    """

    name: str
    file: str = field(compare=False)
    lab: str = field(compare=False)
    seed: int
    duration: Duration
    chain: Chain
    links: tuple[Link, ...]
    latency: tuple[tuple[str, str], ...]  # (world server, latency class), every server at most once
    traffic: Traffic
    transfer: Transfer | None
    ping: PingSeries
    tcp: TcpSettings

    def link(self, box: str) -> Link:
        """Settings of the satellite emulator of that name (KeyError otherwise)."""
        return {link.box: link for link in self.links}[box]
