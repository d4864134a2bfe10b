# SPDX-License-Identifier: Apache-2.0
"""Plots and pages of results: what is drawn is what the runs measured, and a page has all of it."""

import base64
import math
import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.lines import Line2D

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.report import View, report_comparison, report_study
from atoll_core.experiment.flow_sizes import from_counts
from atoll_core.units import Rate, Size
from atoll_hosts.binary import find_binary
from atoll_studies.points import make_points
from atoll_studies.results.comparison import comparable, compare
from atoll_studies.results.queue_capacity import queue_advice
from atoll_studies.results.result_tables import figures_table, results_json
from atoll_studies.results.results import Results, Sensitivity, levels_text, read_results
from atoll_studies.statistics.estimates import Limits, limited, quantile_estimate
from atoll_studies.study import load_study
from atoll_studies.study_directory import Attempt, Provenance, StudyDirectory
from atoll_studies.views.documents import markdown, page
from atoll_studies.views.plots import completion_times, figure_plot, heat_map, plots
from tests.support.sandbox import QUICK
from tests.support.synthetic_run import begin, experiment, network, simulate

QUEUES_KB, LOADS, SEEDS = (400, 50, 100), (5, 50), (1, 2, 3)
SECONDS = [0.5, 1.0, 2.0, 4.0]  # completion times of every run's flows, the last one longer with each seed


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What analysis says of a run that measured nothing, called valid."""
    run = begin(tmp_path_factory.mktemp("nothing"), experiment(), network())
    return {**analyse(run, find_binary()), "verdict": "valid", "reasons": [], "caveats": []}


def made(folder: Path, summary: dict[str, Any], seed: int, queue_kb: int, load: int) -> RunDir:
    """A run with a queue and a load, whose goodput is known, with four completed flows and a failed one."""
    asked = experiment(seed=seed)
    link = asked.links[0]
    link = replace(link, to_island=replace(link.to_island, queue=Size(1000 * queue_kb)))
    run = begin(folder, replace(asked, links=(link,), traffic=replace(asked.traffic, channels=load)), network())
    links = {"sat": {**summary["links"]["sat"], "queue_bytes": 1000 * queue_kb}}
    run.write_summary({**summary, "links": links, "seed": seed, "goodput_mbit_s": goodput(seed, queue_kb, load)})
    ends = [int(1e9 * seconds) for seconds in (*SECONDS[:3], SECONDS[3] * seed, 7.0)]
    run.tables.mkdir(exist_ok=True)
    pl.DataFrame(
        {
            "start_ns": [0] * 5,
            "end_ns": ends,
            "size_bytes": [1000] * 5,
            "outcome": ["completed"] * 4 + ["failed: reset"],
        }
    ).write_parquet(run.tables / "channel_flows.parquet")
    return run


def horizontal(line: Line2D) -> list[float]:
    """The values of a line along the horizontal axis."""
    return np.asarray(line.get_xdata(), float).tolist()


def vertical(line: Line2D) -> list[float]:
    """The values of a line along the vertical axis."""
    return np.asarray(line.get_ydata(), float).tolist()


def goodput(seed: int, queue_kb: int, load: int) -> float:
    return load / 10 + queue_kb / 100 + seed


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, summary: dict[str, Any]) -> Results:
    """Three queues, two loads and three seeds, in an order that is not that of the numbers."""
    folder = tmp_path_factory.mktemp("grid")
    return compare(
        [made(folder, summary, seed, queue, load) for queue in QUEUES_KB for load in LOADS for seed in SEEDS]
    )


def test_levels_true_and_false_are_labelled_with_their_setting() -> None:
    levels = {"tcp.hystart": "true", "tcp.pacing": "false", "tcp.congestion_control": "cubic"}
    assert levels_text(levels) == "hystart=true, pacing=false, cubic"


def test_what_follows_from_a_setting_is_no_factor(grid: Results) -> None:
    """More channels are dealt to clients in another way."""
    assert grid.factors == ("links.sat.to_island.queue", "traffic.channels")


def test_a_comparison_recommends_a_queue_for_each_load(grid: Results) -> None:
    assert [(dict(each.other_levels), [level.queue_bytes for level in each.levels]) for each in queue_advice(grid)] == [
        ({"traffic.channels": str(load)}, [1000 * queue for queue in sorted(QUEUES_KB)]) for load in LOADS
    ]
    assert markdown(grid).count("Queue capacity (traffic.channels") == len(LOADS)
    assert len(results_json(grid)["queue_capacity"]) == len(LOADS)


def test_a_factor_of_numbers_is_an_axis(grid: Results) -> None:
    drawn = figure_plot(grid, "goodput")
    medians, differences = drawn.axes
    assert (medians.get_xlabel(), medians.get_ylabel()) == ("links.sat.to_island.queue", "goodput (Mbit/s)")
    assert [text.get_text() for text in medians.get_xticklabels()] == ["50 kB", "100 kB", "400 kB"]
    assert medians.get_xscale() == "log", "the greatest is eight times the least"
    assert medians.get_title(loc="left") == "median, interval at 75 %"
    for load, container in zip(LOADS, medians.containers, strict=True):
        assert container.get_label() == str(load)
        assert vertical(container[0]) == pytest.approx([goodput(2, queue, load) for queue in sorted(QUEUES_KB)])
    # the first configuration is the baseline: 400 kB and 5 channels
    fifty = vertical(differences.containers[1][0])
    assert fifty == pytest.approx([goodput(0, queue, 50) - goodput(0, 400, 5) for queue in sorted(QUEUES_KB)])
    assert len(drawn.legends[0].get_texts()) == len(LOADS)


def test_two_factors_of_numbers_are_a_map(grid: Results) -> None:
    drawn = heat_map(grid, "goodput")
    assert drawn is not None
    cells = {text.get_position(): text.get_text() for text in drawn.axes[0].texts}
    assert cells == {
        (column, row): f"{goodput(2, queue, load):.3f}"
        for column, queue in enumerate(sorted(QUEUES_KB))
        for row, load in enumerate(LOADS)
    }
    of_one = compare([RunDir(path) for run, path in grid.directories if run.configuration % 2])  # all of one load
    assert of_one.factors == ("links.sat.to_island.queue",)
    assert heat_map(of_one, "goodput") is None


def test_there_is_no_map_of_medians_that_are_not_known(grid: Results) -> None:
    """As of transfers that did not finish, in runs of versions that did not record how much time they had."""
    unknown = Limits(-math.inf, math.inf)
    median = limited(quantile_estimate, [unknown])
    figures = tuple(replace(each, values=(unknown,), median=median, difference=None) for each in grid.figures)
    assert heat_map(replace(grid, figures=figures), "goodput") is None


def test_other_configurations_are_rows(summary: dict[str, Any], tmp_path: Path) -> None:
    """Every run is there, and every pair."""
    runs = [made(tmp_path, summary, seed, queue, 5) for queue in (50, 100) for seed in SEEDS]
    values, pairs = figure_plot(compare(runs), "goodput").axes
    assert [text.get_text() for text in values.get_yticklabels()] == ["A  50 kB", "B  100 kB"]
    dots = [found for line in values.lines if len(found := horizontal(line)) == len(SEEDS)]
    assert dots == [pytest.approx([goodput(seed, queue, 5) for seed in SEEDS]) for queue in (50, 100)]
    dots = [found for line in pairs.lines if len(found := horizontal(line)) == len(SEEDS)]
    assert dots == [pytest.approx([0.5] * len(SEEDS))]


def test_completion_times_are_those_of_completed_flows_by_run(grid: Results) -> None:
    drawn = completion_times(grid)
    assert drawn is not None
    (axes,) = drawn.axes
    assert axes.get_xlim()[1] > SECONDS[-1] * max(SEEDS)
    for line in axes.lines:
        times, shares = horizontal(line), vertical(line)
        for seconds, share in (
            (0.6, 0.25),
            (1.1, 0.5),
            (2.1, 0.75),
            (8.1, 1.0),
        ):  # the median run's last flow takes 8 s
            assert shares[np.searchsorted(times, seconds)] == share
    assert len(axes.lines) == len(grid.configurations)


def test_completion_times_of_an_analysed_run(tmp_path: Path) -> None:
    """The table that the analysis makes has the columns that the plot reads."""
    run = simulate(tmp_path, seconds=3)
    completed = analyse(run, find_binary())["flows_completed"]
    assert completed
    drawn = completion_times(compare([run]))
    assert drawn is not None
    steps = np.unique(np.diff(vertical(drawn.axes[0].lines[0])))
    assert steps[steps > 0].min() == pytest.approx(1 / completed, rel=0.2)


def test_a_page_has_its_plots_in_it_and_beside_it(grid: Results, tmp_path: Path) -> None:
    page = tmp_path / "grid.html"
    report_comparison([path for _, path in grid.directories], View(["goodput"], out=page))
    html = page.read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid-plots", "grid.html"]
    names = ["flow-completion-times", "goodput", "goodput-map"]
    files = {f"{name}{form}" for name in names for form in (".pdf", ".svg")}
    assert {path.name for path in (tmp_path / "grid-plots").iterdir()} == files
    assert sorted(re.findall(r'href="(\S+)\.svg"', html)) == [f"grid-plots/{name}" for name in names]
    for embedded in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", html):
        assert base64.b64decode(embedded) in {path.read_bytes() for path in tmp_path.glob("grid-plots/*.svg")}
    assert "http" not in re.sub(r"base64,[^\"]+", "", html), "it needs nothing but itself"


def test_too_few_runs_for_medians_have_distributions_all_the_same(grid: Results) -> None:
    pair = compare([RunDir(path) for _, path in grid.directories[:2]])
    assert [name for _, name, _ in plots(pair)] == ["flow-completion-times"]


def test_a_comparison_says_what_difference_an_invalid_run_makes_and_the_largest_flow(
    summary: dict[str, Any], tmp_path: Path
) -> None:
    verdicts = {seed: {**summary, "verdict": "invalid" if seed == 4 else "valid"} for seed in (1, 2, 3, 4)}
    results = compare([made(tmp_path / str(seed), each, seed, 50, 5) for seed, each in verdicts.items()])
    found = results.figure_of(0, "goodput")
    assert found is not None
    three, four = (median(goodput(seed, 50, 5) for seed in range(1, last)) for last in (4, 5))
    assert found.sensitivity == Sensitivity(1, Limits(three, three), Limits(four, four))
    assert found.median.value == three
    for text in (markdown(results), page(results)):
        assert "edians with and without replaced runs" in text
        assert re.search(r"largest flow that a run can receive: [0-9.]+ MB; [0-9.]+ % of flows are larger", text)


def test_the_largest_flow_is_said_of_each_configuration_with_another_bound(grid: Results) -> None:
    """Sums of shares are rounded: -2.2e-16 of these sizes are larger than the bound."""
    small = from_counts("small", dict.fromkeys(range(100, 2000, 100), 1))
    lab, asked = grid.described[0]
    slow = replace(asked.links[0], to_island=replace(asked.links[0].to_island, rate=Rate(2_000_000)))
    other = {
        0: (lab, replace(asked, traffic=replace(asked.traffic, sizes=small))),
        1: (lab, replace(asked, links=(slow,))),
    }
    text = markdown(replace(grid, described={**grid.described, **other}))
    bounds = re.findall(r"largest flow that a run of (.*) can receive: (.*?); (.*)", text)
    names = [re.findall(r"\b([A-F])  ", of) for of, _, _ in bounds]
    assert names == [["A"], ["B"], ["C", "D", "E", "F"]]
    (fast, no_flow), (slower, some), (as_fast, fewer) = (said for _, *said in bounds)
    assert (fast, no_flow) == (as_fast, "no flow is larger")
    assert (slower, fast) == ("2.2 MB", "18 MB")
    share = r"([0-9.]+) % of flows are larger, with ([0-9.]+) % of all bytes"
    many, few = (re.fullmatch(share, said) for said in (some, fewer))
    assert many
    assert few
    assert [float(each) for each in many.groups()] > [float(each) for each in few.groups()]


def test_a_study_and_the_comparison_of_its_runs_say_the_same(
    summary: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of factors, levels, estimates and differences."""
    monkeypatch.delenv("COLUMNS", raising=False)  # a worker of pytest-xdist has it
    file = tmp_path / "study.yaml"
    file.write_text(
        f"name: both\nexperiment: {QUICK}\nrepetitions: 3\nfactors:\n  links.sat.to_island.queue: [50 kB, 100 kB]\n"
    )
    study = load_study(file)
    directory = StudyDirectory(tmp_path / "s")
    directory.write(study, make_points(study))
    for point in make_points(study):
        queue = int(point.levels["links.sat.to_island.queue"].split()[0])
        run = made(directory.working, summary, point.seed, queue, 5)
        path = directory.point_path(point.id) / "20260102T030405Z-1"
        origin = Provenance("0123abcd", "mininet", "6.1.0")
        directory.add_attempt(run.path, point.id, Attempt(path, "valid", "", 1.0, origin))
    of_study = figures_table(read_results(directory))
    of_runs = figures_table(compare(comparable([directory.path])[0], baseline={"links.sat.to_island.queue": "50 kB"}))
    order = ("figure", "links.sat.to_island.queue")
    assert of_study.sort(order).equals(of_runs.sort(order))
    report_comparison([directory.path], View(["goodput"]))
    said = capsys.readouterr().out
    report_study(directory.path, View(["goodput"]))
    rows = [line for line in capsys.readouterr().out.splitlines() if re.match(r"[AB] +\d+ kB", line)]
    assert len(rows) == 2
    assert all(row.split("kB")[1] in said for row in rows)
