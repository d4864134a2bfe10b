# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""Plots of results: medians with their intervals, paired differences, main effects, heat maps, completion times.

Equal results give equal files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter
from numpy.typing import NDArray

from atoll_analysis.figures.run_figures import unit_and_digits
from atoll_analysis.run_directory import RunDir
from atoll_core.errors import UsageError
from atoll_core.plural import counted
from atoll_core.units import Duration, Rate, Size
from atoll_dashboards.report.plot_style import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    WIDTH_IN,
    common_style,
)
from atoll_dashboards.report.report_data import completed_flows
from atoll_studies.results.effects import MainEffect, effects
from atoll_studies.results.queue_search import SearchResult, search_results
from atoll_studies.results.results import ConfigurationFigure, Results, levels_text
from atoll_studies.statistics.estimates import Estimate, Limits
from atoll_studies.statistics.estimates import differences as paired
from atoll_studies.views.tables import configuration_name, limits_text, others_text

_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BROWN, GREY)
_MARKERS = "osD^vP"
_MARKERS_ACROSS = {"=": "o", ">": ">", "<": "<", "~": "D"}  # markers of what is known exactly, or by its limits
_MARKERS_UP = {">": "^", "<": "v", "~": "D"}
_LEAST_POINTS = 3  # levels of a factor that is an axis
_MOST_CURVES = 8
_MOST_PANELS = 6
_ROW_IN = 0.34
_SPREAD = 0.22  # of single runs around their row
_MOST_BANDS = 4  # distributions whose ranges can be told apart
_DODGE = 0.012  # of the axis, between curves, so that intervals don't cover each other
_GRID_INSTANTS = 200  # instants at which distributions are compared
_LOG_FROM_RATIO = 5  # an axis whose greatest value is so many times its least one is logarithmic


def plots(results: Results) -> Iterator[tuple[str, str, Figure]]:
    """All plots of results that their runs have data for: title, the file's name without its ending, the plot."""
    for figure in results.plotted:
        if not results.is_sampled or not any(row.figure == figure for row in results.figures):
            continue
        file_name = re.sub(r"[^a-z0-9]+", "-", figure.lower())
        yield figure, file_name, figure_plot(results, figure)
        if (plot := heat_map(results, figure)) is not None:
            yield f"{figure}, medians", f"{file_name}-map", plot
    if main_effects := effects(results):
        yield "main effects", "main-effects", effects_plot(main_effects)
    if (plot := search_plot(results)) is not None:
        yield "search of the queue capacity", "queue-search", plot
    if (plot := completion_times(results)) is not None:
        yield "flow completion times", "flow-completion-times", plot


# A figure over configurations


def figure_plot(results: Results, figure: str) -> Figure:
    """A figure of each configuration, and its differences from the baseline if there are any.

    Over a factor with three or more numbers as levels if there is one, else a row for each configuration. Raises
    UsageError if no run measured the figure.
    """
    figures = [row for row in results.figures if row.figure == figure]
    if not figures:
        group = f"study {results.name}" if results.similarity is None else "the comparison"
        raise UsageError(f"no run of {group} measured {figure!r}")
    numeric = _numeric_factors(results)
    axis = max(numeric, key=lambda name: len(set(numeric[name].values())), default=None)
    if axis is not None and len(numeric[axis]) < _LEAST_POINTS:
        axis = None
    has_differences = any(row.difference for row in figures)
    height_in = 3.6 if axis else 1.1 + _ROW_IN * len(figures)
    with common_style():
        plot = Figure(figsize=(WIDTH_IN if has_differences else 0.65 * WIDTH_IN, height_in), layout="constrained")
        ratios = (1.15, 1)[: 1 + has_differences]
        panels: list[Axes] = list(
            plot.subplots(1, 1 + has_differences, squeeze=False, sharey=axis is None, width_ratios=ratios)[0]
        )
        for panel, differences in zip(panels, (False, True), strict=False):
            if axis is None:
                _draw_rows(panel, results, figures, differences=differences)
            else:
                _draw_curves(panel, results, figures, axis, numeric[axis], differences=differences)
            _draw_label(panel, figure, figures, differences=differences, vertical=axis is not None)
        if axis is not None and len(panels[0].get_legend_handles_labels()[0]) > 1:
            other_factors = ", ".join(factor for factor in results.factors if factor != axis)
            handles = panels[0].get_legend_handles_labels()
            plot.legend(*handles, title=other_factors, title_fontsize=9, loc="outside lower center", ncols=4)
    return plot


def _draw_rows(panel: Axes, results: Results, figures: Sequence[ConfigurationFigure], *, differences: bool) -> None:
    """A row for each configuration: every run or pair, the median and its interval."""
    for row, figure in enumerate(figures):
        estimate, values = _estimate_and_values(results, figure, differences=differences)
        if estimate is None:
            continue
        offsets = [row + _SPREAD * (2 * (index + 0.5) / len(values) - 1) for index in range(len(values))]
        for sign, marker in _MARKERS_ACROSS.items():
            points = [
                (position, offset)
                for value, offset in zip(values, offsets, strict=True)
                if value.sign == sign and (position := value.finite) is not None
            ]
            if points:
                panel.plot(*np.transpose(points), marker, color=GREY, markersize=3, alpha=0.6, zorder=2)
        middle = estimate.limits[0]
        if middle.finite is not None:
            bars = np.transpose([_error_bars(estimate)])
            panel.errorbar(middle.finite, row, xerr=bars, fmt="none", color=BLUE, capsize=4, zorder=3)
            if middle.is_exact:
                panel.plot(middle.finite, row, "o", color=BLUE, markersize=6, zorder=3)
            for position, sign in _limit_marks(estimate):
                panel.plot(position, row, _MARKERS_ACROSS[sign], color=BLUE, markersize=6, zorder=3)
    if differences:
        panel.axvline(0, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    panel.set_yticks(range(len(figures)), [configuration_name(results, figure.configuration) for figure in figures])
    panel.set_ylim(len(figures) - 0.4, -0.6)
    panel.grid(visible=True, axis="x")
    panel.grid(visible=False, axis="y")


def _draw_curves(
    panel: Axes,
    results: Results,
    figures: Sequence[ConfigurationFigure],
    axis: str,
    positions: Mapping[str, float],
    *,
    differences: bool,
) -> None:
    """A curve for each combination of the other factors' levels: medians and their intervals over a factor."""
    ticks = sorted({position: level for level, position in positions.items()}.items())
    low, high = ticks[0][0], ticks[-1][0]
    logarithmic = low > 0 and high >= _LOG_FROM_RATIO * low
    configurations_by_label = _configurations_by_label(results, [axis])
    for number, (label, configurations) in enumerate(configurations_by_label.items()):
        shift = _DODGE * (number - (len(configurations_by_label) - 1) / 2)
        points: list[tuple[float, float, Estimate]] = []
        for row in figures:
            estimate = _estimate_and_values(results, row, differences=differences)[0]
            middle = estimate.limits[0].finite if estimate else None
            if estimate is not None and middle is not None and row.configuration in configurations:
                x = positions[results.configurations[row.configuration][axis]]
                points.append(
                    (x * (high / low) ** shift if logarithmic else x + (high - low) * shift, middle, estimate)
                )
        points.sort(key=lambda point: point[0])
        if points:
            colour = _COLOURS[number % len(_COLOURS)]
            panel.errorbar(
                [x for x, _, _ in points],
                [middle for _, middle, _ in points],
                yerr=np.transpose([_error_bars(estimate) for _, _, estimate in points]),
                color=colour,
                marker=_MARKERS[number % len(_MARKERS)],
                markersize=4.5,
                linewidth=1.3,
                capsize=3,
                label=label,
            )
            for x, _, estimate in points:
                for position, sign in _limit_marks(estimate):
                    panel.plot(x, position, _MARKERS_UP[sign], color=colour, markersize=7, zorder=3)
    if differences:
        panel.axhline(0, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    if logarithmic:
        panel.set_xscale("log")
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_locator(FixedLocator([position for position, _ in ticks]))
    panel.set_xticks([position for position, _ in ticks], [level for _, level in ticks])
    panel.set_xlabel(axis)


def _estimate_and_values(
    results: Results, row: ConfigurationFigure, *, differences: bool
) -> tuple[Estimate | None, Sequence[Limits]]:
    """The estimate of a panel, and the values that it is of."""
    if not differences:
        return row.median, row.values
    if row.difference is None or row.baseline is None:
        return None, ()
    by_seed = (results.values(number, row.figure) for number in (row.baseline, row.configuration))
    return row.difference.median, paired(*by_seed)


def _error_bars(estimate: Estimate) -> tuple[float, float]:
    """How far the interval goes from the value; to the limit of a bound that is not known."""
    middle, low, high = (limits.finite for limits in estimate.limits)
    if not estimate.level or middle is None:
        return 0.0, 0.0
    return (0.0 if low is None else max(0.0, middle - low), 0.0 if high is None else max(0.0, high - middle))


def _limit_marks(estimate: Estimate) -> list[tuple[float, str]]:
    """Where the value and the ends of the interval are only limits, and their signs."""
    bounds = estimate.limits[: 3 if estimate.level else 1]
    return [(position, bound.sign) for bound in bounds if not bound.is_exact and (position := bound.finite) is not None]


def _draw_label(
    panel: Axes, figure: str, figures: Sequence[ConfigurationFigure], *, differences: bool, vertical: bool
) -> None:
    unit, _ = unit_and_digits(figure)
    name = f"{'difference' if differences else figure}{f' ({unit})' if unit else ''}"
    (panel.set_ylabel if vertical else panel.set_xlabel)(name)
    if differences:
        estimates = [row.difference.median for row in figures if row.difference]
    else:
        estimates = [row.median for row in figures]
    levels = sorted({round(100 * estimate.level, 1) for estimate in estimates if estimate.level})
    title = "paired with the baseline" if differences else "median"
    if levels:
        title += f", interval at {' to '.join(f'{level:g}' for level in dict.fromkeys((levels[0], levels[-1])))} %"
    if any(estimate.most for estimate in estimates):
        title += "\ntriangle: a limit, as not all finished"
    title += "" if vertical else "\ngrey: pairs" if differences else "\ngrey: runs"  # panels are narrow
    panel.set_title(title, fontsize=8.5, fontweight="normal", color=INK)


def _configurations_by_label(results: Results, axis_factors: Sequence[str]) -> dict[str, list[int]]:
    """Configurations by their levels of the other factors."""
    by_label: dict[str, list[int]] = {}
    for number, levels in enumerate(results.configurations):
        label = levels_text({factor: level for factor, level in levels.items() if factor not in axis_factors})
        by_label.setdefault(label, []).append(number)
    return by_label


def _numeric_factors(results: Results) -> dict[str, dict[str, float]]:
    """Of the factors whose levels all are numbers of one unit, these numbers by level."""
    numeric: dict[str, dict[str, float]] = {}
    for factor in results.factors:
        levels = dict.fromkeys(levels[factor] for levels in results.configurations)
        numbers = {level: _number(level) for level in levels}
        units = {number[0] for number in numbers.values() if number}
        if len(levels) > 1 and len(units) == 1 and all(numbers.values()):
            numeric[factor] = {level: number[1] for level, number in numbers.items() if number}
    return numeric


def _number(level: str) -> tuple[str, float] | None:
    """The unit and the number of a level: ``100 kB`` as bytes, ``0.1 %`` or ``20``."""
    for kind in (Rate, Size, Duration):
        try:
            return kind.__name__, float(kind.parse(level).base)
        except ValueError:
            pass
    text = level.removesuffix("%")
    try:
        return ("%" if text != level else ""), float(text)
    except ValueError:
        return None


# Main effects


def effects_plot(main_effects: Sequence[MainEffect]) -> Figure:
    """A panel for each figure: the ratio of each factor's levels and its interval, the largest effect on top."""
    by_figure = {figure: list(own) for figure, own in groupby(main_effects, key=lambda effect: effect.figure)}
    rows = max(map(len, by_figure.values()))
    columns = min(2, len(by_figure))
    lines = -(-len(by_figure) // columns)
    with common_style():
        size = (WIDTH_IN * (1 if columns > 1 else 0.65), lines * (0.9 + 0.3 * rows))
        plot = Figure(figsize=size, layout="constrained")
        panels: list[Axes] = list(plot.subplots(lines, columns, squeeze=False).flat)
        for panel, (figure, own) in zip(panels, by_figure.items(), strict=False):
            for row, effect in enumerate(own):
                ratio, colour = effect.ratio, BLUE if effect.is_significant else GREY
                bars = [[ratio.value - ratio.low], [ratio.high - ratio.value]]
                panel.errorbar(ratio.value, row, xerr=bars, fmt="o", color=colour, markersize=5, capsize=3)
            panel.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            panel.xaxis.set_major_formatter(StrMethodFormatter("x {x:g}"))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.set_yticks(range(len(own)), _effect_labels(own), fontsize=7.5)
            panel.set_ylim(len(own) - 0.5, -0.5)
            panel.grid(visible=False, axis="y")
            panel.set_title(figure, fontsize=9)
        for panel in panels[len(by_figure) :]:
            panel.set_axis_off()
    return plot


def _effect_labels(main_effects: Sequence[MainEffect]) -> list[str]:
    """The levels of each factor behind the last part of its name, or all of it if another one ends alike."""
    ends = [effect.factor.rpartition(".")[2] for effect in main_effects]
    return [
        f"{end if ends.count(end) == 1 else effect.factor}: {effect.first_level} to {effect.second_level}"
        for end, effect in zip(ends, main_effects, strict=True)
    ]


# Heat maps


def heat_map(results: Results, figure: str) -> Figure | None:
    """The medians of a figure over two factors whose levels are numbers, a panel for each level of the others.

    None if there are not two such factors, or too many panels, or no median is known.
    """
    numeric = _numeric_factors(results)
    if len(numeric) != 2:
        return None
    (x_factor, x_numbers), (y_factor, y_numbers) = numeric.items()
    panels = {
        label: configurations
        for label, configurations in _configurations_by_label(results, [x_factor, y_factor]).items()
        if any(results.figure_of(number, figure) for number in configurations)
    }
    if len(panels) > _MOST_PANELS:
        return None
    x_levels, y_levels = (sorted(factor, key=lambda level: factor[level]) for factor in (x_numbers, y_numbers))
    limits = {row.configuration: row.median.limits[0] for row in results.figures if row.figure == figure}
    medians = {number: each.finite for number, each in limits.items() if each.finite is not None}
    if not medians:
        return None
    scale = Normalize(min(medians.values()), max(medians.values()))
    unit, _ = unit_and_digits(figure)
    with common_style():
        size = (1.4 + len(panels) * (0.5 + 0.75 * len(x_levels)), max(2.9, 1.5 + 0.42 * len(y_levels)))
        plot = Figure(figsize=size, layout="constrained")
        axes: list[Axes] = list(plot.subplots(1, len(panels), squeeze=False, sharey=True)[0])
        for panel, (label, configurations) in zip(axes, panels.items(), strict=True):
            values = np.full((len(y_levels), len(x_levels)), np.nan)
            for number in configurations:
                if number in medians:
                    levels = results.configurations[number]
                    row, column = y_levels.index(levels[y_factor]), x_levels.index(levels[x_factor])
                    values[row, column] = medians[number]
                    colour = "white" if scale(medians[number]) < 0.6 else INK
                    panel.text(column, row, limits_text(figure, limits[number]), ha="center", va="center",
                               color=colour, fontsize=8)  # fmt: skip
            panel.imshow(values, origin="lower", aspect="auto", cmap="cividis", norm=scale)
            panel.set_xticks(range(len(x_levels)), x_levels)
            panel.set_yticks(range(len(y_levels)), y_levels)
            panel.grid(visible=False)
            panel.set_xlabel(x_factor)
            panel.set_title(label, fontsize=8.5, fontweight="normal")
        axes[0].set_ylabel(y_factor)
        plot.colorbar(ScalarMappable(scale, "cividis"), ax=axes, label=f"{figure} ({unit})" if unit else figure)
    return plot


# Searches


def search_plot(results: Results) -> Figure | None:
    """The capacities that each search tried, and those that were still possible after it; None without a search.

    Of more than six searches the first six are shown.
    """
    searched = [item for item in search_results(results) if item.path.steps][:_MOST_PANELS]
    if not searched:
        return None
    columns = min(3, len(searched))
    rows = -(-len(searched) // columns)
    with common_style():
        plot = Figure(figsize=(max(4.5, 0.4 * WIDTH_IN * columns), 0.6 + 2.7 * rows), layout="constrained")
        panels: list[Axes] = list(plot.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
        for panel, item in zip(panels, searched, strict=False):
            _draw_search(panel, item)
        for panel in panels[len(searched) :]:
            panel.set_visible(False)
        plot.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        plot.supylabel("queue (kB)", fontsize=9)
    return plot


def _draw_search(panel: Axes, searched: SearchResult) -> None:
    steps = searched.path.steps
    numbers = np.arange(1, len(steps) + 1)
    low, high = (np.array(ends) / 1e3 for ends in zip(*((step.low, step.high) for step in steps), strict=True))
    panel.bar(numbers, high - low, bottom=low, width=0.9, color=SKY, alpha=0.35, label="possible after the step")
    for label, marker, colour, is_good in (
        ("all criteria met", "o", GREEN, True),
        ("not all met", "X", VERMILLION, False),
    ):
        tried = [
            (number, step.capacity / 1e3)
            for number, step in zip(numbers, steps, strict=True)
            if (not step.unmet) is is_good
        ]
        panel.plot([x for x, _ in tried], [y for _, y in tried], marker, color=colour, markersize=6, label=label)
    if searched.path.best is not None:
        panel.axhline(searched.path.best / 1e3, color=INK, linewidth=0.8, linestyle="--", label="found")
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_xticks(numbers)
    panel.set_xlabel("step")
    panel.set_title(others_text(searched), fontsize=8.5, fontweight="normal")


# Distributions


def completion_times(results: Results) -> Figure | None:
    """The distribution of flow completion times: over the runs of a configuration the median, least and greatest.

    The run is the unit: each run has its own distribution, and these are compared at each time. None if no run has
    completed flows. Of more than eight configurations the first eight are shown.
    """
    distributions: dict[int, list[NDArray[np.float64]]] = {}
    for run, path in results.directories:
        if run.configuration in distributions or len(distributions) < _MOST_CURVES:
            seconds = completed_flows(RunDir(path).tables)["seconds"].sort().to_numpy()
            if len(seconds):
                distributions.setdefault(run.configuration, []).append(seconds)
    if not distributions:
        return None
    all_seconds = [seconds for runs in distributions.values() for seconds in runs]
    low, high = min(seconds[0] for seconds in all_seconds), max(seconds[-1] for seconds in all_seconds)
    grid = low * (max(high, 1.01 * low) / low) ** np.linspace(0, 1, _GRID_INSTANTS)
    with common_style():
        plot = Figure(figsize=(0.75 * WIDTH_IN, 3.8), layout="constrained")
        axes = plot.subplots()
        for index, (number, runs) in enumerate(sorted(distributions.items())):
            shares = np.array([_shares(seconds, grid) for seconds in runs])
            colour = _COLOURS[index]
            label = configuration_name(results, number) if results.factors else None
            axes.plot(grid, np.median(shares, axis=0), color=colour, linewidth=1.5, label=label)
            if len(runs) > 1 and len(distributions) <= _MOST_BANDS:
                axes.fill_between(grid, shares.min(axis=0), shares.max(axis=0), color=colour, alpha=0.16, linewidth=0)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("flow completion time (s)")
        axes.set_ylabel("share of the flows")
        hidden = len({run.configuration for run in results.runs}) - len(distributions)
        title = "median of the runs' distributions"
        title += "; shaded: least to greatest" if len(distributions) <= _MOST_BANDS else ""
        title += f"; {counted(hidden, 'configuration')} not shown" if hidden else ""
        axes.set_title(title, fontsize=8.5, fontweight="normal", color=INK)
        if results.factors:
            axes.legend(loc="lower right")
    return plot


def _shares(seconds: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The shares of sorted values that are at most each value of the grid."""
    return np.searchsorted(seconds, grid, side="right") / len(seconds)
