# SPDX-License-Identifier: Apache-2.0
"""Figures of flows, bursts and standing queues as comparisons and studies show them.

None of them is in the summary of a run that an older version analysed; they are not measured there.
"""

from collections.abc import Callable
from typing import Any, cast

from atoll_analysis.figures.flow_classes import BOUNDS_BYTES
from atoll_analysis.summary import Summary
from atoll_core.units import Size

_Read = Callable[[Summary], float | None]

_CLASSES = (*(f"to {Size(bound)}" for bound in BOUNDS_BYTES), f"over {Size(BOUNDS_BYTES[-1])}")


def _value(part: str, figure: str, factor: float = 1) -> _Read:
    """Return how to read a figure of a part of the summary, multiplied by a factor."""

    def read(summary: Summary) -> float | None:
        found = cast("dict[str, Any]", summary.get(part) or {}).get(figure)
        return None if found is None else factor * found

    return read


def _of_class(number: int, name: str, percentile: str) -> _Read:
    def read(summary: Summary) -> float | None:
        classes = cast("list[dict[str, dict[str, float] | None]]", summary.get("flow_classes") or [])
        found = classes[number][name] if classes else None
        return found[percentile] if found else None

    return read


def _of_bursts(figure: str, factor: float = 1) -> _Read:
    """Return how to read a figure of the slowest link's bursts; None if it lost nothing."""

    def read(summary: Summary) -> float | None:
        bursts = cast("dict[str, dict[str, Any]]", summary.get("loss_bursts") or {})
        found = bursts.get(summary["bottleneck"] or "")
        return factor * found[figure] if found and found["lost"] else None

    return read


TRAFFIC_FIGURES: dict[str, tuple[str, int, _Read]] = {
    **{f"ping sojourn p{percent}": ("ms", 2, _value("ping_sojourn", f"p{percent}_ms")) for percent in (50, 95, 99)},
    "standing queue": ("%", 2, _value("standing_queue", "share", 100)),
    "standing queue height": ("ms", 2, _value("standing_queue", "mean_ms")),
    "queue full and empty": ("%", 2, _value("regime", "swinging_share", 100)),
    "losses in bursts": ("%", 1, _of_bursts("burst_share", 100)),
    "longest loss burst": ("packets", 0, _of_bursts("longest")),
    **{
        f"flow time p{percent}, {sizes}": ("s", 3, _of_class(number, "completion_s", f"p{percent}"))
        for number, sizes in enumerate(_CLASSES)
        for percent in (50, 95)
    },
    **{
        f"flow rate p50, {sizes}": ("Mbit/s", 3, _of_class(number, "rate_mbit_s", "p50"))
        for number, sizes in enumerate(_CLASSES)
    },
    "flows in the initial window": ("%", 2, _value("initial_window", "flows_share", 100)),
    "bytes in the initial window": ("%", 2, _value("initial_window", "bytes_share", 100)),
    "open flows": ("", 1, _value("concurrency", "mean")),
    "long flows": ("", 2, lambda summary: summary.get("long_flows_mean")),
}
"""By name: unit, digits after the point, and how it is read from the summary. Classes are those of flow sizes."""
