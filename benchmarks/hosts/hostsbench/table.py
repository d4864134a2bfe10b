# SPDX-License-Identifier: Apache-2.0
"""Results as a Markdown table."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from benchkit.markdown import markdown_table

_TITLES = (
    "way",
    "version",
    "hosts",
    "rounds",
    "last started, s",
    "least",
    "most",
    "first to last, ms",
    "least",
    "most",
)
_TEXT = 2  # columns that are aligned to the left


def table(stored: Mapping[str, Any]) -> str:
    """A row for each way; below it why a way was left out, or on how many machines it started nothing."""
    measured = [way for way in stored["results"] if "rounds" in way]
    remarks = [f"{way['way']}: left out; {way['left_out']}" for way in stored["results"] if "left_out" in way]
    for way in measured:
        missing = [way["hosts"] - start["started"] for start in way["rounds"]]
        if any(missing):
            remarks.append(f"{way['way']}: machines on which nothing was started, by round: {missing}")
    rows = markdown_table([_TITLES, *map(_row, measured)], left=_TEXT)
    return "\n".join([rows, *([""] if remarks else []), *remarks])


def _row(result: Mapping[str, Any]) -> tuple[str, ...]:
    last = [start["last_s"] for start in result["rounds"]]
    spread = [start["spread_ms"] for start in result["rounds"]]
    figures = (*(f"{of(last):.2f}" for of in (median, min, max)), *(f"{of(spread):.1f}" for of in (median, min, max)))
    return (result["way"], result["version"], str(result["hosts"]), str(len(last)), *figures)
