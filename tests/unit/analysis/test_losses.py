# SPDX-License-Identifier: Apache-2.0
"""Losses are told by cause, and queue sojourn by the link's own histogram, in summary, report and comparisons."""

import json
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_analysis.tables.box_counters import SojournFigures
from atoll_core.plural import bit_rate
from atoll_dashboards.report.key_figures import key_figures
from atoll_dashboards.report.plots import loss
from atoll_dashboards.report.report import report_page
from atoll_dashboards.report.report_data import read_sources
from atoll_hosts.binary import find_binary
from atoll_studies.results.comparison import compare
from tests.support.synthetic_run import simulate

BY_CAUSE = {"queue": (3, 4500), "loss": (20, 30000), "aqm": (0, 0), "blocked": (2, 3000), "unsent": (0, 0)}
SOJOURN = {
    "sojourn_histogram": [[1_000_000, 50], [20_000_000, 45], [40_000_000, 4], [64_000_000, 1]],
    "sojourn_max_ns": 60_000_000,
    "sojourn_count": 100,
    "sojourn_sum_ns": 520_000_000,
}


def with_losses(run: RunDir, loss_model: Any, **more: Any) -> RunDir:
    """The run as if its link had counted such losses, all of them in the first 100 ms of each second."""
    asked = run.manifest()
    asked["experiment"]["links"][0]["to_island"]["loss"] = loss_model
    run.update_manifest({"experiment": asked["experiment"]})
    lines = [json.loads(line) for line in (run.path / "link.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        share = number // 10 + 1 if line["type"] == "counters" else 1
        causes = {f"dropped_{cause}_packets": packets * share for cause, (packets, _) in BY_CAUSE.items()}
        causes |= {f"dropped_{cause}_bytes": octets * share for cause, (_, octets) in BY_CAUSE.items()}
        causes |= {"dropped_packets": 25 * share, "dropped_bytes": 37500 * share}
        to_world = {"dropped_packets": 7 * share, "dropped_bytes": 280 * share}
        line["to_world"] |= {**to_world, "dropped_loss_packets": 7 * share, "dropped_loss_bytes": 280 * share}
        line["to_island"] |= {**causes, "lost_after_bytes": 33000 * share, "lost_after_packets": 22 * share, **more}
    (run.path / "link.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    made = simulate(tmp_path_factory.mktemp("losses"), seconds=5)
    with_losses(made, {"kind": "Bernoulli", "probability": 0.01}, **SOJOURN)
    analyse(made, find_binary())
    return made


def test_summary_tables_and_report_tell_losses_by_cause(run: RunDir) -> None:
    sources = read_sources(run)
    link = sources.summary["links"]["sat"]
    assert link["losses"] == {
        "queue": {"packets": 3, "bytes": 4500},
        "random": {"packets": 20, "bytes": 30000},
        "aqm": {"packets": 0, "bytes": 0},
        "trace": {"packets": 2, "bytes": 3000},
        "sockets": {"packets": 0, "bytes": 0},
    }
    boxes = pl.read_parquet(run.tables / "boxes.parquet").filter(pl.col("part") == "to_island")
    assert boxes["dropped_loss_packets"].max() == 20 * (len(boxes) // 10 + (len(boxes) % 10 > 0))
    shown = {known.name: known for known in key_figures(sources.summary)}
    assert shown["lost to the island"].remark == "queue full 3, random loss 20, loss by trace 2"
    figure = loss(sources)
    assert figure is not None
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["queue full", "random loss", "loss by trace"]


def test_losses_to_the_world_are_reported_with_those_to_the_island(run: RunDir) -> None:
    sources = read_sources(run)
    link = sources.summary["links"]["sat"]
    assert link.get("losses_to_world") == {"random": {"packets": 7, "bytes": 280}}
    assert link.get("loss_fraction_to_world") == pytest.approx(7 * (link["loss_fraction"] or 0) / 25)
    shown = {known.name: known for known in key_figures(sources.summary)}
    assert (shown["lost to the world"].text, shown["lost to the world"].remark) == ("7", "random loss 7")
    figure = loss(sources)
    assert figure is not None
    assert [axes.get_ylabel() for axes in figure.axes] == ["lost to island", "lost to world"]
    (row,) = [words for words in report_page(sources).split("<tr>") if "<td>world</td>" in words]
    assert "<td>random loss</td>" in row
    results = compare([run, run])
    assert [each.figures["lost to the world, random loss"] for each in results.all_runs] == [7, 7]


def test_losses_of_packet_after_packet_are_by_trace(tmp_path: Path) -> None:
    made = simulate(tmp_path, seconds=1)
    with_losses(made, {"kind": "LossTrace", "file": "fates.txt", "lost": [True, False]})
    losses = analyse(made, find_binary())["links"]["sat"]["losses"]
    assert losses["trace"] == {"packets": 22, "bytes": 33000}
    assert "random" not in losses


def test_packets_lost_at_the_receiver_have_used_the_link(run: RunDir) -> None:
    """The capture behind the link lacks them."""
    summary = cast("Summary", run.summary())
    frame = pl.read_parquet(run.tables / "throughput.parquet")
    arrived = frame.filter(pl.col("capture") == "link-sat", pl.col("to_island"), pl.col("window").is_between(0, 49))
    sent = int(arrived["ip_bytes"].sum()) + 33000 * 5
    assert summary["utilisation"] == pytest.approx(8 * sent / (16e6 * 5), rel=1e-9)


def test_the_queue_has_figures_of_its_own_beside_the_largest_ping_sojourn(run: RunDir) -> None:
    summary = cast("Summary", run.summary())
    answer = {"mean_ms": 5.2, "p50_ms": 1.0, "p95_ms": 20.0, "p99_ms": 40.0, "max_ms": 60.0}
    assert summary["links"]["sat"]["sojourn"] == answer
    shown = {known.name: known for known in key_figures(summary)}
    assert shown["queue sojourn"].remark == (
        "maximum over all packets; mean 5.2, p50 1.0, p95 20, p99 40 ms (percentiles within 6 %)"
    )
    assert shown["largest ping sojourn"].remark == (
        "full queues (8 x bytes / rate) 50.0 to the island + 200.0 back; plus the packet being sent"
    )


def test_figures_of_a_slow_link_have_the_digits_that_are_known(run: RunDir) -> None:
    """Percentiles are upper bounds of bins that are 1/16 wide."""
    summary = cast("Summary", json.loads(json.dumps(run.summary())))
    summary["goodput_mbit_s"], summary["throughput_mbit_s"] = 0.04731, 0.0
    summary["links"]["sat"]["sojourn"] = SojournFigures(
        mean_ms=700.25, p50_ms=805.306367, p95_ms=1342.17, p99_ms=1405.9, max_ms=1405.9
    )
    shown = {known.name: known for known in key_figures(summary)}
    assert shown["goodput"].text == "47.3\u00a0kbit/s"
    assert shown["throughput"].text == "0\u00a0bit/s"
    assert "mean 700.2, p50 810, p95 1300, p99 1400 ms" in shown["queue sojourn"].remark


@pytest.mark.parametrize(
    ("bit_s", "text"),
    [
        (8, "8.00 bit/s"),
        (47_312, "47.3 kbit/s"),
        (999_600, "1000 kbit/s"),
        (9_996_000, "10.0 Mbit/s"),
        (2.5e9, "2.50 Gbit/s"),
    ],
)
def test_rates_have_three_digits_in_the_unit_of_their_size(bit_s: float, text: str) -> None:
    assert bit_rate(bit_s) == text


def test_comparisons_have_losses_by_cause_and_the_queues_own_sojourn(run: RunDir, tmp_path: Path) -> None:
    other = simulate(tmp_path, seconds=5)
    analyse(other, find_binary())
    results = compare([run, other])
    found = {name: tuple(each.figures[name] for each in results.all_runs) for name in results.shown}
    assert found["lost, queue full"] == (3, None), "the other link's backend told no causes"
    assert found["lost, random loss"] == (20, None)
    assert "lost, AQM" not in found, "nobody lost any for it"
    assert found["queue sojourn p95"][0] == 20.0


def test_a_link_that_says_nothing_of_causes_and_sojourn_has_neither(tmp_path: Path) -> None:
    """As older links, and the kernel's tc, of which sojourn is not known."""
    made = simulate(tmp_path, seconds=1)
    lines = [json.loads(line) for line in (made.path / "link.jsonl").read_text().splitlines()]
    for line in lines:
        for name in ("sojourn_max_ns", "sojourn_histogram", "idle_ns", "lateness_max_ns"):
            line["to_island"].pop(name, None)
            line["to_world"].pop(name, None)
    (made.path / "link.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = cast("Summary", analyse(made, find_binary()))
    assert (summary["links"]["sat"]["losses"], summary["links"]["sat"]["sojourn"]) == ({}, None)
    names = [known.name for known in key_figures(summary)]
    assert not {"queue sojourn", "lost to the island", "lateness at most", "link idle", "UDP received"} & set(names)
    figure = loss(read_sources(made))
    assert figure is not None


def test_tables_of_versions_that_did_not_tell_losses_apart_are_shown(tmp_path: Path) -> None:
    made = simulate(tmp_path, seconds=1)
    analyse(made, find_binary())
    table = made.tables / "boxes.parquet"
    pl.read_parquet(table).select(pl.exclude("^dropped_.*_(packets|bytes)$")).write_parquet(table)
    sources = read_sources(made)
    assert sources.link_counters("sat").collect()["dropped_aqm_packets"].null_count() > 0
    assert loss(sources) is not None
