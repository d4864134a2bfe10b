# SPDX-License-Identifier: Apache-2.0
"""Runs that are alike but for their seed: which are samples of one thing, and what is said of their figures."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.report import report_comparison
from atoll_dashboards.compare.comparison import Comparison, compare
from atoll_dashboards.compare.documents import comparison_page, markdown
from atoll_dashboards.compare.seed_groups import Group, Pairs, group, letters, pairs
from atoll_dashboards.compare.sheets import (
    Cell,
    by_number,
    headline,
    legend,
    listed_runs,
    not_counted,
    sheet_of_groups,
    unlike,
)
from atoll_dashboards.compare.terminal_tables import print_comparison
from tests.support.synthetic_run import begin, experiment, network

DASH = "\N{EN DASH}"


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What analysis says of a run that measured nothing, called valid."""
    from atoll_analysis import analyse
    from atoll_hosts.binary import find_binary

    run = begin(tmp_path_factory.mktemp("nothing"), experiment(), network())
    return {**analyse(run, find_binary()), "verdict": "valid", "reasons": []}


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
def compared(runs: Runs) -> Comparison:
    """Four seeds with cubic, of which one is invalid and one was run twice, and three with bbr; mixed up."""
    return compare(
        [
            runs(1, goodput_mbit_s=10.0, transfer_s=7.0),
            runs(1, "bbr", goodput_mbit_s=20.0),
            runs(2, goodput_mbit_s=12.0, transfer_s=5.0),
            runs(3, goodput_mbit_s=99.0, transfer_s=1.0, verdict="invalid", reasons=["it was too late"]),
            runs(4, goodput_mbit_s=11.0),
            runs(2, "bbr", goodput_mbit_s=24.0, transfer_s=6.0),
            runs(1, goodput_mbit_s=10.0, transfer_s=7.0),
            runs(3, "bbr", goodput_mbit_s=21.0, transfer_s=8.0),
        ]
    )


def test_runs_alike_but_for_their_seed_are_a_group(compared: Comparison) -> None:
    assert [(each.name, each.runs) for each in compared.groups] == [("A", (0, 2, 3, 4, 6)), ("B", (1, 5, 7))]


def test_samples_are_valid_and_counted_once(compared: Comparison) -> None:
    """In virtual time a seed has one answer: run twice it is still one sample."""
    first = compared.groups[0]
    assert (first.samples, first.invalid, first.again) == ((0, 2, 4), (3,), ((6, 0),))
    assert not_counted(compared) == [
        "not counted, invalid: #4",
        "not counted, equal to an earlier run in every figure: #7 (#1)",
    ]


def test_one_seed_that_measured_something_else_is_another_sample(runs: Runs) -> None:
    """As in real time, where a seed has as many answers as runs."""
    found = compare([runs(1, goodput_mbit_s=goodput) for goodput in (10.0, 10.1, 10.2)])
    assert [each.samples for each in found.groups] == [(0, 1, 2)]
    assert headline(found) == "3 runs, identical in all recorded properties"


def test_what_else_differs_parts_groups(runs: Runs) -> None:
    """Of another version of the program a seed's packets are others, and so may their distribution be."""
    found = compare([*(runs(seed, goodput_mbit_s=seed) for seed in (1, 2, 3)), runs(4, revision="4567cdef")])
    assert [each.runs for each in found.groups] == [(0, 1, 2), (3,)]
    assert unlike(found) == [("revision", [("A", "0123abcd"), ("B", "4567cdef")])]


def test_groups_have_median_range_and_difference(compared: Comparison) -> None:
    sheet = sheet_of_groups(compared)
    assert sheet.subjects == ("A", "B")
    assert dict(sheet.texts) == {
        "tcp.congestion_control": ("cubic", "bbr"),
        "runs": ("#1 #3-5 #7", "#2 #6 #8"),
        "samples": ("3", "3"),
    }
    figures = dict(sheet.figures)
    assert figures["goodput, Mbit/s"] == (
        Cell("11.000", "", f"10.000{DASH}12.000"),
        Cell("21.000", "+90.9%", f"20.000{DASH}24.000"),
    )
    assert figures["transfer time, s"] == (
        Cell("6.00", "", f"5.00{DASH}7.00 n=2"),
        Cell("7.00", "(+16.7%)", f"6.00{DASH}8.00 n=2"),
    ), "seeds alone make such a difference, and one of three did not finish"


def test_seeds_are_paired(runs: Runs) -> None:
    """What hides in the spread of the seeds shows when each is held against itself."""
    cubic = [runs(seed, goodput_mbit_s=10.0 * seed) for seed in (1, 2, 3, 4)]
    bbr = [
        runs(seed, "bbr", goodput_mbit_s=10.0 * seed + more) for seed, more in ((4, 1), (3, 1), (2, -1), (1, 0.0001))
    ]
    sheet = sheet_of_groups(compare([*cubic, *bbr]))
    ((_, (_, cell)),) = [row for row in sheet.figures if row[0].startswith("goodput")]
    assert cell == Cell("25.000", "=", f"10.000{DASH}41.000")
    sheet = sheet_of_groups(compare([*cubic[1:], *bbr[:3]]))
    ((_, (_, cell)),) = [row for row in sheet.figures if row[0].startswith("goodput")]
    assert cell == Cell("31.000", "(+3.3%) 2/3", f"19.000{DASH}41.000")
    assert legend(sheet) == [
        "(+1.0%): the ranges overlap",
        "4/5: of 5 seeds that both have, 4 differ in that direction",
    ]


def test_samples_of_one_seed_stand_for_it_by_their_median() -> None:
    first, then = Group("A", (0, 1, 2), (0, 1, 2), (), ()), Group("B", (3, 4), (3, 4), (), ())
    found = pairs(first, then, [1.0, 9.0, 2.0, 3.0, 8.0], ["1", "1", "1", "1", "2"])
    assert found == Pairs(seeds=1, higher=1, lower=0)


def test_two_samples_are_no_distribution(runs: Runs) -> None:
    found = compare([runs(1, goodput_mbit_s=1.0), runs(2, goodput_mbit_s=2.0)])
    assert not found.sampled
    assert headline(found) == "2 runs, alike but for their seeds"
    assert "Over seeds" not in markdown(found)
    assert [run.seed for run in listed_runs(found)] == ["1", "2"]


def test_json_has_all_groups_by_number(compared: Comparison) -> None:
    first, second = json.loads(json.dumps(compared.to_json()))["groups"]
    assert (first["name"], first["runs"], first["samples"]) == ("A", [1, 3, 4, 5, 7], [1, 3, 5])
    assert first["again"] == {"7": 1}
    assert second["figures"]["goodput"] == {
        "samples": 3,
        "median": 21.0,
        "min": 20.0,
        "max": 24.0,
        "against_first": {"seeds": 2, "higher": 2, "lower": 0},
    }
    assert second["figures"]["transfer time"]["against_first"] == {"seeds": 1, "higher": 1, "lower": 0}
    assert first["figures"]["transfer time"]["samples"] == 2


def test_a_figure_that_no_sample_measured_has_no_median(runs: Runs) -> None:
    found = compare([*(runs(seed, transfer_s=float(seed)) for seed in (1, 2, 3)), runs(1, "bbr", goodput_mbit_s=1.0)])
    assert dict(sheet_of_groups(found).figures)["transfer time, s"][1] == Cell(DASH)
    assert found.to_json()["groups"][1]["figures"]["transfer time"] is None


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_terminal_is_never_too_narrow(
    compared: Comparison, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_comparison(compared, each_run=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert not any(line != line.rstrip() for line in lines), "nothing but text goes into a pipe"


def test_of_many_runs_in_groups_each_is_printed_when_asked(
    compared: Comparison, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    print_comparison(compared)
    told = capsys.readouterr().out
    assert re.search(r"^  A  #4 .*seed 3 +invalid; it was too late$", told, re.MULTILINE)
    assert re.search(r"^goodput, Mbit/s +11\.000 +21\.000 \+90\.9%$", told, re.MULTILINE)
    assert "figures of every run: --per-run, --out, --json" in told
    assert "99.000" not in told
    print_comparison(compared, each_run=True)
    assert "99.000" in capsys.readouterr().out


def test_a_pipe_has_lines_of_one_width_whatever_the_terminal(
    compared: Comparison, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_comparison(compared)
    piped = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "100")
    print_comparison(compared)
    assert capsys.readouterr().out == piped


def test_markdown_and_page_hold_groups_and_every_run(compared: Comparison) -> None:
    text, html = markdown(compared), comparison_page(compared)
    assert f"| goodput, Mbit/s | 11.000<br>10.000{DASH}12.000 | 21.000 +90.9%<br>20.000{DASH}24.000 |\n" in text
    assert "| #4 | 3 | cubic | invalid |" in text
    assert "- not counted, equal to an earlier run in every figure: #7 (#1)\n" in text
    assert f'<td class="n">21.000 <small>20.000{DASH}24.000</small> <small>+90.9%</small></td>' in html
    assert re.search(r'<tr><th>#4</th><td>3</td><td>cubic</td><td>invalid</td>.*<td class="n">99.000</td>', html)


def test_the_verb_groups(runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    made = [runs(seed, goodput_mbit_s=seed).path for seed in range(1, 8)]
    report_comparison(made, ["goodput"], None, each=True, as_json=False)
    told = capsys.readouterr().out
    assert re.search(r"^goodput, Mbit/s +4\.000$", told, re.MULTILINE)
    assert re.search(r"^#7 +7 +7\.000$", told, re.MULTILINE)


def test_names_of_groups_and_numbers_of_runs() -> None:
    assert [letters(number) for number in (0, 25, 26, 27, 51, 52, 701, 702)] == [
        *("A", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA")
    ]
    assert by_number([0, 2, 3, 4, 6, 7]) == "#1 #3-5 #7 #8"


def test_groups_of_nothing_valid_have_no_samples() -> None:
    (found,) = group(["a", "a"], [False, False], [{}, {}])
    assert (found.samples, found.invalid) == ((), (0, 1))
    assert found.spread([1.0, 2.0]) is None


def test_what_others_are_held_against_has_a_sample() -> None:
    """A run that failed first is a kind of its own, without any."""
    groups = group(["failed", "a", "b"], [False, True, True], [0, 1, 2])
    assert [(each.name, each.runs, each.samples) for each in groups] == [
        *(("A", (1,), (1,)), ("B", (2,), (2,)), ("C", (0,), ()))
    ]
