# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown tables."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchkit.markdown import markdown_table
from controllerbench.swaps import STAGES

_SWAP_NAMES = {"whole": "from intent to the old version gone", "beyond_drain": "all but the drain"}
_TITLES = {
    "verified_s": "From a plan in memory to a data plane verified by a probe on every path, seconds (times atoll's)",
    "install_s": "Of these until the way itself is sure of the table, seconds (times atoll's)",
    "change_s": "One entry changed of so many, verified by a probe, seconds (times atoll's)",
}
_REFERENCE = "atoll"


def tables(known: Mapping[str, Any]) -> str:
    """A table for each figure, how each way makes sure, and a table of swaps."""
    results: list[dict[str, Any]] = known["results"]
    parts = [f"{title}\n\n{_table(results, figure)}" for figure, title in _TITLES.items() if results]
    checks = {result["way"]: result["checks"] for result in results}
    if checks:
        parts.append("Made sure of by:\n\n" + "\n".join(f"- {way}: {how}" for way, how in checks.items()))
    left_out = {
        result["way"]: result.get("left_out") or f"{result['entries']} entries failed: {result['failed']}"
        for result in results
        if "left_out" in result or "failed" in result
    }
    if left_out:
        parts.append("\n".join(f"{way}: {why}" for way, why in left_out.items()))
    if known.get("swaps"):
        parts.append(_swaps(known["swaps"]))
    return "\n\n".join(parts)


def _swaps(swaps: Sequence[Mapping[str, Any]]) -> str:
    """Medians of the stages, a column for each propagation delay."""
    figures = ["whole", *STAGES, "beyond_drain"]
    rows = [["one-way delay of the link", *(f"{swap['delay_ms']} ms" for swap in swaps)]]
    rows += [[_SWAP_NAMES.get(name, name), *(f"{median(swap[f'{name}_s']):.3f}" for swap in swaps)] for name in figures]
    number = len(swaps[0]["whole_s"])
    title = f"A swap on the demo's laboratory ({swaps[0]['swap']}), seconds, medians of {number}"
    return f"{title}\n\n{markdown_table(rows)}"


def _table(results: Sequence[dict[str, Any]], figure: str) -> str:
    medians = {(result["way"], result["entries"]): median(result[figure]) for result in results if result.get(figure)}
    sizes = sorted({size for _, size in medians})
    ways = list(dict.fromkeys(way for way, _ in medians))
    rows = [["entries", *(str(size) for size in sizes)]]
    rows += [[way, *(_cell(medians, way, size) for size in sizes)] for way in ways]
    return markdown_table(rows)


def _cell(medians: dict[tuple[str, int], float], way: str, size: int) -> str:
    if (way, size) not in medians:
        return "-"
    seconds = medians[way, size]
    reference = medians.get((_REFERENCE, size))
    ratio = "" if reference is None or way == _REFERENCE else f" ({seconds / reference:.1f})"
    return f"{seconds:.3f}{ratio}"
