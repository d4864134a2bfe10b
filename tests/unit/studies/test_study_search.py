# SPDX-License-Identifier: Apache-2.0
"""A study with ``search``: which points a sweep takes after each step, and what its results say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_cli.commands.report import View, report_study
from atoll_cli.commands.sweep import SweepProgress
from atoll_core.errors import DescriptionError
from atoll_studies.results.queue_capacity import queue_advice
from atoll_studies.results.queue_search import search_results
from atoll_studies.results.results import read_results
from atoll_studies.statistics.bisection import End
from atoll_studies.study import StudyDescription, load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.sweeping.sweep import State, Sweep
from tests.support.sandbox import QUICK
from tests.support.study_runs import HERE, record

SEARCH = "search: {over: links.sat.to_island.queue, from: 30 kB, to: 300 kB, resolution: 10 kB}\n"
ONE = "{size: 10 MB, start: 0 s}"
TRANSFER = f"set: {{transfer: {ONE}}}\n"
HEAD = f"name: s\nexperiment: {QUICK}\nfigures: [goodput]\n"
TEXT = f"{HEAD}factors: {{traffic.channels: [5, 50]}}\nrepetitions: 3\n{SEARCH}{TRANSFER}"
KNEES = {"5": 70_000, "50": 140_000}
"""By channels: the smallest queue with fast transfers."""


def study(folder: Path, text: str = TEXT) -> StudyDescription:
    (folder / "study.yaml").write_text(text)
    return load_study(folder / "study.yaml")


def begun(described: StudyDescription, directory: StudyDirectory) -> Sweep:
    sweep = Sweep(described, directory)
    sweep.origin = HERE
    sweep.read(resume=True, mix=False)
    return sweep


def run_waiting(sweep: Sweep, most: int = 1000) -> int:
    """Record the runs that a sweep waits for, and return their number."""
    waiting = [entry.point for entry in sweep.points.values() if entry.state is State.WAITING][:most]
    sweep.directory.write(sweep.study, [entry.point for entry in sweep.points.values()], HERE)
    for point in waiting:
        queue_bytes = sweep.study.capacity(sweep.study.configurations[point.configuration])
        short = queue_bytes < KNEES[point.levels.get("traffic.channels", "5")]
        record(
            sweep.directory,
            point.id,
            "valid",
            goodput=8.0,
            base_rtt_ms=560.0,
            bottleneck="sat",
            links={"sat": {"queue_bytes": queue_bytes, "rate_bit_s": 16_000_000}},
            duration_s=60.0,
            transfer_bytes=10**7,
            transfer_complete=True,
            transfer_s=30.0 if short else 10.0,
            utilisation=0.5,
            regime={"regime": "oscillation", "swinging_share": 0.02},
            standing_queue={"share": 0.0},
        )
    return len(waiting)


def whole(folder: Path, text: str = TEXT, most: int = 1000) -> tuple[Sweep, int]:
    """A sweep that has ended, and the number of its runs; interrupted after every ``most`` runs."""
    described, directory, runs = study(folder, text), StudyDirectory(folder / "s"), 0
    while made := run_waiting(begun(described, directory), most):
        runs += made
    return begun(described, directory), runs


def test_a_search_begins_with_the_largest_capacity_and_ends_at_the_smallest_good_one(tmp_path: Path) -> None:
    first = begun(study(tmp_path), StudyDirectory(tmp_path / "s"))
    assert sorted({entry.point.levels["links.sat.to_island.queue"] for entry in first.points.values()}) == ["300 kB"]
    least, most = first.predict(1), first.predict(1, at_most=True)
    assert least.runs == 6
    last, runs = whole(tmp_path)
    assert {others: path.best for others, path in last.searches.items()} == {("5",): 70_000, ("50",): 140_000}
    assert 6 < runs <= most.runs
    assert runs <= 2 * 28 * 3 / 4, "a quarter of the grid of all capacities"
    assert (last.most_searched, last.counts()[State.DONE]) == (0, runs)
    results = read_results(last.directory)
    assert [advice.recommended and advice.recommended.queue_bytes for advice in queue_advice(results)] == [
        70_000,
        140_000,
    ]
    assert [advice.caveats for advice in queue_advice(results)] == [(), ()]


def test_an_interrupted_search_makes_the_same_runs(tmp_path: Path) -> None:
    """The directory is the only state: every sweep here is a new one, and ends after two runs."""
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    undisturbed, runs = whole(tmp_path / "whole")
    interrupted, same = whole(tmp_path / "parts", most=2)
    assert (same, list(interrupted.points)) == (runs, list(undisturbed.points))
    studies = [json.loads((tmp_path / name / "s/study.json").read_text()) for name in ("whole", "parts")]
    assert studies[0] == studies[1]
    paths = [
        [item.path for item in search_results(read_results(sweep.directory))] for sweep in (undisturbed, interrupted)
    ]
    assert paths[0] == paths[1] == list(undisturbed.searches.values())


def test_a_run_of_a_search_is_the_same_point_as_that_of_a_grid(tmp_path: Path) -> None:
    (tmp_path / "grid").mkdir()
    sweep, _ = whole(tmp_path)
    grid = "factors: {traffic.channels: [5, 50], links.sat.to_island.queue: [70 kB, 140 kB, 0.3 MB]}\n"
    described = study(tmp_path / "grid", f"{HEAD}{grid}repetitions: 3\n{TRANSFER}")
    points = {entry.point.id for entry in Sweep(described, sweep.directory).points.values()}
    taken = {(entry.point.levels["traffic.channels"], entry.point.levels["links.sat.to_island.queue"], key)
             for key, entry in sweep.points.items()}  # fmt: skip
    shared = {key for channels, queue, key in taken if (channels, queue) in
              {("5", "70 kB"), ("50", "140 kB"), ("5", "300 kB"), ("50", "300 kB")}}  # fmt: skip
    assert len(shared) == 12
    assert shared <= points
    both, more = whole(tmp_path, f"{HEAD}{grid}repetitions: 3\n{SEARCH}{TRANSFER}")
    assert more == 18 - len(points & set(sweep.points)), "the grid's runs that the search did not make"
    assert {path.best for path in both.searches.values()} == {70_000, 140_000}
    assert both.study.factors["links.sat.to_island.queue"][-1][0] == "0.3 MB"


def test_results_show_the_path_and_the_error_of_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep, runs = whole(tmp_path)
    report_study(sweep.directory.path, View())
    said = " ".join(capsys.readouterr().out.replace("\u00a0", " ").split())
    assert "search of the queue capacity (traffic.channels 5)" in said
    assert "found: 70.00 kB, which meets all criteria" in said
    assert "is between 70.00 kB and 70.00 kB with a confidence of 75.0 % (3 seeds)" in said
    report_study(sweep.directory.path, View(as_json=True))
    answer = json.loads(capsys.readouterr().out)
    assert [(each["best_bytes"], each["outcome"]) for each in answer["searches"]] == [
        (70_000, "found"),
        (140_000, "found"),
    ]
    assert sum(each["runs"] for each in answer["searches"]) == runs
    assert answer["missing"] == 0
    page = tmp_path / "page.html"
    report_study(sweep.directory.path, View(out=page))
    assert (tmp_path / "page-plots/queue-search.svg").exists()


def test_progress_shows_the_capacities_that_are_still_possible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    described, directory = study(tmp_path), StudyDirectory(tmp_path / "s")
    sweep = begun(described, directory)
    run_waiting(sweep)
    sweep.read(resume=True, mix=False)
    progress = SweepProgress(sweep, 1)
    sweep.on_change(next(iter(sweep.points.values())))
    run_waiting(sweep)
    sweep.read(resume=True, mix=False)
    sweep.on_change(next(iter(sweep.points.values())))
    said = capsys.readouterr().err
    assert "more if needed" in said
    assert "search, 5: 30 kB to 160 kB" in said
    del progress


def test_progress_shows_a_search_that_ended_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = begun(study(tmp_path), StudyDirectory(tmp_path / "s"))
    while run_waiting(sweep):
        sweep.read(resume=True, mix=False)
    progress = SweepProgress(sweep, 1)
    sweep.on_change(next(iter(sweep.points.values())))
    assert "search, 5: found" in capsys.readouterr().err
    del progress


def test_a_point_whose_attempts_failed_is_no_run_of_a_search(tmp_path: Path) -> None:
    described, directory = study(tmp_path), StudyDirectory(tmp_path / "s")
    sweep = begun(described, directory)
    directory.write(sweep.study, [entry.point for entry in sweep.points.values()], HERE)
    for entry in sweep.points.values():
        record(directory, entry.point.id, "invalid")
    assert [path.end for path in begun(described, directory).searches.values()] == [End.NO_RUN] * 2
    assert [item.path.end for item in search_results(read_results(directory))] == [End.NO_RUN] * 2


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("to_island.queue, from", "to_world.queue, from"), 6, "cannot be searched; write the queue of a link"),
        (("to: 300 kB", "to: 20 kB"), 6, "20 kB is not more than from, 30 kB"),
        (("resolution: 10 kB", "resolution: 1 B"), 6, "more than 1000 capacities"),
        (("repetitions: 3", "repetitions: 2"), 6, "write 'repetitions: 3' or more"),
        (("repetitions: 3", "stop: {figure: goodput, half_width: 5 %, max: 9}"), 5, "'stop' and 'search'"),
        (("repetitions: 3", "repetitions: 3\ndesign: screening"), 6, "remove it or 'search'"),
        (("from: 30 kB", "from: 30 B"), 6, "30 B"),
        (("set: {", "set: {links.sat.to_island.queue: 50 kB, "), 7, "'search' replaces links.sat.to_island.queue"),
        (("links.sat.to", "links.cat.to"), 6, "cat"),
        (("10 kB}", "10 kB, for: [voices]}"), 6, "voices"),
        (("5, 50]", "5, 50], links.sat.to_island.queue: [70 kB, 70000 B]"), 4, "70000 B is the same capacity as 70 kB"),
        ((f"transfer: {ONE}", "duration: 3 s"), 6, "write one, or leave transfer out of 'for'"),
        ((f"transfer: {ONE}", f"transfers: {{a: {ONE}, b: {ONE}}}"), 6, "needs runs with one transfer"),
        (("s}}", "s, direction: upload}}"), 6, "needs runs with one transfer to the island"),
        (("s}}", "s, direction: upload}, traffic.direction: upload}"), 6, "all flows are uploads"),
    ],
)
def test_mistakes_of_a_search_have_their_lines(
    tmp_path: Path, change: tuple[str, str], line: int, message: str
) -> None:
    with pytest.raises(DescriptionError) as refused:
        study(tmp_path, TEXT.replace(*change))
    assert [(each.line, message in each.message) for each in refused.value.mistakes] == [(line, True)]


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(DescriptionError) as error:
        study(folder, text)
    return [f"{each.line}: {each.message}" for each in error.value.mistakes]


def test_the_smallest_capacity_is_checked_with_every_level_of_the_others(tmp_path: Path) -> None:
    aqm = "links.sat.to_island.aqm: [drop-tail, {red: {min: 10 kB, max: 40 kB}}]"
    text = TEXT.replace("5, 50]", f"5, 50], {aqm}")
    (mistake,) = refused(tmp_path, text)
    assert mistake.startswith("6: ")
    assert "exceeds the queue of 30 kB" in mistake


def test_later_seeds_do_not_take_the_place_of_one_that_gets_another_attempt(tmp_path: Path) -> None:
    sweep, _ = whole(tmp_path)
    results = read_results(sweep.directory)
    best = results.configurations.index({"traffic.channels": "5", "links.sat.to_island.queue": "70 kB"})
    waiting = replace(results, settled_points=results.settled_points - {(best, results.seeds[0])})
    assert 70_000 in search_results(results)[0].path.last_steps
    assert 70_000 not in search_results(waiting)[0].path.last_steps


@pytest.mark.parametrize(
    ("chain", "rate", "rest", "slowest"),
    [
        ("sat, pep-w", 17, "", "sat"),
        ("pep-w, sat", 16, "", "pep-w"),  # of equal links the first one
        ("sat, pep-w", 17, "changes: [{at: 1 s, links: {pep-w: {to_island: {rate: 14 Mbit/s}}}}]", "pep-w"),
        ("sat", 15, "branches: {b: {carries: {island: 10.20.0.0/30}, chain: [tap-w, pep-w, tap-i]}}", "sat"),
    ],
)
def test_the_slowest_link_over_the_run_is_searched(
    tmp_path: Path, chain: str, rate: int, rest: str, slowest: str
) -> None:
    direction = f"{{rate: {rate} Mbit/s, delay: 10 ms, queue: 30 kB}}"
    settings = (
        f"set: {{lab.boxes.pep-w.kind: link, chain: [tap-w, {chain}, tap-i], "
        f"links.pep-w: {{to_island: {direction}, to_world: {direction}}}, {rest and rest + ', '}"
    )
    text = TEXT.replace("set: {", settings)
    other = {"sat": "pep-w", "pep-w": "sat"}[slowest]
    assert study(tmp_path, text.replace("over: links.sat", f"over: links.{slowest}")).search
    assert refused(tmp_path, text.replace("over: links.sat", f"over: links.{other}")) == [
        f"6: '{other}' is not the slowest link to the island; write links.{slowest}.to_island.queue"
    ]
