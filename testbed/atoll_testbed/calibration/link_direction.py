# SPDX-License-Identifier: Apache-2.0
"""One direction of a link for a calibration: rate of a flood that fills it, counted bytes, times. Pure.

Times in ns, rates in bit/s of IP packets unless the link counts Ethernet.
"""

import math
from dataclasses import dataclass, replace

from atoll_controller.planner.traffic_jobs import PING_PACKET
from atoll_core.experiment.experiment import Bernoulli, Counted, LinkDirection, Where, mean_loss
from atoll_core.lab.network import MTU, LatencyClass

ETHERNET_HEADER = 14
PROBE_PACKET = PING_PACKET

# A flood is this much above the rate, and fills the queue within this time.
_FLOOD_RATIO = 1.25
_FILL_S = 0.25
# The bytes counted per packet show best with small packets, but software switches forward a limited number per second.
_SMALL_PACKETS_PER_S = 4000
_SMALLEST_PACKET = 128
# A flood of 1.25 of the rate still is one after this much loss.
_MOST_LOSS = 0.1


@dataclass(frozen=True, slots=True)
class LinkUnderTest:
    """One direction of a link with its settings before a run: at the beginning of its trace, if it follows one."""

    box: str
    name: str  # "to_island" or "to_world"
    settings: LinkDirection
    counts: Counted
    refused: str = ""  # why it cannot be flooded; empty if it can
    terrestrial: LatencyClass | None = None  # of the world's special host, between which and the island it is tested
    mtu: int = MTU  # of the path between the hosts from which it is tested
    overhead_bytes: int = 0  # those that boxes before it have added to each packet

    @classmethod
    def of(
        cls,
        box: str,
        name: str,
        settings: LinkDirection,
        counts: Counted,
        *,
        narrower: bool,
        terrestrial: LatencyClass | None = None,
        mtu: int = MTU,
        overhead_bytes: int = 0,
    ) -> "LinkUnderTest":
        """``narrower``: another link of the chain has a lower rate."""
        first = settings.trace.rows[0] if settings.trace else None
        if first is not None:
            loss = settings.loss if first.loss is None else Bernoulli(first.loss)
            delay = settings.delay if first.delay is None else first.delay
            settings = replace(settings, rate=first.rate or settings.rate, delay=delay, loss=loss, trace=None)
        refused = _refused(settings, mtu + overhead_bytes, narrower=narrower)
        if first is not None and first.blocked:
            refused = "its trace begins with a blocked link"
        return cls(box, name, settings, counts, refused, terrestrial, mtu, overhead_bytes)

    @property
    def terrestrial_ns(self) -> int:
        """The terrestrial delay, one way."""
        return self.terrestrial.rtt.ns // 2 if self.terrestrial else 0

    @property
    def shake_ns(self) -> int:
        """The terrestrial jitter, one way."""
        return self.terrestrial.jitter.ns if self.terrestrial else 0

    def counted(self, ip_bytes: int) -> int:
        """The counted bytes of a packet that has this number of IP bytes at hosts."""
        return ip_bytes + self.overhead_bytes + (ETHERNET_HEADER if self.counts is Counted.ETHERNET else 0)

    def lost(self, ip_bytes: int) -> float:
        """The share of packets of this size that are lost after they have used the link."""
        loss = self.settings.loss
        return 0.0 if loss is None or loss.where is Where.BEFORE else mean_loss(loss, self.counted(ip_bytes))

    @property
    def queue_bytes(self) -> int:
        """The part of the queue that full-size packets can fill."""
        packets = self.settings.queue_packets
        most = self.settings.queue.bytes
        return most if packets is None else min(most, packets * self.counted(self.mtu))

    def serialisation_ns(self, counted_bytes: float) -> float:
        """The serialisation time of counted bytes."""
        return counted_bytes * 8e9 / self.settings.rate.bit_s

    @property
    def ping_ns(self) -> float:
        """The serialisation time of a ping, or of another single packet."""
        return self.serialisation_ns(self.counted(PROBE_PACKET))

    @property
    def flood_bit_s(self) -> int:
        """The rate of a flood that fills the queue soon and keeps it full."""
        rate = self.settings.rate.bit_s
        return int(max(_FLOOD_RATIO * rate, rate + 8 * self.queue_bytes / _FILL_S))

    @property
    def fill_ns(self) -> int:
        """The time after which a flood has certainly filled the queue."""
        return int(1.5e9 * 8 * self.queue_bytes / (self.flood_bit_s - self.settings.rate.bit_s)) + 50_000_000

    @property
    def drain_ns(self) -> int:
        """The time in which the packets of a flood leave the link."""
        reach = self.settings.jitter.reach.ns if self.settings.jitter else 0
        terrestrial = self.terrestrial_ns + self.shake_ns
        return (
            int(self.serialisation_ns(self.queue_bytes + 2 * self.mtu)) + self.settings.delay.ns + reach + terrestrial
        )

    @property
    def small_packet(self) -> int:
        """IP bytes of the packets that show the counted bytes per packet."""
        return min(self.mtu, max(_SMALLEST_PACKET, self.settings.rate.bit_s // 8 // _SMALL_PACKETS_PER_S))

    @property
    def probe_interval_ns(self) -> int:
        """The interval of packets on the idle link: long enough that none waits for one before it."""
        reach = self.settings.jitter.reach.ns if self.settings.jitter else 0
        return max(5_000_000, 2 * (reach + self.shake_ns), 2 * math.ceil(self.ping_ns))


def _refused(settings: LinkDirection, packet_bytes: int, *, narrower: bool) -> str:
    if narrower:
        return "another link of the chain has a lower rate, so this one cannot be filled"
    if settings.loss and mean_loss(settings.loss, packet_bytes) > _MOST_LOSS:
        return "its loss model drops too many packets to fill it"
    return ""
