# SPDX-License-Identifier: Apache-2.0
"""Flows by size, bursts, standing queue and regime in reports and comparisons; older summaries have none of them.

And how reports show loads and links that change.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pytest

from atoll_analysis import analyse
from atoll_analysis.figures.run_figures import TRAFFIC_FIGURES
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_core.units import Duration, Rate
from atoll_dashboards.report.key_figures import key_figures
from atoll_dashboards.report.plots import bursts, flow_classes, flows, queue, rates
from atoll_dashboards.report.report import report_page
from atoll_dashboards.report.report_data import Sources, read_sources
from atoll_hosts.binary import find_binary
from atoll_studies.results.comparison import compare
from tests.support.synthetic_run import experiment, simulate

NEW_KEYS = (
    *("concurrency", "flow_classes", "flow_packets", "flow_shares", "initial_window", "long_flows_mean"),
    "loss_bursts",
)
NEW_KEYS_OF_QUEUES = ("ping_sojourn", "regime", "standing_queue")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = simulate(tmp_path_factory.mktemp("traffic"), seconds=10)
    analyse(made, find_binary())
    return made


def as_analysed_earlier(sources: Sources) -> Sources:
    """The same run, as a version without these figures summarised it."""
    summary = {key: value for key, value in sources.summary.items() if key not in {*NEW_KEYS, *NEW_KEYS_OF_QUEUES}}
    links = sources.summary["links"].items()
    summary["links"] = {
        box: {key: value for key, value in link.items() if key != "mean_packet_bytes"} for box, link in links
    }
    return replace(sources, summary=cast("Summary", summary))


def test_a_report_shows_flows_by_size_bursts_and_the_regime(run: RunDir) -> None:
    sources = read_sources(run)
    page = report_page(sources)
    assert all(title in page for title in ("Flows by size", "Loss bursts"))
    summary = sources.summary
    figures = {each.name: each for each in key_figures(summary)}
    assert summary["regime"] is not None
    assert (figures["regime"].text, figures["regime"].remark) == (
        summary["regime"]["regime"] or "not known",
        summary["regime"]["because"],
    )
    lost = summary["loss_bursts"]["sat"]
    assert figures["lost in bursts"].remark.startswith(f"of {lost['lost']} packets; ")
    assert {"standing queue", "ping sojourn p50", "in the initial window", "open flows"} <= figures.keys()
    assert {"packets of a flow", "bytes below 4 Mbit/s", "flows by server", "flows by client"} <= figures.keys()
    assert "packets of a flow, flows to 40 MB" not in figures  # no flow is larger


def test_a_plot_has_a_bar_for_each_class_with_flows_and_for_each_length_of_burst(run: RunDir) -> None:
    sources = read_sources(run)
    classes = [each for each in sources.summary["flow_classes"] if each["completed"]]
    drawn = flow_classes(sources)
    assert drawn is not None
    labels = [label.get_text() for label in drawn.axes[0].get_xticklabels()]
    assert [label.split("\n")[1] for label in labels] == [f"n = {each['completed']}" for each in classes]
    shown = bursts(sources)
    assert shown is not None
    (lines,) = shown.axes[0].collections
    lengths = sources.summary["loss_bursts"]["sat"]["lengths"]
    assert len(lines.get_paths()) == len(lengths)


def test_the_standing_queue_is_drawn_into_the_queue_if_there_was_one(run: RunDir) -> None:
    sources = read_sources(run)

    def labels() -> list[str]:
        drawn = queue(sources)
        assert drawn is not None
        return [str(line.get_label()) for line in drawn.axes[1].get_lines()]

    table = pl.read_parquet(run.tables / "queue.parquet")
    try:
        for floor_bytes, is_drawn in ((0, False), (20_000, True)):
            table.with_columns(floor_bytes=pl.lit(floor_bytes, pl.Int64)).write_parquet(run.tables / "queue.parquet")
            assert ("did not drain" in labels()) is is_drawn
    finally:
        table.write_parquet(run.tables / "queue.parquet")


def test_comparisons_offer_each_figure_from_the_summary(run: RunDir) -> None:
    summary = read_sources(run).summary
    read = {name: each(summary) for name, (_, _, each) in TRAFFIC_FIGURES.items()}
    smallest = summary["flow_classes"][0]
    assert smallest["completion_s"] is not None
    assert smallest["rate_mbit_s"] is not None
    assert read["flow time p50, to 10 kB"] == smallest["completion_s"]["p50"]
    assert read["flow time p95, to 10 kB"] == smallest["completion_s"]["p95"]
    assert read["flow rate p50, to 10 kB"] == smallest["rate_mbit_s"]["p50"]
    assert read["flow time p50, over 10 MB"] is None
    lost = summary["loss_bursts"]["sat"]
    assert lost["burst_share"] is not None
    assert (read["losses in bursts"], read["longest loss burst"]) == (100 * lost["burst_share"], lost["longest"])
    assert summary["concurrency"] is not None
    assert read["peak rate of a flow"] == (summary.get("flow_packets") or {})["all"]["peak_mbit_s"]
    assert read["mean packet"] == summary["links"]["sat"].get("mean_packet_bytes")
    assert (read["standing queue"], read["open flows"]) == (0, summary["concurrency"]["mean"])


def test_a_summary_of_an_older_version_lacks_them_and_nothing_else(run: RunDir) -> None:
    old = as_analysed_earlier(read_sources(run))
    assert {each(old.summary) for _, _, each in TRAFFIC_FIGURES.values()} == {None}
    assert (flow_classes(old), bursts(old)) == (None, None)
    assert queue(old) is not None
    names = {each.name for each in key_figures(old.summary)}
    assert "goodput" in names
    assert not names & {"regime", "standing queue", "lost in bursts", "open flows"}
    assert "Loss bursts" not in report_page(old)
    other = run.path.parent / "old"
    other.mkdir()
    RunDir(other).write_manifest(run.manifest())
    (other / "summary.json").write_text(json.dumps(old.summary))
    first, second = (each.figures["flow time p50, to 10 kB"] for each in compare([run, RunDir(other)]).all_runs)
    assert first is not None
    assert second is None


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_rate_of_a_link_that_changes_is_drawn_over_time_and_a_load_that_changes_does_not_grow(
    tmp_path: Path, is_changed: bool
) -> None:
    """More flows a second in the middle of a run are no congestion."""
    one = experiment()
    traffic = replace(one.traffic, flows_per_s=10.0)
    first = replace(one.versions[0], traffic=traffic, links=one.links)
    slower = replace(one.links[0], to_island=replace(one.links[0].to_island, rate=Rate(8_000_000)))
    then = replace(first, at=Duration(5 * 10**9), traffic=replace(traffic, flows_per_s=40.0), links=(slower,))
    made = simulate(tmp_path, traffic=traffic, schedule=(first, then) if is_changed else ())
    analyse(made, find_binary())
    sources = read_sources(made)
    assert sources.summary["regime"] is not None
    assert (sources.summary["regime"]["grows"] is None) is is_changed
    drawn = rates(sources)
    assert drawn is not None
    (line,) = [line for line in drawn.axes[0].get_lines() if line.get_linestyle() == "--"]
    assert set(np.asarray(line.get_ydata())) == ({16, 8} if is_changed else {16})
    times = flows(sources)
    assert times is not None
    _, *alone = times.axes[0].get_lines()  # behind the points of the flows
    sizes, *seconds = (np.asarray(data) for data in (alone[0].get_xdata(), *(each.get_ydata() for each in alone)))
    rtts_s = seconds[0] - 8 * sizes / 16e6
    assert rtts_s == pytest.approx(rtts_s[0])
    slow = [rtts_s + 8 * sizes / 8e6] if is_changed else []
    assert [each == pytest.approx(slow[0]) for each in seconds[1:]] == [True] * len(slow)
    labels = ["alone at 16 Mbit/s", "alone at 8 Mbit/s"] if is_changed else ["alone on the link, no slow start"]
    assert [each.get_label() for each in alone] == labels
