# SPDX-License-Identifier: Apache-2.0
"""Two pictures: the distribution of the added-delay errors, and the bytes in each window of 100 ms."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linkbench.collect import HERE, Result
from linkbench.scenarios import ENGINE, SCENARIOS

_COLOURS = {"engine": "#0b6e99", "rattan": "#c0392b", "tbf": "#7f8c8d", "netem+tbf": "#b8860b"}
_LEAST_US = 1.0


def draw(results: Sequence[Result], directory: Path) -> list[Path]:
    """SVG files in ``directory``; those for which nothing was measured are not made."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "atoll", "svg.fonttype": "path", "font.size": 9, "axes.grid": True,
                         "grid.alpha": 0.3})  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for name, plot in (("link-delay-error.svg", _delay_errors), ("link-rate-windows.svg", _rate_windows)):
        figure = plot(results)
        if figure is not None:
            path = directory / name
            figure.savefig(path, metadata={"Date": None})
            made.append(path)
    return made


def _delay_errors(results: Sequence[Result]) -> Any:
    """A panel a load: the share of packets whose error is larger, both axes logarithmic."""
    from matplotlib.figure import Figure

    drawn = [result for result in results if result.scenario in ("delay", "classes") and "error" in result.curves]
    cases = [case for name in ("delay", "classes") for case in SCENARIOS[name].cases]
    cases = [case for case in cases if any(result.case == case for result in drawn)]
    if not cases:
        return None
    figure = Figure(figsize=(3.1 * len(cases), 3.2), layout="constrained")
    for number, (axes, case) in enumerate(zip(figure.subplots(1, len(cases), sharey=True, squeeze=False)[0], cases,
                                              strict=True)):  # fmt: skip
        for result in drawn:
            if result.case == case:
                curve = result.curves["error"]
                larger = [max(1 - share, 1e-4) for share in curve["share"]]
                axes.plot([max(us, _LEAST_US) for us in curve["us"]], larger, label=_label(result), **_style(result))
        for bound_us, share in ((300, 0.01),):
            axes.plot([bound_us], [share], marker="x", color="black", linestyle="none", label="p99 promised")
        axes.set(xscale="log", yscale="log", xlim=(_LEAST_US, 1e5), title=case, xlabel="error of the delay, us")
        if not number:
            axes.set_ylabel("share of packets with a larger one")
        axes.legend(fontsize=7)
    return figure


def _rate_windows(results: Sequence[Result]) -> Any:
    """A panel a rate: each window's share of what the rate allows, sorted."""
    from matplotlib.figure import Figure

    drawn = [result for result in results if result.scenario == "rate" and "window_share" in result.curves]
    cases = [case for case in SCENARIOS["rate"].cases if any(result.case == case for result in drawn)]
    if not cases:
        return None
    figure = Figure(figsize=(2.6 * len(cases), 3.2), layout="constrained")
    for number, (axes, case) in enumerate(zip(figure.subplots(1, len(cases), sharey=True, squeeze=False)[0], cases,
                                              strict=True)):  # fmt: skip
        for result in drawn:
            if result.case == case:
                shares = sorted(100 * (share - 1) for share in result.curves["window_share"])
                places = [place / max(1, len(shares) - 1) for place in range(len(shares))]
                axes.plot(places, shares, label=_label(result), **_style(result))
        axes.set(title=case, xlabel="windows of 100 ms, sorted", ylim=(-12, 12))
        if not number:
            axes.set_ylabel("bits passed, % above the rate")
        axes.legend(fontsize=7)
    return figure


def _label(result: Result) -> str:
    return result.box if result.place == HERE else f"{result.box} ({result.place})"


def _style(result: Result) -> dict[str, Any]:
    return {"color": _COLOURS.get(result.box, "black"), "linewidth": 2.0 if result.box == ENGINE else 1.2}
