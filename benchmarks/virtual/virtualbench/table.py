# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown tables."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchkit.markdown import markdown_table

_PARTS = {
    "boot_s": "kernel and lab",
    "test_s": "plan and test",
    "load_s": "load",
    "record_s": "record",
    "analysis_s": "analysis",
}


def tables(known: dict[str, Any]) -> str:
    """The duration of each experiment by step, and how much two at once slow each other down."""
    parts = [_cases(list(known["cases"].values()))] if known.get("cases") else []
    parts += [_two(known["two"])] if "two" in known else []
    return "\n\n".join(parts)


def _cases(cases: Sequence[dict[str, Any]]) -> str:
    rows = [["experiment", "virtual", "wall", "x real time", *_PARTS.values(), "valid"]]
    for case in cases:
        runs = case["runs"]
        wall_s = median(run["wall_s"] for run in runs)
        rows.append(
            [
                case["name"],
                f"{case['duration_s']} s",
                f"{wall_s:.1f} s",
                f"{case['duration_s'] / wall_s:.3g}",
                *(f"{median(run[part] for run in runs):.1f}" for part in _PARTS),
                "yes" if all(run["valid"] for run in runs) else "no",
            ]
        )
    return markdown_table(rows)


def _two(two: dict[str, Any]) -> str:
    rows = [["two at once", "alone", "slower of two", "ratio of medians", "single ratios"]]
    alone = [run["wall_s"] for run in two["alone"]]
    slower = [max(run["wall_s"] for run in pair) for pair in two["pairs"]]
    rows.append(_compared(f"runs of {two['duration_s']} s", alone, slower))
    rows += [_compared(f"mere {kind}", each["alone_s"], each["two_s"]) for kind, each in two["spinning"].items()]
    return markdown_table(rows)


def _compared(name: str, alone: Sequence[float], two: Sequence[float]) -> list[str]:
    ratios = sorted(together / single for single, together in zip(alone, two, strict=True))
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return [name, f"{median(alone):.1f} s", f"{median(two):.1f} s", f"{median(two) / median(alone):.2f}", spread]
