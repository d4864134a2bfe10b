# SPDX-License-Identifier: Apache-2.0
"""Runs side by side: what they were asked differently and what they measured, in every form it is shown in."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.report import View, report_comparison
from atoll_cli.terminal.results_text import print_results
from atoll_core.errors import RunError, UsageError
from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.experiment.traffic import Load, Traffic
from atoll_core.lab.network import Network
from atoll_core.units import Rate
from atoll_hosts.binary import find_binary
from atoll_studies.results.comparison import compare
from atoll_studies.results.results import Results
from atoll_studies.results.similarity import Similarity
from atoll_studies.views.documents import SUFFIXES, markdown, page
from atoll_studies.views.tables import Table, headline, number_text, percent_text, tables
from tests.support.synthetic_run import begin, experiment, network

DASH = "\N{EN DASH}"


def run_of(
    folder: Path, asked: Experiment, manifest: dict[str, Any], lab: Network | None = None, **measured: Any
) -> RunDir:
    """An analysed run that measured these figures and nothing else."""
    run = begin(folder, asked, lab or network())
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


def likeness_of(results: Results) -> Similarity:
    """In what the runs agree and differ."""
    assert results.similarity is not None
    return results.similarity


def rows_of(table: Table) -> dict[str, tuple[str, ...]]:
    """The rows of a table by their first cells."""
    return {row[0]: row[1:] for row in table.rows}


def runs_table(results: Results) -> Table:
    """The table with the figures of every run."""
    return next(
        table for table in tables(results, each_run=True) if table.columns and "#1" in (*table.columns, *rows_of(table))
    )


def test_settings_that_differ_go_by_their_keys_in_the_description(runs: list[RunDir]) -> None:
    assert dict(likeness_of(compare(runs)).settings) == {
        "links.sat.to_island.rate": ("16 Mbit/s", "32 Mbit/s"),
        "tcp.congestion_control": ("cubic", "hybla"),
        "tcp.servers.w1": (DASH, "bbr"),
    }


def test_what_is_not_alike_but_for_settings_is_told_apart_from_what_is(runs: list[RunDir]) -> None:
    found = likeness_of(compare(runs))
    assert dict(found.unlike) == {"place": ("mininet", "virtual"), "backend": ("engine", "tc")}
    alike = dict(found.alike)
    assert alike["experiment"] == "synthetic"
    assert alike["lab"].startswith("synthetic, SHA-256 ")
    assert (alike["seed"], alike["chain"], alike["revision"]) == ("1", "tap-w - sat - tap-i", "0123abcd")
    assert alike["channels"] == "20 to 6 clients: 2 have 4, 4 have 3"
    assert alike["ping"] == "interval 100 ms"
    assert alike["tcp"].startswith("ecn false, buffer_max 16 MB"), "the congestion control is another one"


def test_runs_of_unlike_laboratories_seeds_chains_and_revisions_say_so(runs: list[RunDir], tmp_path: Path) -> None:
    asked = experiment(seed=7, branches=(Chain("datagrams", ("sat",), TrafficSelector(protocol=Protocol.UDP)),))
    lab = replace(network(4), name="smaller")
    other = run_of(tmp_path, asked, {"revision": "4567cdef"}, lab, goodput_mbit_s=9.0)
    found = likeness_of(compare([runs[0], other]))
    unlike = dict(found.unlike)
    assert {"lab", "seed", "chain datagrams", "channels", "revision"} <= set(unlike)
    assert unlike["lab"][1].startswith("smaller, SHA-256 ")
    assert unlike["chain datagrams"] == (DASH, "sat for UDP")
    assert unlike["channels"] == ("20 to 6 clients: 2 have 4, 4 have 3", "20 to 4 clients: 4 have 5")
    assert dict(found.settings)["lab.hosts.i5"] == (
        (
            "{ip: 10.20.0.5, role: island-client, capacity: 1, port: s1/13, interface: i5-eth0, "
            "mac: 02:00:00:00:00:0d, mtu: 1500}"
        ),
        DASH,
    )


def test_channels_that_follow_from_those_of_a_group_are_not_unlike(tmp_path: Path) -> None:
    def grouped(channels: int) -> RunDir:
        near = Load(channels, "1 kB", 5001, name="near", clients=("i1",))
        far = Load(20, "1 kB", 5001, name="far", clients=("i2", "i3", "i4", "i5", "i6"))
        return run_of(tmp_path / "runs", experiment(traffic=Traffic(20, "1 kB", 5001, groups=(near, far))), {})

    found = likeness_of(compare([grouped(2), grouped(4)]))
    assert dict(found.unlike) == {}
    assert dict(found.settings) == {"traffic.groups.near.channels": ("2", "4")}


def test_runs_in_virtual_time_on_different_kernels_are_refused(tmp_path: Path, runs: list[RunDir]) -> None:
    """A run that does not tell its mode was made when there was ptrace only; real time has no such kernel."""
    old = {"place": "virtual", "virtual": {"kernel": "6.1.192-atoll"}}
    same = {"place": "virtual", "virtual": {"kernel": "6.1.192-atoll", "mode": "ptrace"}}
    other = {"place": "virtual", "virtual": {"kernel": "7.2.12-atoll", "mode": "seccomp"}}
    first, second, third = (run_of(tmp_path / "runs", experiment(), each) for each in (old, same, other))
    assert compare([first, second, runs[0]])
    with pytest.raises(
        UsageError,
        match=r"^runs in virtual time on different kernels: Linux 6\.1\.192-atoll \(ptrace\) in \S+, "
        r"Linux 7\.2\.12-atoll \(seccomp\) in \S+; --mixed-kernels compares them anyway$",
    ):
        compare([first, runs[0], third])
    assert dict(likeness_of(compare([first, third], mixed_kernels=True)).unlike)["kernel's mode"] == (DASH, "seccomp")


def test_runs_with_metrics_and_without_are_not_alike(runs: list[RunDir], tmp_path: Path) -> None:
    """In virtual time they are two samples."""
    with_metrics, without = (run_of(tmp_path / str(flag), experiment(), {"metrics": flag}) for flag in (True, False))
    assert ("metrics", ("taken", "none")) in likeness_of(compare([with_metrics, without])).unlike


def test_a_detail_of_a_laboratory_is_told_by_its_name(runs: list[RunDir], tmp_path: Path) -> None:
    lab = network()
    hosts = tuple(replace(host, capacity=3.0) if host.name == "i1" else host for host in lab.hosts)
    other = run_of(tmp_path, experiment(), {}, replace(lab, hosts=hosts, file="elsewhere/synthetic.yaml"))
    found = likeness_of(compare([runs[0], other]))
    assert dict(found.settings) == {"lab.hosts.i1.capacity": ("1", "3")}
    unlike = dict(found.unlike)
    assert (
        unlike["channels"][1] == "20 to 6 clients: 1 has 8 (capacity 3), 2 have 3 (capacity 1), 3 have 2 (capacity 1)"
    )
    assert "lab file" not in unlike, "it is called the same"


def test_channels_that_others_got_are_told_by_client(runs: list[RunDir], tmp_path: Path) -> None:
    """The numbers are alike, and yet the load came from somewhere else."""
    other = run_of(tmp_path, experiment(), {})
    plan = other.manifest()["plan"]
    dealt = [each["channels"] for each in plan["placement"]]
    for each, channels in zip(plan["placement"], reversed(dealt), strict=True):
        each["channels"] = channels
    other.update_manifest({"plan": plan})
    found = likeness_of(compare([runs[0], other]))
    assert dict(found.settings) == {
        "channels of i1": ("4", "3"),
        "channels of i2": ("4", "3"),
        "channels of i5": ("3", "4"),
        "channels of i6": ("3", "4"),
    }


def test_channels_that_many_others_got_are_counted(tmp_path: Path) -> None:
    """Of a laboratory with a hundred clients."""
    pair = [run_of(tmp_path / name, experiment(), {}, network(30)) for name in ("a", "b")]
    plan = pair[1].manifest()["plan"]
    dealt = [each["channels"] for each in plan["placement"]]
    assert sorted(dealt) == [0] * 10 + [1] * 20
    for each, channels in zip(plan["placement"], reversed(dealt), strict=True):
        each["channels"] = channels
    pair[1].update_manifest({"plan": plan})
    assert dict(likeness_of(compare(pair)).settings) == {"channels of clients (number)": ("30", "30 (20 unlike #1)")}


def test_many_members_that_differ_are_a_row(runs: list[RunDir], tmp_path: Path) -> None:
    """A full laboratory has two dozen servers: their latencies would hide everything else."""
    many = tuple((f"w{number}", "rtt-5") for number in range(1, 21))
    other = run_of(tmp_path, experiment(latency=many), {})
    assert dict(likeness_of(compare([runs[0], other])).settings) == {"latency (number)": ("6", "20 (5 unlike #1)")}


def test_laboratories_unlike_in_much_are_counted(runs: list[RunDir], tmp_path: Path) -> None:
    """Part by part; what they share of each is told as well."""
    lab = network(4)
    boxes = (replace(lab.boxes[0], settings=(("mode", "off"),)),)
    hosts = tuple(replace(host, capacity=2.0) if host.name.startswith("i") else host for host in lab.hosts)
    other = run_of(tmp_path, experiment(), {}, replace(lab, hosts=hosts, boxes=boxes))
    found = likeness_of(compare([runs[0], other]))
    answer = dict(found.settings)
    assert (answer["lab.hosts (number)"], answer["lab.boxes (number)"]) == (
        ("15", "13 (5 unlike #1)"),
        ("1", "1 (1 unlike #1)"),
    )
    assert dict(found.alike)["lab.hosts"] == "89 settings"
    assert dict(found.alike)["lab.switches"] == "s1.dpid 1, s1.driver ovs; none: s1.twin"


def test_figures_stand_with_their_difference_from_the_first_run(runs: list[RunDir]) -> None:
    found = compare(runs)
    assert [run.figures["goodput"] for run in found.all_runs] == [10.0, 12.5]
    figures = rows_of(runs_table(found))
    assert figures["goodput, Mbit/s"] == ("10.000", "12.500\n+25.0%")
    assert figures["lateness at most, ms"] == ("0.250", DASH)
    assert figures["pings lost"] == ("0", "0")
    assert "transfer time, s" not in figures, "nobody measured it"


@pytest.mark.parametrize(
    ("name", "first", "then", "answer"),
    [
        ("base RTT", 0.0006, 0.0013, "="),  # 0.001 both, whatever the share
        ("base RTT", 500.210, 500.000, "-0.04%"),
        ("base RTT", 500.210, 500.811, "+0.1%"),
        ("base RTT", 500.000123, 500.000567, "+0.0002%"),  # 500.000 and 500.001
        ("base RTT", 0.0006, 0.0004, "-100%"),  # 0.001 and 0.000
        ("base RTT", 0.0004, 0.0006, ""),  # of 0.000 there is no share
        ("flows completed", 10.0, 25.0, "+150%"),
        ("flows completed", 1.0, 1000.0, ""),
        ("goodput", 0.0473, 0.0469, "-0.8%"),
    ],
)
def test_a_difference_is_that_of_the_numbers_that_are_shown(name: str, first: float, then: float, answer: str) -> None:
    assert percent_text(name, first, then) == answer


def test_a_slow_rate_has_as_many_digits_as_in_the_report() -> None:
    """Of 47.3 kbit/s three digits after the point leave 0.047; a fast one keeps those three."""
    assert [number_text("goodput", found) for found in (0.0473, 0.0469, 0.00012, 12.3456, 0.0, None)] == [
        *("0.0473", "0.0469", "0.000120", "12.346", "0.000", DASH)
    ]


def test_a_run_that_an_older_version_analysed_is_named(runs: list[RunDir], tmp_path: Path) -> None:
    """Of many, with the command that makes its summary anew."""
    old = run_of(tmp_path, experiment(), {})
    old.write_summary({key: found for key, found in old.summary().items() if key != "changes"})
    with pytest.raises(
        RunError, match=r"older version that did not compute 'changes'; run `atoll report \S+` to"
    ) as answer:
        compare([*runs, old])
    assert str(answer.value).count(str(old.path)) == 2


def test_only_the_figures_asked_for(runs: list[RunDir]) -> None:
    found = compare(runs, ["transfer time", "goodput"])
    assert found.shown == ("goodput", "transfer time")
    assert [row[0] for row in runs_table(found).rows][-2:] == ["goodput, Mbit/s", "transfer time, s"]
    with pytest.raises(
        UsageError, match=r"unknown figure 'godput'; did you mean 'goodput'.*; `atoll results` lists all"
    ):
        compare(runs, ["godput"])


def test_too_few_runs_for_differences_from_a_baseline_say_so(runs: list[RunDir]) -> None:
    asked = compare(runs, ["goodput"], {"tcp.congestion_control": "cubic"})
    assert any("no differences from the baseline" in note for note in runs_table(asked).notes)
    assert runs_table(compare(runs, ["goodput"])).notes == ()


def printed(
    found: Results, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int = 100
) -> list[str]:
    """The lines that a terminal of so many columns is sent."""
    monkeypatch.setenv("COLUMNS", str(columns))
    print_results(found)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6])
def test_up_to_six_runs_are_columns_of_a_terminal(
    runs: list[RunDir], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    """In a hundred of its columns, every number on one line and in the column of its run."""
    lines = printed(compare([*runs, *runs, *runs][:number]), monkeypatch, capsys)
    assert max(map(len, lines)) <= 100
    assert lines[0] == f"{number} runs; they differ in more than settings and seeds: see 'not alike'"
    head = next(line for line in lines if line.split() == [f"#{each + 1}" for each in range(number)])
    goodput = next(line for line in lines if line.startswith("goodput, Mbit/s"))
    ends = [match.end() for match in re.finditer(r"\d+\.\d{3}( \S+%| =)?", goodput)]
    assert len(ends) == number
    assert ends == [match.end() for match in re.finditer(r"#\d", head)], "figures stand under their run"


def test_what_differs_stands_on_top_and_what_is_alike_once(
    runs: list[RunDir], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(compare(runs, ["goodput"]), monkeypatch, capsys)
    assert any(line.endswith("invalid; something <i>odd</i>") for line in lines)
    place = lines.index("  place    #1  mininet")
    assert lines[place + 1] == "           #2  virtual"
    assert place < next(number for number, line in enumerate(lines) if line.startswith("goodput"))
    assert sum(line.split()[:1] == ["seed"] for line in lines) == 1
    assert sum(line.split()[:1] == ["revision"] for line in lines) == 1


def test_brackets_are_no_markup(
    runs: list[RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a path or a name; not even ones that would be the end of nothing."""
    other = run_of(tmp_path / "[dim]", experiment(), {"place": "a [/b]"}, goodput_mbit_s=9.0)
    lines = printed(compare([runs[0], other]), monkeypatch, capsys)
    assert any("[dim]" in line for line in lines)
    assert "           #2  a [/b]" in lines


def test_many_runs_are_rows(
    runs: list[RunDir], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many columns in a table as the terminal has room for, the runs in front of each."""
    lines = printed(compare([*runs, *runs, *runs, *runs]), monkeypatch, capsys, columns=60)
    assert max(map(len, lines)) <= 60
    numbers = [f"#{number}" for number in range(1, 9)]
    first = [number for number, line in enumerate(lines) if line.startswith("#1 ")]
    assert len(first) >= 2
    for start in first:
        assert [line.split()[0] for line in lines[start : start + 8]] == numbers
    answer = "\n".join(lines)
    assert re.search(r"^#2 +32 Mbit/s +hybla +bbr +invalid", answer, re.MULTILINE)
    assert re.search(r"^#8 .* 12\.500", answer, re.MULTILINE)
    assert re.search(r"links\.sat .*\n *\.to_island .*\n *\.rate ", answer), "keys are folded between their parts"
    assert "equal in all rows: " in answer
    assert "pings lost: 0" in answer


def test_markdown_and_html_hold_the_same_table(runs: list[RunDir], tmp_path: Path) -> None:
    found = compare(runs)
    assert "| tcp.congestion_control | cubic | hybla |\n" in markdown(found)
    assert "| goodput, Mbit/s | 10.000 | 12.500<br>+25.0% |\n" in markdown(found)
    assert "- place #1: mininet\n- #2: virtual\n" in markdown(found)
    assert "- seed: 1\n" in markdown(found)
    html = page(found)
    assert '<th>tcp.congestion_control</th><td class="n">cubic</td><td class="n">hybla</td>' in html
    assert '<td class="n">12.500<br>+25.0%</td>' in html
    assert "something &lt;i&gt;odd&lt;/i&gt;" in html
    assert "http" not in html, "it needs nothing but itself"


def test_a_comparison_is_written_as_its_file_is_named(runs: list[RunDir], tmp_path: Path) -> None:
    found, paths = compare(runs), [run.path for run in runs]
    for name, text in (("c.md", markdown(found)), ("c.HTML", page(found))):
        report_comparison(paths, View(out=tmp_path / name))
        assert (tmp_path / name).read_text(encoding="utf-8") == text
    with pytest.raises(
        UsageError,
        match=r"^--out \S+c.txt: the name does not end in \.html, \.md, \.csv, \.parquet, \.json, \.svg, \.pdf "
        r"or \.png$",
    ):
        report_comparison(paths, View(out=tmp_path / "c.txt"))
    for form in SUFFIXES:
        with pytest.raises(UsageError, match=r"^--out \S+: cannot be written \(No such file or directory\); name"):
            report_comparison(paths, View(out=tmp_path / "none" / f"c{form}"))


def test_a_run_that_was_not_analysed_says_what_to_do(runs: list[RunDir], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"not analysed yet .*atoll report"):
        compare([*runs, begin(tmp_path, experiment(), network())])


def test_the_verb(runs: list[RunDir], tmp_path: Path) -> None:
    paths = [str(run.path) for run in runs]

    def report(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "atoll_cli.main", "report", *words], capture_output=True, text=True, check=False
        )

    answer = report("--compare", *paths, "--figure", "goodput", "--out", str(tmp_path / "c.md"), "--json")
    found = json.loads(answer.stdout)
    assert found["unlike"] == ["place", "backend"]
    assert found["origins"]["seed"] == ["1", "1"]
    assert [run["figures"] for run in found["runs"]] == [{"goodput": 10.0}, {"goodput": 12.5}]
    assert [run["verdict"] for run in found["runs"]] == ["valid", "invalid"]
    assert (tmp_path / "c.md").exists()
    two = report(*paths)
    assert (two.returncode, two.stderr) == (2, "report: name one run, or use --compare for several\n")
    one = report("--compare", paths[0])
    reason = "report: --compare needs two or more runs, not 1; `atoll report RUN` reports one\n"
    assert (one.returncode, one.stdout, one.stderr) == (2, "", reason)
    lonely = report(paths[0], "--figure", "goodput")
    assert (lonely.returncode, lonely.stderr) == (
        2,
        "report: --figure, --baseline, --out and --per-run need --compare or a study\n",
    )


def test_runs_with_nothing_to_analyse_are_left_out_where_two_remain(
    runs: list[RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early, going = RunDir.create(tmp_path, "geo", 0), RunDir.create(tmp_path, "geo", 0)
    early.update_manifest({"outcome": "cancelled at step switches"})
    report_comparison([early.path, runs[0].path, going.path, runs[1].path], View(as_json=True))
    answer = capsys.readouterr()
    assert answer.err.splitlines() == [
        (
            f"left out: {early.path}: nothing to analyse: the run ended before its plan was computed (cancelled at "
            "step switches)"
        ),
        (
            f"left out: {going.path}: is in progress; if it was killed, `atoll report {going.path}` analyses the "
            "recorded part"
        ),
    ]
    found = json.loads(answer.out)
    assert [each["run_dir"] for each in found["runs"]] == [str(run.path) for run in runs]
    assert [each["run_dir"] for each in found["left_out"]] == [str(early.path), str(going.path)]
    with pytest.raises(RunError, match="fewer than two runs are left to compare"):
        report_comparison([early.path, runs[0].path], View(as_json=True))


def test_a_run_that_failed_is_left_out_unless_it_was_analysed(
    runs: list[RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = RunDir.create(tmp_path, "geo", 0)
    failed.update_manifest({"outcome": "failed at step check: nothing was started\nw1: no answer", "plan": {}})
    report_comparison([failed.path, *(run.path for run in runs)], View(as_json=True))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"left out: {failed.path}: failed at step check: nothing was started; `atoll report ")


def test_a_run_that_can_be_analysed_is_not_left_out(runs: list[RunDir], tmp_path: Path) -> None:
    measured = RunDir.create(tmp_path, "geo", 0)
    measured.update_manifest({"outcome": "completed", "plan": {}})
    with pytest.raises(RunError, match=f"not analysed yet .*`atoll report {measured.path}` analyses it"):
        report_comparison([runs[0].path, measured.path, runs[1].path], View(as_json=True))


def test_one_run_is_not_alike_to_any_other(runs: list[RunDir]) -> None:
    assert headline(compare(runs[:1])) == "1 run"
