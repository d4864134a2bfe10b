# SPDX-License-Identifier: Apache-2.0
"""What link and delay boxes measured of themselves between two marks (docs/contracts.md, "link" and "delay")."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Histogram = tuple[tuple[int, int], ...]
"""(upper bound of the bucket in ns, packets in it), ascending."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One direction of a link, or one class of a delay box, from mark "begin" to mark "end".

    ``part`` is "to_island", "to_world" or the class's VLAN id. Bytes are counted as the link counts them.
    """

    box: str
    part: str
    in_packets: int
    in_bytes: int
    out_packets: int
    out_bytes: int
    dropped_packets: int
    dropped_bytes: int
    oversize_packets: int
    queue_max_bytes: int
    idle_ns: int
    sojourn_max_ns: int
    scheduled_windows_over_rate: int
    lateness_max_ns: int
    lateness_p99_ns: int  # the largest, when several marks lie between
    lateness_histogram: Histogram
    overloaded: bool
    unknown_vlan_packets: int

    @property
    def is_link(self) -> bool:
        """Whether this is a link's direction rather than a delay class."""
        return self.part in ("to_island", "to_world")


_SUMS = (
    "in_packets",
    "in_bytes",
    "out_packets",
    "out_bytes",
    "dropped_packets",
    "dropped_bytes",
    "oversize_packets",
    "idle_ns",
    "scheduled_windows_over_rate",
)
_MAXIMA = ("queue_max_bytes", "sojourn_max_ns", "lateness_max_ns", "lateness_p99_ns")
_ABOVE_ALL = 2**63 - 1


def measurements(lines: Iterable[Mapping[str, Any]]) -> tuple[Measurement, ...]:
    """What every box measured between the marks; boxes without an "end" mark are left out.

    A mark tells of the time since the one before it, so everything after "begin" up to "end" is put together.
    """
    marks: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    finished: set[str] = set()
    for line in lines:
        box = str(line.get("box", ""))
        if line.get("type") != "mark" or box in finished:
            continue
        name = line.get("mark", line.get("id"))
        if name == "begin":
            marks[box] = []
            continue
        marks[box].append(line)
        if name == "end":
            finished.add(box)
    return tuple(
        _together(box, part, [(mark, found) for mark in marks[box] for name, found in parts(mark) if name == part])
        for box in marks
        if box in finished
        for part in dict.fromkeys(name for mark in marks[box] for name, _ in parts(mark))
    )


def parts(line: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The directions or classes of a counters or mark line, with their figures."""
    directions = [(name, line[name]) for name in ("to_island", "to_world") if name in line]
    return [*directions, *(line.get("classes") or {}).items()]


def _together(box: str, part: str, found: list[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Measurement:
    figures = [figure for _, figure in found]
    sums = {name: sum(int(figure.get(name, 0)) for figure in figures) for name in _SUMS}
    maxima = {name: max(int(figure.get(name, 0)) for figure in figures) for name in _MAXIMA}
    return Measurement(
        box=box,
        part=part,
        **sums,
        **maxima,
        lateness_histogram=_sum_of(figure.get("lateness_histogram") or () for figure in figures),
        overloaded=any(bool(mark.get("overloaded") or figure.get("overloaded")) for mark, figure in found),
        unknown_vlan_packets=sum(int(mark.get("unknown_vlan_packets", 0)) for mark, _ in found),
    )


def lateness_p99_ns(measured: Iterable[Measurement]) -> int | None:
    """The worst p99 of lateness among link directions and delay boxes; None without any packet.

    A delay box's classes count together, as a class with few packets has no meaningful p99 of its own.
    """
    groups: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for m in measured:
        groups[m.box, m.part if m.is_link else "classes"].append(m)
    return max((_p99(group) for group in groups.values() if any(m.out_packets for m in group)), default=None)


def _p99(group: list[Measurement]) -> int:
    # The histograms' answer is rounded up to a bucket's bound; no p99 of the whole exceeds the largest of its parts.
    largest = max(m.lateness_p99_ns for m in group)
    histogram = _sum_of(m.lateness_histogram for m in group)
    total = sum(count for _, count in histogram)
    below = 0
    for upper, count in histogram:
        below += count
        if 100 * below >= 99 * total:
            return min(upper, largest)
    return largest


def _sum_of(histograms: Iterable[Iterable[Any]]) -> Histogram:
    counts: dict[int, int] = defaultdict(int)
    for histogram in histograms:
        for upper, count in histogram:
            counts[_ABOVE_ALL if upper is None else int(upper)] += int(count)
    return tuple(sorted(counts.items()))
