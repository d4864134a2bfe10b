# SPDX-License-Identifier: Apache-2.0
"""Counters of link and delay boxes between two marks (docs/contracts.md, "link" and "delay")."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from atoll_core.experiment.experiment import DIRECTIONS

Histogram = tuple[tuple[int, int], ...]
"""(upper bound of the bucket in ns, packets in it), ascending."""


COUNTER_CAUSES = ("queue", "low_priority", "loss", "aqm", "blocked", "unsent")
"""Of losses: a full queue, a full low-priority queue, the model of loss, the AQM, a blockage, an interface that took no
more."""


class LostFigures(TypedDict):
    """A link's losses by one cause."""

    packets: int  # packets lost by this cause
    bytes: int | None  # their bytes, as the link counts them; None: the backend does not count them


class SojournFigures(TypedDict):
    """Time in a queue.

    Of a link: of all packets, serialisation included; percentiles at most 1/16 too long. Of the ping series: RTT minus
    base RTT, percentiles by linear interpolation.
    """

    mean_ms: float | None  # mean; None: an older version did not sum it
    p50_ms: float  # median
    p95_ms: float  # 95th percentile
    p99_ms: float  # 99th percentile
    max_ms: float  # maximum


class LowPriorityFigures(TypedDict):
    """The low-priority queue of a link, in the direction to the island."""

    queue_bytes: int  # configured capacity
    queue_max_bytes: int | None  # most bytes in it; None: not measured
    in_packets: int | None  # packets that came for it; None: not measured
    sent_packets: int | None  # of these, the packets that were sent; None: not measured
    sent_bytes: int | None  # their bytes, as the link counts them; None: not measured
    sojourn: SojournFigures | None  # time in it; None: the backend does not measure it, or no packet was sent


@dataclass(frozen=True, slots=True)
class Part:
    """One direction of a link, or one class of a delay box, from mark "begin" to mark "end".

    ``name`` is "to_island", "to_world" or the class's VLAN id. Bytes are counted as the link counts them.
    """

    name: str
    in_packets: int
    in_bytes: int
    out_packets: int
    out_bytes: int
    dropped_packets: int
    dropped_bytes: int
    queue_max_bytes: int
    idle_ns: int
    sojourn_max_ns: int
    scheduled_windows_over_rate: int
    lateness_max_ns: int | None  # None: the kernel's tc, which does not measure it
    lateness_p99_ns: int  # the largest, when several marks lie between
    lateness_histogram: Histogram
    losses: Mapping[str, LostFigures]  # by cause, those that the box counts separately
    lost_after_bytes: int | None  # of the dropped ones: lost after they had used the link; None: not counted
    clamped_packets: int  # taken to have arrived later than they did, which their lateness includes
    clamped_max_ns: int
    sojourn: SojournFigures | None  # None: not measured, or nothing was sent
    low_priority: Mapping[str, Any] | None  # LowPriorityFigures but its capacity; None: there is no such queue


@dataclass(frozen=True, slots=True)
class BoxMeasurement:
    """Measurement of one box from mark "begin" to mark "end"."""

    box: str
    parts: tuple[Part, ...]
    overloaded: bool  # it lost packets at its own sockets
    oversize_packets: int  # larger than the MTU, refused
    unknown_vlan_packets: int  # of no class of a delay box, lost
    unread_packets: int  # lost by its own full sockets
    unstamped_packets: int  # taken to have arrived when they were read
    no_checksum_packets: int  # of senders that leave it to hardware; receivers discard them
    sums: Mapping[str, int]  # of all numbers of the box as a whole


_SUMMED_COUNTERS = (
    "in_packets",
    "in_bytes",
    "out_packets",
    "out_bytes",
    "dropped_packets",
    "dropped_bytes",
    "idle_ns",
    "scheduled_windows_over_rate",
)
BOX_COUNTS = ("oversize_packets", "unknown_vlan_packets", "unread_packets", "unstamped_packets", "no_checksum_packets")
"""Counters of a box as a whole, in :class:`BoxMeasurement`."""

_MAXIMUM_COUNTERS = ("queue_max_bytes", "sojourn_max_ns", "lateness_p99_ns")
_LARGEST_NS = 2**63 - 1


def measurements(lines: Iterable[Mapping[str, Any]]) -> tuple[BoxMeasurement, ...]:
    """Return every box's measurement between the marks; boxes without an "end" mark are left out.

    A mark covers the time since the previous mark, so all marks after "begin" up to "end" are combined.
    """
    marks: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    ended_boxes: set[str] = set()
    for box, name, line in _until_end(lines):
        if name == "begin":
            marks[box] = []
        elif name is not None:
            marks[box].append(line)
        if name == "end":
            ended_boxes.add(box)
    return tuple(_measurement(box, box_marks) for box, box_marks in marks.items() if box in ended_boxes)


def _until_end(lines: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Every box's lines up to its first mark "end", with the box and the name of the mark; None: another line."""
    ended_boxes: set[str] = set()
    for line in lines:
        box = str(line.get("box", ""))
        if box in ended_boxes:
            continue
        name = line.get("mark", line.get("id")) if line.get("type") == "mark" else None
        if name == "end":
            ended_boxes.add(box)
        yield box, name, line


def parts(line: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The directions or classes of a counters or mark line, with their figures."""
    directions = [(name, line[name]) for name in DIRECTIONS if name in line]
    return [*directions, *(line.get("classes") or {}).items()]


def _measurement(box: str, marks: list[Mapping[str, Any]]) -> BoxMeasurement:
    names = dict.fromkeys(name for mark in marks for name, _ in parts(mark))
    counts = [*marks, *(figures for mark in marks for _, figures in parts(mark))]  # of the box, or of a direction
    return BoxMeasurement(
        box=box,
        parts=tuple(
            _part(name, [figures for mark in marks for part, figures in parts(mark) if part == name]) for name in names
        ),
        overloaded=any(bool(figures.get("overloaded")) for figures in counts),
        **{counter: sum(int(figures.get(counter, 0)) for figures in counts) for counter in BOX_COUNTS},
        sums={name: _sum(name, marks) or 0 for name, figure in marks[-1].items() if type(figure) is int},
    )


def _part(name: str, figures: list[Mapping[str, Any]]) -> Part:
    return Part(
        name=name,
        **{counter: sum(int(figure.get(counter, 0)) for figure in figures) for counter in _SUMMED_COUNTERS},
        **{peak: max(int(figure.get(peak, 0)) for figure in figures) for peak in _MAXIMUM_COUNTERS},
        lateness_max_ns=max(
            (int(figure["lateness_max_ns"]) for figure in figures if "lateness_max_ns" in figure), default=None
        ),
        lateness_histogram=_merged_histogram(figure.get("lateness_histogram") or () for figure in figures),
        losses={cause: lost for cause in COUNTER_CAUSES if (lost := _lost(cause, figures)) is not None},
        lost_after_bytes=_sum("lost_after_bytes", figures),
        clamped_packets=_sum("clamped_packets", figures) or 0,
        clamped_max_ns=max(int(figure.get("clamped_max_ns", 0)) for figure in figures),
        sojourn=_sojourn(figures),
        low_priority=_low_priority(figures),
    )


_LOW_PRIORITY = "low_priority_"


def _low_priority(figures: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    low_figures: list[Mapping[str, Any]] = [
        {key.removeprefix(_LOW_PRIORITY): count for key, count in figure.items() if key.startswith(_LOW_PRIORITY)}
        for figure in figures
    ]
    if not all(low_figures):
        return None
    return {
        "queue_max_bytes": max(int(figure.get("queue_max_bytes", 0)) for figure in low_figures),
        **{name: _sum(name, low_figures) or 0 for name in ("in_packets", "sent_packets", "sent_bytes")},
        "sojourn": _sojourn(low_figures),
    }


def _lost(cause: str, figures: list[Mapping[str, Any]]) -> LostFigures | None:
    packets = _sum(f"dropped_{cause}_packets", figures)
    return None if packets is None else LostFigures(packets=packets, bytes=_sum(f"dropped_{cause}_bytes", figures))


def _sum(counter: str, figures: list[Mapping[str, Any]]) -> int | None:
    """The sum over all marks; None if one of them does not have the counter."""
    counts: list[Any] = [figure.get(counter) for figure in figures]
    return None if None in counts else sum(map(int, counts))


def _sojourn(figures: list[Mapping[str, Any]]) -> SojournFigures | None:
    """Of the kernel's tc: the time that its queue takes to empty, by samples 20 ms apart."""
    histogram = _merged_histogram(figure.get("sojourn_histogram") or () for figure in figures)
    if not histogram:
        return None
    longest = max(int(figure.get("sojourn_max_ns", 0)) for figure in figures)
    count, total = _sum("sojourn_count", figures), _sum("sojourn_sum_ns", figures)
    p50, p95, p99 = (min(_quantile(histogram, percent), longest) / 1e6 for percent in (50, 95, 99))
    mean_ms = total / count / 1e6 if count and total is not None else None
    return SojournFigures(mean_ms=mean_ms, p50_ms=p50, p95_ms=p95, p99_ms=p99, max_ms=longest / 1e6)


_INTERVAL_NS = 100_000_000  # docs/contracts.md, "link"


def stalls(
    lines: Iterable[Mapping[str, Any]], limit_ns: int, window_ns: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Return number and total ns of all boxes' stalls in the measurement (to 100 ms); None: no box measures lateness.

    In a stall a box sent nothing although packets were due. Boxes add up their own stalls. Of boxes of older versions,
    a counters line whose largest lateness is beyond the limit ends a stall of that length. Stalls of several boxes in
    the same 100 ms count as one stall of the machine, as long as the longest of them. The time after the last counters
    line is covered by the mark "end".
    """
    first_ns, last_ns = window_ns or (0, _LARGEST_NS - _INTERVAL_NS)
    has_lateness = False
    begun_boxes: set[str] = set()  # boxes with a mark "begin"
    stall_sums: dict[tuple[str, str], int] = {}  # of the stalls of a part since its box began
    since_mark: dict[tuple[str, str], int] = defaultdict(int)
    stall_lines: list[tuple[int, str, int]] = []
    for box, name, line in _until_end(lines):
        lengths: list[int | None] = []
        if line.get("type") == "counters":
            for part, figures in parts(line):
                length = _stalled_ns((box, part), figures, stall_sums, limit_ns)
                since_mark[box, part] += length or 0
                lengths.append(length)
        elif name is not None:
            begun_boxes.add(box)
            after_last_line = [
                max(0, int(figures["stall_ns"]) - since_mark[box, part])
                for part, figures in parts(line)
                if "stall_ns" in figures
            ]
            lengths += after_last_line if name == "end" else []
            since_mark = defaultdict(int, {part: length for part, length in since_mark.items() if part[0] != box})
        longest = max((length for length in lengths if length is not None), default=None)
        if longest is not None and box in begun_boxes and first_ns < int(line["t_ns"]) <= last_ns + _INTERVAL_NS:
            has_lateness = True
            stall_lines += [(int(line["t_ns"]), box, longest)] if longest else []
    return _merged(sorted(stall_lines)) if has_lateness else None


def _stalled_ns(
    part: tuple[str, str], figures: Mapping[str, Any], stall_sums: dict[tuple[str, str], int], limit_ns: int
) -> int | None:
    """For how long a part has stalled since its counters before; None: it does not measure lateness."""
    if "stall_ns" in figures:
        total, previous = int(figures["stall_ns"]), stall_sums.get(part, 0)
        stall_sums[part] = total
        return total - previous if total >= previous else total  # a box that restarted begins at 0
    latest = figures.get("lateness_max_ns")
    return None if latest is None else int(latest) * (int(latest) > limit_ns)


def _merged(stall_lines: list[tuple[int, str, int]]) -> tuple[int, int]:
    """``stall_lines``: instant, box and length of what its counters lines show, ascending."""
    lengths: list[int] = []
    first_ns = 0
    boxes: set[str] = set()
    for t_ns, box, length_ns in stall_lines:
        if not lengths or box in boxes or t_ns - first_ns >= _INTERVAL_NS:
            lengths.append(0)
            first_ns = t_ns
            boxes.clear()
        lengths[-1] = max(lengths[-1], length_ns)
        boxes.add(box)
    return len(lengths), sum(lengths)


def lateness_p99_ns(measured: Iterable[BoxMeasurement]) -> int | None:
    """Return the worst p99 of lateness among link directions and delay boxes; None without any packet.

    A delay box's classes count together, as a class with few packets has no meaningful p99 of its own.
    """
    groups: dict[tuple[str, str], list[Part]] = defaultdict(list)
    for box in measured:
        for part in box.parts:
            if part.lateness_max_ns is not None:
                groups[box.box, part.name if part.name in DIRECTIONS else ""].append(part)
    return max((_p99(group) for group in groups.values() if any(part.out_packets for part in group)), default=None)


def _p99(group: list[Part]) -> int:
    # The histograms' answer is rounded up to a bucket's bound; no p99 of the whole exceeds the largest of its parts.
    largest = max(part.lateness_p99_ns for part in group)
    histogram = _merged_histogram(part.lateness_histogram for part in group)
    return min(_quantile(histogram, 99), largest) if histogram else largest


def _quantile(histogram: Histogram, percent: int) -> int:
    """The upper bound of the bucket below which so many of 100 lie; the histogram is not empty."""
    total = sum(count for _, count in histogram)
    cumulative_count = 0
    for upper, count in histogram:
        cumulative_count += count
        if 100 * cumulative_count >= percent * total:
            return upper
    return histogram[-1][0]


def _merged_histogram(histograms: Iterable[Iterable[Any]]) -> Histogram:
    counts: dict[int, int] = defaultdict(int)
    for histogram in histograms:
        for upper, count in histogram:
            counts[_LARGEST_NS if upper is None else int(upper)] += int(count)
    return tuple(sorted(counts.items()))
