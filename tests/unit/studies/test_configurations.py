# SPDX-License-Identifier: Apache-2.0
"""Runs that differ in their seed alone are one configuration: which of them count, what is said of their figures."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.report import View, report_comparison
from atoll_cli.terminal.results_text import print_results
from atoll_core.errors import UsageError
from atoll_studies.results.comparison import arrange, compare
from atoll_studies.results.result_tables import results_json
from atoll_studies.results.results import Results, letters
from atoll_studies.views.documents import markdown, page
from atoll_studies.views.plots import figure_plot
from atoll_studies.views.tables import Table, by_number, headline, tables
from tests.support.synthetic_run import begin, experiment, network

DASH = "\N{EN DASH}"


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What analysis says of a run that measured nothing, called valid."""
    from atoll_analysis import analyse
    from atoll_hosts.binary import find_binary

    run = begin(tmp_path_factory.mktemp("nothing"), experiment(), network())
    return {**analyse(run, find_binary()), "verdict": "valid", "reasons": []}


UNFINISHED: dict[str, Any] = {"transfer_complete": False, "transfer_room_s": 58.0}


class Runs:
    """Makes runs that were asked something and measured something."""

    def __init__(self, folder: Path, summary: dict[str, Any]) -> None:
        self._folder, self._summary = folder, summary

    def __call__(self, seed: int, control: str = "cubic", revision: str = "0123abcd", **measured: Any) -> RunDir:
        asked = experiment(seed=seed)
        run = begin(self._folder, replace(asked, tcp=replace(asked.tcp, congestion_control=control)), network())
        run.update_manifest({"revision": revision})
        run.write_summary({**self._summary, "run_dir": str(run.path), "seed": seed, **measured})
        return run


@pytest.fixture
def runs(tmp_path: Path, summary: dict[str, Any]) -> Runs:
    return Runs(tmp_path, summary)


@pytest.fixture
def compared(runs: Runs) -> Results:
    """Four seeds with cubic, of which one is invalid and one was run twice, and three with bbr; mixed up."""
    return compare(
        [
            runs(1, goodput_mbit_s=10.0, transfer_s=7.0),
            runs(1, "bbr", goodput_mbit_s=20.0, **UNFINISHED),
            runs(2, goodput_mbit_s=12.0, transfer_s=5.0),
            runs(3, goodput_mbit_s=99.0, transfer_s=1.0, verdict="invalid", reasons=["it was too late"]),
            runs(4, goodput_mbit_s=11.0, **UNFINISHED),
            runs(2, "bbr", goodput_mbit_s=24.0, transfer_s=6.0),
            runs(1, goodput_mbit_s=10.0, transfer_s=7.0),
            runs(3, "bbr", goodput_mbit_s=21.0, transfer_s=8.0),
        ]
    )


def numbers(results: Results, configuration: int) -> list[int]:
    """The runs of a configuration that count."""
    return [run.number for run in results.runs if run.configuration == configuration]


def table(results: Results, title: str) -> Table:
    """The table of that title."""
    return next(each for each in tables(results, each_run=True) if each.title == title)


def section(results: Results, heading: str) -> dict[str, tuple[str, ...]]:
    """The rows of a figure over runs, by configuration."""
    return {row[0]: row[1:] for row in dict(table(results, "over runs").sections)[heading]}


def test_runs_alike_but_for_their_seed_are_a_configuration(compared: Results) -> None:
    found = results_json(compared)["configurations"]
    assert [(each["name"], each["runs"]) for each in found] == [("A", [1, 3, 4, 5, 7]), ("B", [2, 6, 8])]
    assert [each["levels"] for each in found] == [{"tcp.congestion_control": name} for name in ("cubic", "bbr")]


def test_loss_of_the_link_is_told_apart_from_what_coders_leave(runs: Runs, compared: Results) -> None:
    about = "loss: of the slowest link, before coders bring packets back; the rest are 'packets lost behind coders'"
    left = {"chain": {"lost": 12, "longest": 3}}
    coded = compare(
        [runs(seed, loss_fraction=0.01, goodput_mbit_s=float(seed), residual_bursts=left) for seed in (1, 2, 3)]
    )
    assert about in table(coded, "over runs").notes
    assert section(coded, "packets lost behind coders, packets")["A"][1] == "12"
    assert about not in table(compared, "over runs").notes


def test_samples_are_valid_and_counted_once(compared: Results) -> None:
    """In virtual time a seed has one answer: run twice it is still one sample."""
    assert numbers(compared, 0) == [1, 3, 5]
    assert [(run.number, run.verdict, run.repeats) for run in compared.uncounted] == [
        (4, "invalid", None),
        (7, "valid", 1),
    ]
    assert table(compared, "over runs").notes[-2:] == (
        "not counted, invalid: #4",
        "not counted, because every figure equals that of an earlier run: #7 (#1)",
    )


def test_one_seed_that_measured_something_else_is_another_sample(runs: Runs) -> None:
    """As in real time, where a seed has as many answers as runs."""
    found = compare([runs(1, goodput_mbit_s=goodput) for goodput in (10.0, 10.1, 10.2)])
    assert numbers(found, 0) == [1, 2, 3]
    assert headline(found) == "3 runs, identical in all recorded properties"


def test_what_else_differs_parts_configurations(runs: Runs) -> None:
    """Of another version of the program a seed's packets are others, and so may their distribution be."""
    found = compare([*(runs(seed, goodput_mbit_s=seed) for seed in (1, 2, 3)), runs(4, revision="4567cdef")])
    assert [numbers(found, number) for number in range(2)] == [[1, 2, 3], [4]]
    assert found.factors == ("revision",)
    assert table(found, "not alike").rows == [("revision", "A", "0123abcd"), ("", "B", "4567cdef")]


def test_configurations_have_medians_with_intervals_and_differences(compared: Results) -> None:
    assert table(compared, "configurations").rows == [
        ("tcp.congestion_control", "cubic", "bbr"),
        ("runs", "#1 #3-5 #7", "#2 #6 #8"),
        ("samples", "3", "3"),
    ]
    assert section(compared, "goodput, Mbit/s") == {
        "A  cubic": ("3", "11.000", "10.000 to 12.000", "75.0 %", "", "", "", ""),
        "B  bbr": (
            *("3", "21.000", "20.000 to 24.000", "75.0, 50.0 %"),
            *("+11.000", "+100%", "+10.000 to +12.000", "2 of 2 up"),
        ),
    }
    assert section(compared, "transfer time, s")["B  bbr"] == (
        *("3, 66.7\N{NO-BREAK SPACE}% finished", "8.00", "6.00 to > 58.00", "75.0, 50.0 %"),
        *("> +26.00", "", "+1.00 to > +51.00", "2 of 2 up"),
    ), "one of three did not finish in 58 s, so one of two differences is only known to be more than 51 s"
    notes = table(compared, "over runs").notes
    assert any(note.startswith("a transfer that did not finish counts as longer") for note in notes)
    assert notes[0].startswith("equal in all rows: base RTT, ms: 500.400; ")


def test_seeds_are_paired(runs: Runs) -> None:
    """What hides in the spread of the seeds shows when each is held against itself."""
    cubic = [runs(seed, goodput_mbit_s=10.0 * seed) for seed in (1, 2, 3, 4)]
    more = ((4, 1), (3, 1), (2, -1), (1, 0.0001))
    bbr = [runs(seed, "bbr", goodput_mbit_s=10.0 * seed + extra) for seed, extra in more]
    found = compare([*cubic, *bbr]).figure_of(1, "goodput")
    assert found is not None
    assert found.difference is not None
    assert found.difference.median.value == pytest.approx(0.50005)
    assert (found.difference.higher, found.difference.lower) == (3, 1)
    results = compare([*cubic[1:], *bbr[:3]])
    assert section(results, "goodput, Mbit/s")["B  bbr"] == (
        *("3", "31.000", "19.000 to 41.000", "75.0 %", "+1.000", "+3.3%", "-1.000 to +1.000", "2 of 3 up"),
    )


def test_samples_of_one_seed_stand_for_it_by_their_median(runs: Runs) -> None:
    first = [runs(1, goodput_mbit_s=value) for value in (1.0, 9.0, 2.0)]
    results = compare([*first, runs(1, "bbr", goodput_mbit_s=3.0), runs(2, "bbr", goodput_mbit_s=8.0)])
    found = results.figure_of(1, "goodput")
    assert found is not None
    assert found.difference is not None
    assert (found.difference.median.value, found.difference.median.runs) == (1.0, 1)
    assert results.values(0, "goodput") == {1: (2.0, 2.0)}


def test_another_configuration_may_be_the_baseline(compared: Results, runs: Runs) -> None:
    paths = [RunDir(run.path) for run in compared.all_runs if run.path]
    found = compare(paths, ["goodput"], {"tcp.congestion_control": "bbr"})
    assert section(found, "goodput, Mbit/s")["A  cubic"][4:7] == ("-11.000", "-52.4%", "-12.000 to -10.000")
    with pytest.raises(UsageError, match=r"--baseline tcp\.congestion_control=reno: unknown level"):
        compare(paths, [], {"tcp.congestion_control": "reno"})
    with pytest.raises(UsageError, match="--baseline revision=0123abcd: unknown factor"):
        compare(paths, [], {"revision": "0123abcd"})
    # cubic with another revision has no counterpart: it differs from every other configuration in two things
    found = compare([*paths, runs(1, "hybla", "4567cdef", goodput_mbit_s=1.0)], [], {"tcp.congestion_control": "bbr"})
    assert [each.baseline for each in found.figures if each.figure == "goodput"] == [1, None, None]


def test_two_samples_are_no_distribution(runs: Runs) -> None:
    found = compare([runs(1, goodput_mbit_s=1.0), runs(2, goodput_mbit_s=2.0)])
    assert not found.is_sampled
    assert headline(found) == "2 runs, alike but for their seeds"
    assert "Over runs" not in markdown(found)
    assert [row[-2] for row in next(tables(found)).rows] == ["seed 1", "seed 2"]


def test_json_has_all_runs_and_estimates(compared: Results) -> None:
    found = json.loads(json.dumps(results_json(compared)))
    first, second = found["configurations"]
    assert (first["name"], first["runs"], first["counted"]) == ("A", [1, 3, 4, 5, 7], [1, 3, 5])
    assert found["runs"][6]["repeats"] == 1
    assert second["levels"] == {"tcp.congestion_control": "bbr"}
    row = next(row for row in found["figures"] if (row["figure"], row["tcp.congestion_control"]) == ("goodput", "bbr"))
    assert {key: row[key] for key in ("runs", "median", "least", "greatest", "baseline", "pairs", "pairs_higher")} == {
        "runs": 3,
        "median": 21.0,
        "least": 20.0,
        "greatest": 24.0,
        "baseline": "cubic",
        "pairs": 2,
        "pairs_higher": 2,
    }
    row = next(row for row in found["figures"] if row["figure"] == "transfer time")
    assert (row["tcp.congestion_control"], row["runs"], row["finished"]) == ("cubic", 3, 2)
    assert (row["median"], row["median_high"], row["median_limits"], row["greatest"]) == (7.0, 58.0, "==>", None)
    assert row["mean"] is None
    assert found["runs"][4]["limits"]["transfer time"] == [58.0, None]
    assert "Infinity" not in json.dumps(found)


def test_a_plot_marks_the_limits_of_transfers_that_did_not_finish(compared: Results) -> None:
    panel = figure_plot(compared, "transfer time").axes[0]
    triangles = [np.asarray(line.get_xdata()) for line in panel.get_lines() if line.get_marker() == ">"]
    assert sorted(float(x) for each in triangles for x in each) == [58.0] * 4, "a run and an end of each interval"
    assert "a limit, as not all finished" in panel.get_title(loc="left")


def test_a_figure_that_no_sample_measured_has_no_median(runs: Runs) -> None:
    found = compare([*(runs(seed, transfer_s=float(seed)) for seed in (1, 2, 3)), runs(1, "bbr", goodput_mbit_s=1.0)])
    assert list(section(found, "transfer time, s")) == ["A  cubic"]
    assert found.figure_of(1, "transfer time") is None


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_terminal_is_never_too_narrow(
    compared: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_results(compared, per_run=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert not any(line != line.rstrip() for line in lines), "nothing but text goes into a pipe"


def test_of_many_runs_in_groups_each_is_printed_when_asked(
    compared: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    print_results(compared)
    answer = capsys.readouterr().out
    assert re.search(r"^  A  #4 .*seed 3 +invalid; it was too late$", answer, re.MULTILINE)
    assert re.search(r"^goodput, Mbit/s\nA +cubic +3 +11\.000 +10\.000 to", answer, re.MULTILINE)
    assert "figures of every run: --per-run, --out, --json" in answer
    assert "99.000" not in answer
    print_results(compared, per_run=True)
    assert "99.000" in capsys.readouterr().out


def test_a_pipe_has_lines_of_one_width_whatever_the_terminal(
    compared: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_results(compared)
    piped = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "120")
    print_results(compared)
    assert capsys.readouterr().out == piped


def test_markdown_and_page_hold_configurations_and_every_run(compared: Results) -> None:
    text, html = markdown(compared), page(compared)
    assert "| **goodput, Mbit/s** |" in text
    assert "| B  bbr | 3 | 21.000 | 20.000 to 24.000 | 75.0, 50.0 % | +11.000 | +100% |" in text
    assert "| #4 | 3 | cubic | invalid |" in text
    assert "- not counted, because every figure equals that of an earlier run: #7 (#1)\n" in text
    assert '<td class="n">21.000</td><td class="n">20.000 to 24.000</td><td class="n">75.0, 50.0 %</td>' in html
    assert re.search(
        r'<tr><th>#4</th><td class="t">3</td><td class="t">cubic</td><td class="t">invalid</td>.*>99.000</td>',
        html,
    )


def test_tables_are_written_as_csv_and_parquet(compared: Results, tmp_path: Path) -> None:
    """With --per-run those of the runs."""
    paths = [run.path for run in compared.all_runs if run.path]
    for form, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet)):
        report_comparison(paths, View(out=tmp_path / f"figures.{form}"))
        figures = read(tmp_path / f"figures.{form}").filter(figure="goodput")
        assert figures["tcp.congestion_control"].to_list() == ["cubic", "bbr"]
        assert figures["difference"].to_list() == [None, 11.0]
        report_comparison(paths, View(out=tmp_path / f"runs.{form}", per_run=True))
        runs = read(tmp_path / f"runs.{form}")
        assert runs["goodput_mbit_s"].to_list() == [10.0, 12.0, 11.0, 20.0, 24.0, 21.0]
        assert runs["run"][0] == str(paths[0])
    assert pl.read_parquet_metadata(tmp_path / "runs.parquet")["unit:goodput_mbit_s"] == "Mbit/s"
    report_comparison(paths, View(out=tmp_path / "all.json"))
    assert json.loads((tmp_path / "all.json").read_text()) == json.loads(json.dumps(results_json(compared)))


def test_the_verb_groups(runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    made = [runs(seed, goodput_mbit_s=seed).path for seed in range(1, 8)]
    report_comparison(made, View(["goodput"], per_run=True))
    answer = capsys.readouterr().out
    assert re.search(r"^goodput, Mbit/s\nA +7 +4\.000 +1\.000 to 7\.000 +98\.4 %$", answer, re.MULTILINE)
    assert re.search(r"^#7 +7 +7\.000$", answer, re.MULTILINE)


def test_names_of_configurations_and_numbers_of_runs() -> None:
    assert [letters(number) for number in (0, 25, 26, 27, 51, 52, 701, 702)] == [
        *("A", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA")
    ]
    assert by_number([1, 3, 4, 5, 7, 8]) == "#1 #3-5 #7 #8"


def test_runs_none_of_which_is_valid_count_nowhere(runs: Runs, tmp_path: Path) -> None:
    bad = [runs(seed, goodput_mbit_s=1.0, verdict="invalid", reasons=["late"]) for seed in (1, 2)]
    found = compare(bad)
    assert ([run.number for run in found.uncounted], found.runs, found.figures) == ([1, 2], (), ())
    assert not found.is_sampled
    for form in (".html", ".md", ".csv", ".parquet", ".json"):
        report_comparison([run.path for run in bad], View(out=tmp_path / f"none{form}"))
        assert (tmp_path / f"none{form}").exists()
    with pytest.raises(UsageError, match="no run of the comparison measured 'goodput'"):
        report_comparison([run.path for run in bad], View(["goodput"], out=tmp_path / "none.svg"))


def test_what_others_are_held_against_has_a_sample() -> None:
    """A run that failed first is a configuration of its own, without any."""
    assert arrange(["failed", "a", "b"], [False, True, True], [0, 1, 2]) == ([2, 0, 1], [None, None, None])
