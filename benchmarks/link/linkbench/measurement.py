# SPDX-License-Identifier: Apache-2.0
"""The figures of one measurement, and constants that all measurements share."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from linkbench.probe import HEADER_BYTES, Records

MBIT = 1_000_000
MS = 1_000_000  # ns


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """Figures by name, the unit being the last part of it; and samples for plots only."""

    figures: dict[str, float]
    curves: dict[str, Any] = field(default_factory=dict[str, Any])


def times_ns(records: Records, base_ns: int) -> NDArray[np.float64]:
    """Stamps since ``base_ns``: small enough for floating point to keep every nanosecond."""
    return (records["t_ns"].astype(np.int64) - base_ns).astype(np.float64)


def ip_bytes(records: Records) -> NDArray[np.int64]:
    """Sizes of the packets."""
    return records["wire_bytes"].astype(np.int64) - HEADER_BYTES


def of_mark(mark: dict[str, Any] | None, *directions: str) -> dict[str, float]:
    """The box's own figures: the larger lateness of its directions, the sum of their losses."""
    if mark is None or "lateness_max_ns" not in mark[directions[0]]:
        return {}
    ways = [mark[direction] for direction in directions]
    return {
        "box_lateness_p99_us": max(way["lateness_p99_ns"] for way in ways) / 1e3,
        "box_lateness_max_us": max(way["lateness_max_ns"] for way in ways) / 1e3,
        "box_overloaded": float(any(way["overloaded"] for way in ways)),
        "box_dropped_packets": float(sum(way["dropped_packets"] for way in ways)),
    }
