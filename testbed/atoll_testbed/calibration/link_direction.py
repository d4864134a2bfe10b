# SPDX-License-Identifier: Apache-2.0
"""One direction of a link as a calibration sees it: what fills it, what it counts, how long it takes. Pure.

Times in ns, rates in bit/s of IP packets unless the link counts Ethernet.
"""

import statistics
from dataclasses import dataclass, replace

from atoll_controller.planner.calibration_jobs import PING_PACKET
from atoll_core.experiment.experiment import (
    Bernoulli,
    BitError,
    Counted,
    GilbertElliott,
    LinkDirection,
    Loss,
    LossTrace,
    Where,
)
from atoll_core.lab.network import LatencyClass

MTU = 1500
ETHERNET_HEADER = 14
PROBE_PACKET = PING_PACKET

# A flood is this much above the rate, and fills the queue within this time.
_FLOOD_RATIO = 1.25
_FILL_S = 0.25
# Small packets show what counts as a byte best, but software switches forward only so many a second.
_SMALL_PACKETS_PER_S = 4000
_SMALLEST_PACKET = 128
# A flood of 1.25 of the rate still is one after this much loss.
_MOST_LOSS = 0.1


@dataclass(frozen=True, slots=True)
class LinkUnderTest:
    """One direction of a link as it stands before a run: where its trace begins, if it follows one."""

    box: str
    name: str  # "to_island" or "to_world"
    settings: LinkDirection
    counts: Counted
    refused: str = ""  # why it cannot be flooded; empty when it can
    terrestrial: LatencyClass | None = None  # of the host at the world end between which and the island it is tested

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
    ) -> "LinkUnderTest":
        """``narrower``: some other link of the chain lets less through."""
        first = settings.trace.rows[0] if settings.trace else None
        if first is not None:
            loss = settings.loss if first.loss is None else Bernoulli(first.loss)
            delay = settings.delay if first.delay is None else first.delay
            settings = replace(settings, rate=first.rate or settings.rate, delay=delay, loss=loss, trace=None)
        refused = _refused(settings, narrower=narrower)
        if first is not None and first.blocked:
            refused = "its trace begins blocked"
        return cls(box, name, settings, counts, refused, terrestrial)

    @property
    def terrestrial_ns(self) -> int:
        """The terrestrial delay, one way."""
        return self.terrestrial.rtt.ns // 2 if self.terrestrial else 0

    @property
    def shake_ns(self) -> int:
        """By how much the terrestrial jitter moves a packet, one way."""
        return self.terrestrial.jitter.ns if self.terrestrial else 0

    def counted(self, ip_bytes: int) -> int:
        """What a packet of so many IP bytes counts."""
        return ip_bytes + (ETHERNET_HEADER if self.counts is Counted.ETHERNET else 0)

    def lost(self, ip_bytes: int) -> float:
        """The share of packets of so many IP bytes that use the link and are lost then."""
        loss = self.settings.loss
        return 0.0 if loss is None or loss.where is Where.BEFORE else mean_loss(loss, self.counted(ip_bytes))

    @property
    def queue_bytes(self) -> int:
        """What full-size packets can fill of the queue."""
        packets = self.settings.queue_packets
        most = self.settings.queue.bytes
        return most if packets is None else min(most, packets * self.counted(MTU))

    def serialisation_ns(self, counted_bytes: float) -> float:
        """How long so many counted bytes take to leave."""
        return counted_bytes * 8e9 / self.settings.rate.bit_s

    @property
    def flood_bit_s(self) -> int:
        """What to send at so that the queue is soon full and stays so."""
        rate = self.settings.rate.bit_s
        return int(max(_FLOOD_RATIO * rate, rate + 8 * self.queue_bytes / _FILL_S))

    @property
    def fill_ns(self) -> int:
        """When a flood has surely filled the queue."""
        return int(1.5e9 * 8 * self.queue_bytes / (self.flood_bit_s - self.settings.rate.bit_s)) + 50_000_000

    @property
    def drain_ns(self) -> int:
        """How long what a flood has left in the link takes to come out."""
        reach = self.settings.jitter.reach.ns if self.settings.jitter else 0
        beside = self.terrestrial_ns + self.shake_ns
        return int(self.serialisation_ns(self.queue_bytes + 2 * MTU)) + self.settings.delay.ns + reach + beside

    @property
    def small_packet(self) -> int:
        """IP bytes of the packets that show what counts as a byte."""
        return min(MTU, max(_SMALLEST_PACKET, self.settings.rate.bit_s // 8 // _SMALL_PACKETS_PER_S))

    @property
    def probe_interval_ns(self) -> int:
        """Between packets on the idle link: far enough apart that none has to wait for a delayed one before it."""
        reach = self.settings.jitter.reach.ns if self.settings.jitter else 0
        return max(5_000_000, 2 * (reach + self.shake_ns))


def _refused(settings: LinkDirection, *, narrower: bool) -> str:
    if narrower:
        return "another link of the chain is narrower, so this one cannot be filled"
    if settings.loss and mean_loss(settings.loss) > _MOST_LOSS:
        return "its loss model lets too little through to fill it"
    return ""


def mean_loss(loss: Loss, counted_bytes: int = MTU) -> float:
    """The share of packets of so many counted bytes that a model of loss takes in the long run."""
    match loss:
        case Bernoulli(probability):
            return probability
        case BitError():
            return loss.of_packet(counted_bytes)
        case LossTrace():
            return statistics.fmean(loss.lost)
        case GilbertElliott():
            change = loss.good_to_bad + loss.bad_to_good
            bad = loss.good_to_bad / change if change else 0.0
            return bad * loss.loss_bad + (1 - bad) * loss.loss_good
