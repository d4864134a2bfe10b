# SPDX-License-Identifier: Apache-2.0
"""Two pictures: what stays lost over the overhead, and repair packets while losses change."""

from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from residuallossbench.cases import CHAINS, CHANGES, DEPTHS, SIZE
from residuallossbench.ideal_code import left

_COLOURS = ("#0b6e99", "#c0392b", "#2e8b57", "#b8860b")
_SAMPLE = 500  # packets
_PACKETS_S = 1e9 / 700_000


def draw(results: Mapping[str, Any], directory: Path) -> list[Path]:
    """SVG files in ``directory``."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "atoll", "svg.fonttype": "path", "font.size": 9, "axes.grid": True,
                         "grid.alpha": 0.3})  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for name, plot in (("coder-residual-loss.svg", _residual_losses), ("coder-redundancy.svg", _redundancy)):
        made.append(directory / name)
        plot(results).savefig(made[-1], metadata={"Date": None})
    return made


def _residual_losses(results: Mapping[str, Any]) -> Any:
    """A panel for each depth: lines of the ideal code, and a point for each adapted run."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    for axes, depth in zip(figure.subplots(1, len(DEPTHS), sharey=True), DEPTHS, strict=True):
        for chain, colour in zip(CHAINS, _COLOURS, strict=True):
            runs = [case for case in results["cases"] if case["chain"] == [chain.loss, chain.burst]]
            runs = [case for case in runs if case["depth"] == depth]
            most = max(case["repairs"] for case in runs) + 4
            numbers = [number / 4 for number in range(round(4 * most))]
            axes.plot([100 * number / SIZE for number in numbers],
                      [100 * left(chain, SIZE, depth, number).residual for number in numbers], color=colour,
                      linewidth=1, label=f"{100 * chain.loss:g} %, bursts of {chain.burst:g}")  # fmt: skip
            axes.plot([100 * case["repairs"] / SIZE for case in runs],
                      [100 * case["adapted"]["residual"] for case in runs], ".", color=colour)  # fmt: skip
        axes.axhline(100 * results["target"], color="black", linestyle=":", linewidth=1)
        axes.set(yscale="log", ylim=(0.01, 10), xlabel="repair packets, % of packets", title=f"interleave {depth}")
        if depth == DEPTHS[0]:
            axes.set_ylabel("packets that stay lost, %")
            axes.legend(fontsize=7)
    return figure


def _redundancy(results: Mapping[str, Any]) -> Any:
    """Repair packets of a generation over time, with reports and where they end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes: Any = figure.subplots()
    for case, colour in zip(results["changes"], _COLOURS, strict=False):
        ends = case["reports_until"]
        name = f"reports end at {ends / _PACKETS_S:.0f} s" if ends else "reports all the time"
        times = [number * _SAMPLE / _PACKETS_S for number in range(len(case["redundancy"]))]
        axes.plot(times, case["redundancy"], color=colour, linewidth=1, label=name, drawstyle="steps-post")
    begins = [0, *accumulate(packets for packets, _ in CHANGES)]
    for begin, (_, chain) in zip(begins, CHANGES, strict=False):
        axes.axvline(begin / _PACKETS_S, color="black", linestyle=":", linewidth=1)
        losses = f"{100 * chain.loss:g} % lost" if chain else "no loss"
        axes.annotate(losses, (begin / _PACKETS_S, 1), xytext=(3, -10), xycoords=("data", "axes fraction"),
                      textcoords="offset points", fontsize=7)  # fmt: skip
    axes.set(xlabel="time, s", ylabel="repair packets of 30 packets", ylim=(0, None))
    axes.legend(fontsize=7, loc="center left")
    return figure
