# SPDX-License-Identifier: Apache-2.0
"""One direction of a link: the flood that fills it, expected figures, and comparison with measured ones. Pure.

docs/calibration.md explains each row.

Times in ns, rates in bit/s of IP packets unless the link counts Ethernet.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from atoll_controller.planner.traffic_jobs import PING_PACKET_BYTES
from atoll_core.experiment.experiment import Bernoulli, Counted, JitterShape, LinkDirection, LossPoint, mean_loss
from atoll_core.lab.network import MTU, LatencyClass

ETHERNET_HEADER = 14

# A flood is this much above the rate, and fills the queue within this time.
_FLOOD_RATIO = 1.25
_FILL_S = 0.25
# The bytes counted per packet show best with small packets, but software switches forward a limited number per second.
_SMALL_PACKETS_PER_S = 4000
_SMALLEST_PACKET_BYTES = 128
# A flood of 1.25 of the rate still is one after this much loss.
_MAX_LOSS = 0.1

_MAX_CORRELATION = 0.5
_NORMAL_QUARTILES = 1.349  # interquartile range of the normal distribution, in standard deviations

# This share of a flood still fills the queue: it is at least 1.19 times the rate.
_MIN_ARRIVED = 0.95
# Steps of the receiver's counters (100 ms) in one window whose rate is taken: half a second.
_WINDOW_STEPS = 5


@dataclass(frozen=True, slots=True)
class LinkUnderTest:
    """One direction of a link with its settings before a run: at the beginning of its trace, if it follows one."""

    box: str
    name: str  # "to_island" or "to_world"
    settings: LinkDirection
    counts: Counted
    refusal: str = ""  # why it cannot be flooded; empty if it can
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
        first_row = settings.trace.rows[0] if settings.trace else None
        if first_row is not None:
            loss = settings.loss if first_row.loss is None else Bernoulli(first_row.loss)
            delay = settings.delay if first_row.delay is None else first_row.delay
            settings = replace(settings, rate=first_row.rate or settings.rate, delay=delay, loss=loss, trace=None)
        refusal = ""
        if first_row is not None and first_row.blocked:
            refusal = "its trace begins with a blocked link"
        elif narrower:
            refusal = "another link of the chain has a lower rate, so this one cannot be filled"
        elif settings.loss and mean_loss(settings.loss, mtu + overhead_bytes) > _MAX_LOSS:
            refusal = "its loss model drops too many packets to fill it"
        return cls(box, name, settings, counts, refusal, terrestrial, mtu, overhead_bytes)

    @property
    def terrestrial_ns(self) -> int:
        """The terrestrial delay, one way."""
        return self.terrestrial.rtt.ns // 2 if self.terrestrial else 0

    @property
    def jitter_ns(self) -> int:
        """The maximum effect of the link's jitter."""
        return self.settings.jitter.bound.ns if self.settings.jitter else 0

    @property
    def terrestrial_jitter_ns(self) -> int:
        """The terrestrial jitter, one way."""
        return self.terrestrial.jitter.ns if self.terrestrial else 0

    def counted_bytes(self, ip_bytes: int) -> int:
        """The counted bytes of a packet that has this number of IP bytes at hosts."""
        return ip_bytes + self.overhead_bytes + (ETHERNET_HEADER if self.counts is Counted.ETHERNET else 0)

    def lost_share(self, ip_bytes: int) -> float:
        """The share of packets of this size that are lost after they have used the link."""
        loss = self.settings.loss
        return 0.0 if loss is None or loss.where is LossPoint.BEFORE else mean_loss(loss, self.counted_bytes(ip_bytes))

    @property
    def queue_bytes(self) -> int:
        """The part of the queue that full-size packets can fill."""
        packets = self.settings.queue_packets
        limit = self.settings.queue.bytes
        return limit if packets is None else min(limit, packets * self.counted_bytes(self.mtu))

    def serialisation_ns(self, counted_bytes: float) -> float:
        """The serialisation time of counted bytes."""
        return counted_bytes * 8e9 / self.settings.rate.bit_s

    @property
    def ping_ns(self) -> float:
        """The serialisation time of a ping, or of another single packet."""
        return self.serialisation_ns(self.counted_bytes(PING_PACKET_BYTES))

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
        empty_ns = int(self.serialisation_ns(self.queue_bytes + 2 * self.mtu))
        return empty_ns + self.settings.delay.ns + self.jitter_ns + self.terrestrial_ns + self.terrestrial_jitter_ns

    @property
    def small_packet(self) -> int:
        """IP bytes of the packets that show the counted bytes per packet."""
        return min(self.mtu, max(_SMALLEST_PACKET_BYTES, self.settings.rate.bit_s // 8 // _SMALL_PACKETS_PER_S))

    @property
    def probe_interval_ns(self) -> int:
        """The interval of packets on the idle link: long enough that none waits for one before it."""
        return max(5_000_000, 2 * (self.jitter_ns + self.terrestrial_jitter_ns), 2 * math.ceil(self.ping_ns))


class CheckState(StrEnum):
    """Result of a comparison."""

    OK = "ok"
    OFF = "off"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class _Tolerance:
    """Tolerances for effects of the machine. Delays are exact to the jitter of process scheduling."""

    early_ns: int  # below a delay: the resolution of time stamps
    lab_ns: int  # one way: switches and process switches between two hosts
    lab_ratio: float
    loaded_ns: int  # of an RTT under load, beyond the bound and what the idle path took
    rate_ratio: float
    spread_ns: int  # that a machine adds to the spread of one-way delays
    spread_ratio: float  # of jitter, from some hundred samples
    byte: float  # of the bytes counted in addition to the IP packet


PRECISE = _Tolerance(100_000, 3_000_000, 0.02, 2_000_000, 0.005, 3_000_000, 0.35, 4)
"""For a calibration on an idle machine."""

ROUGH = replace(PRECISE, loaded_ns=15_000_000, rate_ratio=0.1)
"""For the configuration test of a run: distinguishes a wrong setting from a right one on any machine."""


@dataclass(frozen=True, slots=True)
class CalibrationFigure:
    """One figure of one direction of a link: configured value, measured value and bounds."""

    box: str
    direction: str
    name: str
    unit: str
    configured: float
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    state: CheckState = CheckState.SKIPPED
    why: str = ""

    def judge(self, measured: float, low: float, high: float, why: str = "") -> "CalibrationFigure":
        """The row with its measured value, bounds and result."""
        state = CheckState.OK if low <= measured <= high else CheckState.OFF
        return replace(
            self, measured=measured, low=low, high=high, state=state, why="" if state is CheckState.OK else why
        )

    def __str__(self) -> str:
        figure = f"{self.box} {self.direction} {self.name}"
        if self.measured is None:
            return f"{figure}: not judged: {self.why}"
        values = f"{self.measured:.5g} {self.unit}, configured {self.configured:.5g} {self.unit}"
        why = f"; {self.why}" if self.why else ""
        return f"{figure}: {values} (allowed {self.low:.4g} to {self.high:.4g}){why}"


def skipped_row(row: CalibrationFigure, why: str) -> CalibrationFigure:
    """The row without a comparison, with the reason."""
    return replace(row, measured=None, low=None, high=None, state=CheckState.SKIPPED, why=why)


def row_of(link: LinkUnderTest, name: str, unit: str, configured: float) -> CalibrationFigure:
    """A row without a measured value."""
    return CalibrationFigure(link.box, link.name, name, unit, configured)


# The rows


def delay_row(
    link: LinkUnderTest, one_way_ns: Sequence[int], other_links_ns: int, tolerance: _Tolerance
) -> CalibrationFigure:
    """The propagation delay: the least one-way delay of single packets, less their serialisation; median with jitter.

    ``other_links_ns``: delays of the chain's other links and of the world end. Further delays of a path are not known,
    but the bounds allow for them.
    """
    row = row_of(link, "delay", "ms", link.settings.delay.ms)
    if not one_way_ns:
        return replace(row, state=CheckState.OFF, why="no packet arrived")
    subtracted_ns = link.ping_ns + other_links_ns
    base = statistics.median(one_way_ns) if link.settings.jitter or link.terrestrial_jitter_ns else min(one_way_ns)
    spread = ((link.settings.jitter.amount.ns if link.settings.jitter else 0) + link.terrestrial_jitter_ns) / 2
    delay = link.settings.delay.ns
    high = delay + spread + tolerance.lab_ns + tolerance.lab_ratio * delay
    return row.judge((base - subtracted_ns) / 1e6, (delay - spread - tolerance.early_ns) / 1e6, high / 1e6)


def jitter_row(
    link: LinkUnderTest, one_way_ns: Sequence[int], *, is_ambiguous: bool, tolerance: _Tolerance
) -> CalibrationFigure:
    """The interquartile range of one-way delays, which a few late packets on a busy machine do not change.

    ``is_ambiguous``: other links of the chain, or the world end's latency, have jitter, too.
    """
    jitter = link.settings.jitter
    row = row_of(link, "jitter (interquartile)", "ms", quartiles_ns(link.settings) / 1e6)
    if is_ambiguous:
        return skipped_row(row, "another link of the chain, or the terrestrial latency, has jitter, too")
    if jitter is not None and jitter.distribution is JitterShape.PARETO:
        return skipped_row(row, "the spread of a Pareto distribution cannot be estimated from few packets")
    if jitter is not None and jitter.correlation > _MAX_CORRELATION:
        return skipped_row(row, "jitter with this correlation cannot be estimated from few packets")
    if len(one_way_ns) < 20:
        return skipped_row(row, f"only {len(one_way_ns)} packets arrived")
    low, _, high = statistics.quantiles(one_way_ns, n=4)
    expected = quartiles_ns(link.settings)
    minimum, maximum = expected * (1 - tolerance.spread_ratio), expected * (1 + tolerance.spread_ratio)
    return row.judge((high - low) / 1e6, minimum / 1e6, (maximum + tolerance.spread_ns) / 1e6)


def quartiles_ns(settings: LinkDirection) -> float:
    """The interquartile range of the configured jitter."""
    jitter = settings.jitter
    if jitter is None:
        return 0.0
    return jitter.amount.ns * (_NORMAL_QUARTILES if jitter.distribution is JitterShape.NORMAL else 1.0)


def steady_rate(counters: Sequence[Mapping[str, Any]], start_ns: int) -> tuple[float, float] | None:
    """(packets, IP bytes) a second of a saturated link from ``start_ns`` on: upper quartile of half-second windows.

    Windows begin and end with a packet, so they contain whole packets. Some rates are low because the sender was
    delayed and the link ran empty, hence the upper quartile. None if there is no window. ``counters``: the receiver's
    lines, which count ``packets`` and ``bytes`` of IP until the last packet's arrival, ``last_ns``.
    """
    steady = [sample for sample in counters if sample["last_ns"] >= start_ns]
    step = min(_WINDOW_STEPS, len(steady) - 1)
    pairs = zip(steady, steady[step:], strict=False) if step > 0 else ()
    windows = [(a, b) for a, b in pairs if b["last_ns"] > a["last_ns"]]
    if not windows:
        return None
    packets, volumes = (
        sorted((b[counter] - a[counter]) * 1e9 / (b["last_ns"] - a["last_ns"]) for a, b in windows)
        for counter in ("packets", "bytes")
    )
    upper_quartile = len(windows) * 3 // 4
    return packets[upper_quartile], volumes[upper_quartile]


def rate_row(link: LinkUnderTest, steady: tuple[float, float] | None, tolerance: _Tolerance) -> CalibrationFigure:
    """The rate of the longest IP packets, in IP bits per second.

    It is less than configured if Ethernet headers count as well, and if packets are lost behind the transmitter: the
    tolerance is increased by the expected loss.
    """
    lost_share = link.lost_share(link.mtu)
    expected = link.settings.rate.bit_s * link.mtu / link.counted_bytes(link.mtu) * (1 - lost_share)
    row = row_of(link, "rate of IP packets", "Mbit/s", expected / 1e6)
    if steady is None:
        return replace(row, state=CheckState.OFF, why="almost no packet arrived")
    allowed = (tolerance.rate_ratio + lost_share) * expected
    return row.judge(8 * steady[1] / 1e6, (expected - allowed) / 1e6, (expected + allowed) / 1e6)


def byte_row(
    link: LinkUnderTest, steady: tuple[float, float] | None, packet_bytes: int, tolerance: _Tolerance
) -> CalibrationFigure:
    """The bytes that each packet counts in addition to its IP bytes, from the rate of small packets."""
    row = row_of(link, "counted in addition to IP", "B", link.counted_bytes(0))
    if steady is None or not steady[0]:
        return replace(row, state=CheckState.OFF, why="almost no packet arrived")
    lost_share = link.lost_share(packet_bytes)
    overhead = link.settings.rate.bit_s / 8 / steady[0] * (1 - lost_share) - packet_bytes
    allowed = tolerance.byte + lost_share * link.counted_bytes(packet_bytes)
    return row.judge(overhead, link.counted_bytes(0) - allowed, link.counted_bytes(0) + allowed)


def queue_row(link: LinkUnderTest, mark: dict[str, Any]) -> CalibrationFigure:
    """The maximum queue length under a flood, as counted by the box: within one packet of the configured size."""
    row = row_of(link, "queue", "kB", link.queue_bytes / 1e3)
    max_bytes = mark.get("queue_max_bytes")
    if link.settings.aqm:
        return skipped_row(row, "not judged, because the AQM keeps the queue short")
    if max_bytes is None:
        return skipped_row(row, "this box does not measure its queue")
    return row.judge(max_bytes / 1e3, (link.queue_bytes - link.counted_bytes(link.mtu)) / 1e3, link.queue_bytes / 1e3)


def loaded_row(
    links: Sequence[LinkUnderTest], rtts_ns: Sequence[int], base_ns: int, jitter_ns: int, tolerance: _Tolerance
) -> CalibrationFigure:
    """The RTT across full queues: its median, between 8(Q-2MTU)/R and 8(Q+MTU)/R above that of the idle path.

    A full queue has less than a packet of free space; in tc the packet being sent also occupies it.
    ``links``: the flooded directions; the row names the box of the first one.
    """
    name = links[0].name if len(links) == 1 else "both"
    full_ns = sum(link.serialisation_ns(link.queue_bytes) for link in links)
    packet_ns = sum(link.serialisation_ns(link.counted_bytes(link.mtu)) for link in links)
    row = CalibrationFigure(links[0].box, name, "RTT under load", "ms", (base_ns + full_ns) / 1e6)
    if any(link.settings.aqm for link in links):
        return skipped_row(row, "not judged, because the AQM keeps the queue short")
    if len(rtts_ns) < 5:
        return replace(row, state=CheckState.OFF, why="pings were not answered while the link was full")
    low = base_ns + full_ns - 2 * packet_ns - jitter_ns - tolerance.early_ns - tolerance.loaded_ns / 4
    high = base_ns + full_ns + packet_ns + jitter_ns + tolerance.loaded_ns
    return row.judge(statistics.median(rtts_ns) / 1e6, low / 1e6, high / 1e6)


def offered_note(mark: dict[str, Any], sent_bytes: float) -> str:
    """The reason why a link may not have been filled: the flood did not reach it. Empty if it did."""
    arrived = mark.get("in_bytes")
    if arrived is None or arrived >= _MIN_ARRIVED * sent_bytes:
        return ""
    return (
        f"of {sent_bytes * 8 / 1e6:.1f} Mbit sent to the link only {arrived * 8 / 1e6:.1f} arrived: "
        "this machine or its lab cannot forward enough to fill it"
    )
