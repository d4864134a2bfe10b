# SPDX-License-Identifier: Apache-2.0
"""Runs side by side: what they were asked differently and what they measured, in every form it is shown in."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll.analysis import analyse
from atoll.model.errors import RunError, UsageError
from atoll.model.experiment import Experiment
from atoll.model.units import Rate
from atoll.rundir import RunDir
from atoll_dashboards.compare import compare
from atoll_dashboards.compare_forms import markdown, page, print_comparison, write_comparison
from atoll_hosts.binary import find_binary
from tests.unit.synthetic_run import begin, experiment, network

NBSP, DASH = "\N{NO-BREAK SPACE}", "\N{EN DASH}"


def run_of(folder: Path, asked: Experiment, manifest: dict[str, Any], **measured: Any) -> RunDir:
    """An analysed run that measured these figures and nothing else."""
    run = begin(folder, asked, network())
    run.update_manifest(manifest)
    run.write_summary({**analyse(run, find_binary()), "verdict": "valid", "reasons": [], **measured})
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunDir]:
    """One experiment in real time, and in virtual time with another congestion control and rate."""
    folder = tmp_path_factory.mktemp("runs")
    asked = experiment()
    link = asked.links[0]
    faster = replace(link, to_island=replace(link.to_island, rate=Rate(32_000_000)))
    other = replace(
        asked, links=(faster,), tcp=replace(asked.tcp, congestion_control="hybla", servers=(("w1", "bbr"),))
    )
    real = run_of(
        folder, asked, {"place": "mininet", "backend": "engine"}, goodput_mbit_s=10.0, ping_sent=5, lateness_max_ms=0.25
    )
    reasons = ["something <i>odd</i>"]
    virtual = run_of(
        folder,
        other,
        {"place": "virtual", "backend": "tc"},
        goodput_mbit_s=12.5,
        ping_sent=5,
        reasons=reasons,
        verdict="invalid",
    )
    return [real, virtual]


def test_settings_that_differ_go_by_their_keys_in_the_description(runs: list[RunDir]) -> None:
    assert dict(compare(runs).settings) == {
        "links.sat.to_island.rate": ("16 Mbit/s", "32 Mbit/s"),
        "tcp.congestion_control": ("cubic", "hybla"),
        "tcp.servers.w1": (DASH, "bbr"),
    }


def test_place_and_backend_are_told_always(runs: list[RunDir]) -> None:
    assert dict(compare(runs).origins) == {"place": ("mininet", "virtual"), "backend": ("engine", "tc")}
    assert dict(compare([runs[0], runs[0]]).origins) == {"place": ("mininet",) * 2, "backend": ("engine",) * 2}


def test_figures_stand_with_their_difference_from_the_first_run(runs: list[RunDir]) -> None:
    figures = {each.name: each for each in compare(runs).figures}
    assert figures["goodput"].values == (10.0, 12.5)
    assert figures["goodput"].texts() == (f"10.000{NBSP}Mbit/s", f"12.500{NBSP}Mbit/s (+25.0%)")
    assert figures["lateness at most"].texts() == (f"0.250{NBSP}ms", DASH)
    assert figures["pings lost"].texts() == ("0", "0")
    assert "transfer time" not in figures, "nobody measured it"


def test_only_the_figures_asked_for(runs: list[RunDir]) -> None:
    assert [each.name for each in compare(runs, ["transfer time", "goodput"]).figures] == ["goodput", "transfer time"]
    with pytest.raises(UsageError, match="--figure: unknown figure 'godput'; did you mean 'goodput'"):
        compare(runs, ["godput"])


def test_few_runs_are_columns_and_many_are_rows(runs: list[RunDir], capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(compare(runs, ["goodput"]))
    few = capsys.readouterr().out
    assert [line.split()[0] for line in few.splitlines()[1:4]] == ["place", "backend", "links.sat.to_island.rate"]
    assert few.splitlines()[-1].endswith("something <i>odd</i>")
    print_comparison(compare([*runs, *runs, *runs], ["goodput"]))
    many = capsys.readouterr().out.splitlines()
    assert many[0].split()[:3] == ["run", "place", "backend"]
    assert "links.sat.to_island.rate" in many[0], "no column is squeezed, however narrow the terminal"
    assert [line.split()[1] for line in many[1:7]] == ["mininet", "virtual"] * 3


def test_markdown_and_html_hold_the_same_table(runs: list[RunDir], tmp_path: Path) -> None:
    found = compare(runs)
    assert "| tcp.congestion_control | cubic | hybla |\n" in markdown(found)
    html = page(found)
    assert '<th>tcp.congestion_control</th><td class="n">cubic</td><td class="n">hybla</td>' in html
    assert "something &lt;i&gt;odd&lt;/i&gt;" in html
    assert "http" not in html, "it needs nothing but itself"
    for name, text in (("c.md", markdown(found)), ("c.html", html)):
        write_comparison(found, tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    with pytest.raises(UsageError, match=r"end its name in \.md or \.html"):
        write_comparison(found, tmp_path / "c.pdf")


def test_a_run_that_was_not_analysed_says_what_to_do(runs: list[RunDir], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"not analysed yet .*atoll report"):
        compare([*runs, begin(tmp_path, experiment(), network())])


def test_the_verb(runs: list[RunDir], tmp_path: Path) -> None:
    paths = [str(run.path) for run in runs]

    def report(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "atoll.cli.main", "report", *words], capture_output=True, text=True, check=False
        )

    told = report("--compare", *paths, "--figure", "goodput", "--out", str(tmp_path / "c.md"), "--json")
    found = json.loads(told.stdout)
    assert found["figures"] == [{"name": "goodput", "unit": "Mbit/s", "values": [10.0, 12.5]}]
    assert [run["verdict"] for run in found["runs"]] == ["valid", "invalid"]
    assert (tmp_path / "c.md").exists()
    two = report(*paths)
    assert (two.returncode, two.stderr) == (2, "report: one run at a time; --compare puts several side by side\n")
    lonely = report(paths[0], "--figure", "goodput")
    assert (lonely.returncode, lonely.stderr) == (2, "report: --figure and --out belong to --compare\n")
