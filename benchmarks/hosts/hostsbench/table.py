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
_TEXT = 2  # columns of words, which begin at the left


def table(known: Mapping[str, Any]) -> str:
    """A row for each way; below it why a way was left out, or on how many machines it started nothing."""
    measured = [each for each in known["results"] if "rounds" in each]
    remarks = [f"{each['way']}: left out; {each['left_out']}" for each in known["results"] if "left_out" in each]
    for each in measured:
        missing = [each["hosts"] - start["started"] for start in each["rounds"]]
        if any(missing):
            remarks.append(f"{each['way']}: machines on which nothing was started, by round: {missing}")
    rows = markdown_table([_TITLES, *map(_row, measured)], left=_TEXT)
    return "\n".join([rows, *([""] if remarks else []), *remarks])


def _row(result: Mapping[str, Any]) -> tuple[str, ...]:
    last = [start["last_s"] for start in result["rounds"]]
    spread = [start["spread_ms"] for start in result["rounds"]]
    figures = (*(f"{of(last):.2f}" for of in (median, min, max)), *(f"{of(spread):.1f}" for of in (median, min, max)))
    return (result["way"], result["version"], str(result["hosts"]), str(len(last)), *figures)
