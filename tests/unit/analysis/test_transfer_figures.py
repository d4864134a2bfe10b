# SPDX-License-Identifier: Apache-2.0
"""Figures of several transfers, and of repeated ones: medians, starts left out, findings, names."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from atoll_analysis import analyse
from atoll_analysis.figures import transfers
from atoll_analysis.figures.run_figures import figure_limits, figure_names, is_figure, measured_figures
from atoll_analysis.figures.transfers import TransferFigures
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_analysis.tables.topology import RunTopology
from atoll_analysis.verdict.completeness import judge_completeness
from atoll_core.experiment.experiment import Protocol, Transfer
from atoll_core.experiment.traffic import FlowDirection, Traffic
from atoll_core.units import Duration, Size
from atoll_dashboards.report.key_figures import key_figures
from atoll_dashboards.report.report import write_report
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import PORT, START_NS, begin, experiment, network, simulate

SIZE = 1_000_000
SECOND_NS = 10**9


def done(start_s: float, seconds: float | None, received: int = SIZE, **more: Any) -> dict[str, Any]:
    """A receiver's report of a download; without ``seconds``: it did not complete."""
    start_ns = START_NS + round(start_s * SECOND_NS)
    outcome = {"received_bytes": received, "complete": seconds is not None, "seconds": seconds}
    return {"type": "done", "start_ns": start_ns, **outcome, **more}


def analysed(directory: Path, **reports: list[dict[str, Any]]) -> tuple[RunDir, Summary]:
    """A run of 60 s without load, whose transfers start at 10 s, and every 10 s if their names begin with r."""
    transfers = tuple(
        Transfer(
            Size(SIZE),
            Duration(10 * SECOND_NS),
            "atoll",
            port,
            name=name,
            receiver="i1",
            every=Duration(10 * SECOND_NS) if name.startswith("r") else None,
        )
        for port, name in enumerate(reports, 5201)
    )
    asked = experiment(transfer=None, transfers=transfers, duration=Duration(60 * SECOND_NS))
    run = begin(directory, asked, network())
    for transfer in transfers:
        lines = (json.dumps(report) for report in reports[transfer.name])
        (run.logs / f"{transfer.job('receive')}.out").write_text("".join(f"{line}\n" for line in lines))
    return run, cast("Summary", analyse(run, find_binary()))


def figures_of(directory: Path, *reports: dict[str, Any]) -> TransferFigures:
    _, summary = analysed(directory, repeated=list(reports))
    return (summary.get("transfers") or {})["repeated"]


def caveats(summary: Summary, code: str = "TRANSFER_UNFINISHED") -> list[str]:
    pairs = zip(summary["caveat_codes"], summary["caveats"], strict=True)
    return [text for found, text in pairs if found == code]


def test_the_time_of_a_repeated_transfer_is_the_median_of_its_downloads(tmp_path: Path) -> None:
    found = figures_of(tmp_path, done(10, 4.0), done(20, 2.0), done(30, 8.0), done(40, 3.0), done(50, 9.0))
    assert (found["seconds"], found["mbit_s"], found["complete"]) == (4.0, 2.0, True)
    assert [download["start_s"] for download in found["downloads"]] == [10, 20, 30, 40, 50]
    assert (found["received_bytes"], found["skipped"]) == (5 * SIZE, 0)
    assert (found["sender"], found["receiver"], found["chains"]) == ("ws", "i1", ["synthetic"])


def test_the_open_loop_and_the_requests_of_downloads_are_not_those_of_an_upload(tmp_path: Path) -> None:
    upload = Transfer(Size(SIZE), Duration(SECOND_NS), "atoll", 5201, direction=FlowDirection.UPLOAD)
    run = simulate(tmp_path, 6, transfer=upload, traffic=Traffic(20, "published", PORT, flows_per_s=10.0))
    summary = cast("Summary", analyse(run, find_binary()))
    assert "to_world" in summary
    to_world = summary["to_world"]
    assert (summary["regime"] or {})["grows"] is not None
    assert (to_world["regime"] or {})["grows"] is None
    assert [volume["goodput_bytes"] for volume in to_world["servers"].values()] == [0] * 6
    assert sum(volume["goodput_bytes"] for volume in summary["servers"].values()) > 0


def test_a_capture_counts_no_request_as_bytes_of_an_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "transfer_in_capture", lambda *_: (SIZE + 7, 1.0))
    upload = Transfer(Size(SIZE), Duration(SECOND_NS), "atoll", 5201, direction=FlowDirection.UPLOAD)
    run = begin(tmp_path, experiment(transfer=upload), network())
    found = (cast("Summary", analyse(run, find_binary())).get("transfers") or {})["transfer"]
    assert (found["received_bytes"], found["complete"]) == (SIZE - 1, False)


def test_starts_during_a_download_are_counted(tmp_path: Path) -> None:
    assert figures_of(tmp_path, done(10, 15.0), done(30, 2.0), done(40, 12.0))["skipped"] == 1


def test_a_last_download_that_the_end_of_the_run_cuts_is_not_counted(tmp_path: Path) -> None:
    _, summary = analysed(tmp_path, repeated=[done(10, 2.0), done(20, 4.0), done(50, None, 1000)])
    found = (summary.get("transfers") or {})["repeated"]
    assert (found["complete"], found["seconds"], len(found["downloads"])) == (True, 2.0, 3)
    assert caveats(summary) == []


def test_downloads_that_break_off_are_a_caveat_with_the_first_reason(tmp_path: Path) -> None:
    broken = done(20, None, 1000, error="receive from 10.10.1.1:5201: connection reset")
    _, summary = analysed(tmp_path, repeated=[done(10, 2.0), broken, done(30, 4.0)])
    assert (summary.get("transfers") or {})["repeated"]["seconds"] == 4.0, "a broken download is longer than all others"
    (text,) = caveats(summary)
    assert text == (
        "transfer 'repeated': 1 of 3 transfers of 1000000 bytes did not complete; "
        "receive from 10.10.1.1:5201: connection reset"
    )


def test_a_cut_download_behind_a_broken_one_is_counted_nowhere(tmp_path: Path) -> None:
    reports = [done(10, 2.0), done(20, None, 1000, error="reset"), done(50, None, 9)]
    _, summary = analysed(tmp_path, repeated=reports)
    assert caveats(summary) == ["transfer 'repeated': 1 of 2 transfers of 1000000 bytes did not complete; reset"]
    rows = {row.name: plain(row.remark) for row in key_figures(summary)}
    assert rows["transfer repeated"].startswith("median of 2 transfers of 1 MB, 1 complete")


def test_the_probability_of_a_false_alarm_is_shared_by_all_transfers(tmp_path: Path) -> None:
    """Three tries fail with a probability of 5e-4 where links lost 1.5 %."""
    _, summary = analysed(tmp_path, a=[done(10, None, 0)], b=[done(10, 2.0)], c=[done(10, 2.0)])
    transfers = summary.get("transfers") or {}
    transfers["a"]["tries"], summary["path_loss"] = 3, 0.015
    both = [*judge_completeness(summary)]
    summary["transfers"] = {"a": transfers["a"]}
    alone = [*judge_completeness(summary)]
    assert [[found.is_reason for found in each if found.code == "TRANSFER_NO_BYTE"] for each in (both, alone)] == [
        [False],
        [True],
    ]


def test_a_figure_that_was_measured_has_no_limits(tmp_path: Path) -> None:
    """Of two downloads one broke off: the lower median is the time of the other one."""
    run, summary = analysed(tmp_path, repeated=[done(10, 2.0), done(20, None, 9, error="reset")], other=[])
    assert measured_figures(run.path, summary)["transfer time of repeated"] == 2.0
    assert "transfer time of repeated" not in figure_limits(summary)


def test_chains_between_hosts_are_those_of_versions_that_overlap_the_time() -> None:
    given, lab = experiment(), network()
    longer = replace(given.chain, hops=("tap-w", "sat", "tap-i", "extra"))
    chains = (replace(given.chain, name="early"), given.chain, longer)
    states = [(since_ns, replace(given, chain=chain)) for since_ns, chain in zip((0, 5, 9), chains, strict=True)]
    topology = RunTopology(given, lab, (), tuple(states))
    assert lab.specials is not None
    assert topology.chains_between(*lab.specials, Protocol.TCP, 5) == (given.chain, longer)
    assert topology.chains_between(*lab.specials, Protocol.TCP, 0, 9) == (chains[0], given.chain)


def test_each_transfer_has_findings_and_figures_by_its_name(tmp_path: Path) -> None:
    run, summary = analysed(tmp_path, coded=[done(10, 2.0)], plain=[done(10, None, 4711)], regular=[])
    assert caveats(summary) == [
        "transfer 'plain' was not finished within 50 s: 4711 of 1000000 bytes arrived",
    ]
    assert "transfer 'regular' of 1000000 bytes left no result within 50 s" in summary["reasons"]
    figures = measured_figures(run.path, summary)
    assert {name: value for name, value in figures.items() if name.startswith("transfer time")} == {
        "transfer time": None,
        "transfer time at sender": None,
        "transfer time of coded": 2.0,
        "transfer time of plain": None,
        "transfer time of regular": None,
    }
    assert figure_limits(summary)["transfer time of plain"] == (50.0, float("inf"))
    assert summary["transfer_s"] is summary["transfer_bytes"] is None


def test_a_single_repeated_transfer_has_the_keys_of_a_single_one(tmp_path: Path) -> None:
    _, summary = analysed(tmp_path, repeated=[done(10, 2.0), done(20, 4.0), done(30, 3.0)])
    assert (summary["transfer_bytes"], summary["transfer_s"], summary["transfer_complete"]) == (SIZE, 3.0, True)


@pytest.mark.parametrize(
    ("name", "known"),
    [("goodput", True), ("transfer time of a-1", True), ("goodput of a-1", False), ("transfer time of", False)],
)
def test_a_figure_of_a_transfer_is_known_by_any_name_of_one(name: str, known: bool) -> None:
    assert is_figure(name) is known


def test_figures_of_transfers_are_behind_the_general_one() -> None:
    names = figure_names([["transfer time of b"], ["transfer time of a", "goodput"]])
    index = names.index("transfer time")
    assert names[index : index + 3] == ["transfer time", "transfer time of a", "transfer time of b"]


def test_report_and_terminal_show_every_transfer_and_the_downloads_of_repeated_ones(tmp_path: Path) -> None:
    run, summary = analysed(tmp_path, coded=[done(10, 2.0)], regular=[done(10, 4.0), done(20, None, 9, error="reset")])
    rows = {row.name: (plain(row.text), plain(row.remark)) for row in key_figures(summary)}
    assert rows["transfer coded"] == ("2.00 s", "1 MB, 4.00 Mbit/s; ws to i1, chain synthetic")
    assert rows["transfer regular"] == (
        "4.00 s",
        "median of 2 transfers of 1 MB, 1 complete; 2.00 Mbit/s; ws to i1, chain synthetic",
    )
    page = write_report(run).read_text()
    assert "Repeated transfers" in page
    assert "4.00, \N{EN DASH}" in page


def plain(text: str) -> str:
    """A text without its no-break spaces."""
    return text.replace("\N{NO-BREAK SPACE}", " ")
