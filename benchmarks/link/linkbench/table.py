# SPDX-License-Identifier: Apache-2.0
"""Results as Markdown tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchkit.markdown import markdown_table
from linkbench.collect import DAY, HERE, Result
from linkbench.promises import PromiseCheck
from linkbench.scenarios import ENGINE, SCENARIOS


@dataclass(frozen=True, slots=True)
class Column:
    """A figure: its heading, with the unit, and how many decimals say something."""

    heading: str
    figure: str
    decimals: int = 0


_ERRORS = (
    Column("mean us", "mean_us", 1),
    Column("p50 us", "p50_us", 1),
    Column("p99 us", "p99_us", 1),
    Column("max us", "max_us"),
)
_LATENESS = Column("own lateness max us", "box_lateness_max_us")
_CPU = Column("CPU %", "box_cpu_percent")

COLUMNS: dict[str, Sequence[Column]] = {
    "throughput": (
        Column("forward Mbit/s", "forward_mbit_s"),
        Column("kpps", "forward_kpps", 1),
        Column("back Mbit/s", "back_mbit_s"),
        Column("lost", "lost_packets"),
        Column("overload", "box_overloaded"),
        _CPU,
        _LATENESS,
        Column("sender held up ms", "sender_held_up_ms", 1),
    ),
    "limit": (
        Column("kpps", "forward_kpps", 1),
        Column("lost", "lost_packets"),
        Column("overload", "box_overloaded"),
        _CPU,
        _LATENESS,
    ),
    "delay": (
        *_ERRORS,
        Column("lost", "lost_packets"),
        _CPU,
        _LATENESS,
        Column("a mere sleeper's p99 us", "sender_late_p99_us"),
        Column("its max us", "sender_late_max_us"),
    ),
    "rate": (
        Column("mean Mbit/s", "mean_mbit_s", 3),
        Column("error %", "error_percent", 4),
        Column("100 ms: most over, packets", "window_over_packets", 1),
        Column("under", "window_under_packets", 1),
        Column("allowed", "window_allowed_packets", 1),
        Column("scheduled windows over", "scheduled_windows_over_rate"),
        _LATENESS,
    ),
    "joint": (
        Column("least ms", "least_ms", 2),
        Column("most ms", "most_ms", 2),
        Column("UDP p95 ms", "udp_p95_ms", 2),
        Column("UDP top ms", "udp_top_ms", 2),
        Column("late ms", "udp_box_lateness_max_ms", 2),
        Column("TCP p95 ms", "tcp_p95_ms", 2),
        Column("TCP top ms", "tcp_top_ms", 2),
        Column("late ms", "tcp_box_lateness_max_ms", 2),
    ),
    "classes": (
        Column("mean us", "mean_us", 1),
        Column("p99 us", "p99_us", 1),
        Column("worst class mean us", "worst_class_mean_us", 1),
        Column("worst class p99 us", "worst_class_p99_us", 1),
        Column("lost", "lost_packets"),
        _CPU,
        _LATENESS,
    ),
    DAY: (
        Column("wall s", "wall_s", 1),
        Column("packets", "packets"),
        Column("windows over rate", "scheduled_windows_over_rate"),
        Column("drift ns", "drift_ns"),
    ),
}

_COMPARED = {"delay": "p50_us", "rate": "error_percent", "throughput": "forward_kpps"}
"""Which figure is also shown as a ratio to the engine's, by scenario."""

_QUESTIONS = {scenario.name: scenario.question for scenario in SCENARIOS.values()} | {
    DAY: "What do 24 h at 64 Mbit/s take in simulated time?"
}


def tables(results: Sequence[Result]) -> str:
    """One table a scenario, medians over the runs; the boxes of a case below each other."""
    parts: list[str] = []
    for name, columns in COLUMNS.items():
        of_scenario = sorted((result for result in results if result.scenario == name), key=order)
        if of_scenario:
            parts.append(f"## {name}: {_QUESTIONS[name]}\n\n{_table(name, columns, of_scenario)}")
    return "\n\n".join(parts)


def promises(verdicts: Iterable[PromiseCheck]) -> str:
    """Each promise, the figure, and whether it is kept."""
    rows = [
        [
            verdict.promise.scenario,
            verdict.case,
            verdict.promise.figure,
            verdict.promise.bound,
            f"{verdict.median:.4g}",
            "yes" if verdict.kept else "NO",
        ]
        for verdict in verdicts
    ]
    headings = ["scenario", "case", "figure", "promised", "median", "kept"]
    return markdown_table([headings, *rows], left=len(headings))


def order(result: Result) -> tuple[int, int, str]:
    """Sorts the results of a scenario as it names its cases and boxes."""
    scenario = SCENARIOS.get(result.scenario)
    if scenario is None:
        return (0, 0, result.place)
    boxes = list(scenario.boxes)
    cases = list(scenario.cases)
    case = cases.index(result.case) if result.case in cases else len(cases)
    return (case, boxes.index(result.box) if result.box in boxes else len(boxes), result.place)


def _table(name: str, columns: Sequence[Column], results: Sequence[Result]) -> str:
    compared = _COMPARED.get(name)
    headings = ["case", "box", "runs", *(column.heading for column in columns)]
    if compared:
        headings.append(f"{next(column.heading for column in columns if column.figure == compared)} / engine's")
    rows: list[list[str]] = []
    for result in results:
        box = result.box if result.place == HERE else f"{result.box} in {result.place}"
        row = [
            result.case,
            box,
            _runs(result),
            *(_cell(result.median(column.figure), column.decimals) for column in columns),
        ]
        if result.failed:
            row[1] += f" ({len(result.failed)} failed)"
        if compared:
            row.append(_ratio(result, results, compared))
        rows.append(row)
    return markdown_table([headings, *rows], left=len(headings))


def _runs(result: Result) -> str:
    """How many, and how long each one was."""
    count = max((len(values) for values in result.figures.values()), default=0)
    return f"{count} x {result.seconds:g} s" if result.seconds else str(count)


def _ratio(result: Result, results: Sequence[Result], figure: str) -> str:
    """The figure as a multiple of the engine's in the same case."""
    engine = next((other for other in results if other.case == result.case and other.box == ENGINE), None)
    ours, theirs = engine.median(figure) if engine else None, result.median(figure)
    if engine is result or not ours or theirs is None:
        return ""
    return f"{theirs / ours:.2g}"


def _cell(median: float | None, decimals: int) -> str:
    return "" if median is None else f"{median:.{decimals}f}"
