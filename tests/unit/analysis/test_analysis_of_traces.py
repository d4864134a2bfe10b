# SPDX-License-Identifier: Apache-2.0
"""A run whose link followed a trace: its figures are valid, and the report says what they are relative to."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from atoll_analysis import analyse
from atoll_analysis.figures.observables import windows_over_rate
from atoll_analysis.figures.path_delays import blocked_s
from atoll_analysis.run_directory import RunDir
from atoll_core.codec import from_json, to_json
from atoll_core.experiment.experiment import (
    Experiment,
    Jitter,
    JitterShape,
    LinkDirection,
    LinkTrace,
    SteeringVersion,
    TraceRow,
)
from atoll_core.experiment.link_over_time import link_over_time
from atoll_core.units import Duration, Rate
from atoll_dashboards.report.plots import PLOTS
from atoll_dashboards.report.provenance import settings
from atoll_dashboards.report.report_data import read_sources
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import START_NS, begin, network, simulate
from tests.support.synthetic_run import experiment as synthetic_experiment

RAIN = LinkTrace("rain.csv", (TraceRow(Duration(0)), TraceRow(Duration(10**9), rate=Rate(8_000_000))))


def test_what_refers_to_a_constant_link_is_said_to(tmp_path: Path) -> None:
    constant = analyse(simulate(tmp_path / "constant", seconds=3), find_binary())
    (link,) = synthetic_experiment().links
    link = replace(link, to_island=replace(link.to_island, trace=RAIN))
    run = simulate(tmp_path / "followed", seconds=3, links=(link,))
    followed = analyse(run, find_binary())
    (note,) = [note for note in followed["notes"] if note not in constant["notes"]]
    assert note.startswith("a link followed a trace")
    assert followed["reasons"] == constant["reasons"]
    figure = next(plot for plot in PLOTS if plot.name == "rates").figure(read_sources(run))
    assert figure is not None
    (line,) = [line for line in figure.axes[0].get_lines() if line.get_label() == "rate of the link"]
    assert np.asarray(line.get_xydata()).tolist() == [[0, 16], [1, 8], [3, 8]], "as the trace has it, to the end"


FALL = LinkTrace("fall.csv", (TraceRow(Duration(0)), TraceRow(Duration(4 * 10**9), rate=Rate(2_000_000))))


def falling(folder: Path, how: str) -> RunDir:
    """A run with 40 channels on 16 Mbit/s that fall to 2 at 4 s, by a trace or a change."""
    asked = synthetic_experiment()
    link = asked.links[0]
    if how == "trace":
        changes: dict[str, Any] = {"links": (replace(link, to_island=replace(link.to_island, trace=FALL)),)}
    else:
        slow = replace(link, to_island=replace(link.to_island, rate=Rate(2_000_000)))
        versions = ((0, link), (4 * 10**9, slow))
        changes = {
            "schedule": tuple(
                SteeringVersion(Duration(at_ns), asked.chain, (), asked.latency, links=(each,))
                for at_ns, each in versions
            )
        }
    return simulate(folder, seconds=14, traffic=replace(asked.traffic, channels=40), **changes)


@pytest.mark.parametrize("how", ["trace", "change"])
def test_figures_of_a_link_whose_rate_falls_are_relative_to_the_rate_of_each_instant(tmp_path: Path, how: str) -> None:
    run = falling(tmp_path, how)
    summary = analyse(run, find_binary())
    link, standing = summary["links"]["sat"], summary["standing_queue"]
    assert (link["rate_bit_s"], link["least_rate_bit_s"], link["mean_rate_bit_s"]) == (16_000_000, 2_000_000, 6_000_000)
    # Idle times are at 16 Mbit/s, in the slow start; the link is busy from 4 s on. It delivers 250 ms later.
    capacity = (4.25 * 16e6 + 9.75 * 2e6) / 8
    sent = (4 - summary["idle_s"]) * 16e6 / 8 + 9.75 * 2e6 / 8
    assert summary["utilisation"] == pytest.approx(sent / capacity, rel=0.01)
    queue = pl.read_parquet(run.tables / "queue.parquet")
    assert not queue.filter(pl.col("t_ns") > START_NS + 5 * 10**9)["idle"].any()
    assert standing["max_ms"] == pytest.approx(standing["max_bytes"] * 8 / 2e3)
    assert (summary["windows_over_rate"], summary["reasons"]) == (0, [])
    with_trace = next(plot for plot in PLOTS if plot.name == "rates").figure(read_sources(run))
    assert with_trace is not None
    (line,) = [line for line in with_trace.axes[0].get_lines() if line.get_label() == "rate of the link"]
    assert np.asarray(line.get_xydata()).tolist() == [[0, 16], [4, 2], [14, 2]]


@pytest.mark.parametrize(("delay_ms", "beyond"), [(60, 1), (40, 0)])
def test_packets_that_catch_up_because_the_delay_fell_are_not_above_the_rate(delay_ms: int, beyond: int) -> None:
    """At 2 s, so that 20 ms of the link's rate arrive with the packets of before, at 2.06 s."""
    link = synthetic_experiment().links[0]
    rows = (
        TraceRow(Duration(0), delay=Duration(6 * 10**7)),
        TraceRow(Duration(2 * 10**9), delay=Duration(delay_ms * 10**6)),
    )
    way = replace(link.to_island, rate=Rate(8_000_000), trace=LinkTrace("t.csv", rows))
    assert _windows_over(way, [100_000] * 20 + [120_000] + [100_000] * 20) == beyond


@pytest.mark.parametrize(("jitter_ms", "beyond"), [(5, 1), (10, 0)])
def test_packets_that_jitter_delayed_less_than_those_before_are_not_above_the_rate(jitter_ms: int, beyond: int) -> None:
    """20 ms of the link's rate are sent before the window, or after it, and arrive in it."""
    jitter = Jitter(JitterShape.UNIFORM, Duration(jitter_ms * 10**6))
    way = replace(synthetic_experiment().links[0].to_island, rate=Rate(8_000_000), jitter=jitter)
    assert _windows_over(way, [100_000] * 20 + [120_000] + [100_000] * 20) == beyond


def test_packets_of_a_higher_rate_may_arrive_earlier_by_the_jitter() -> None:
    """The rate rises at 3 s: what was sent since 2 s may arrive in the next 0.1 s, the last part at the higher rate."""
    rows = (TraceRow(Duration(0)), TraceRow(Duration(3 * 10**9), rate=Rate(16_000_000)))
    half = Duration(500_000_000)
    way = replace(
        synthetic_experiment().links[0].to_island,
        rate=Rate(8_000_000),
        delay=half,
        jitter=Jitter(JitterShape.UNIFORM, half),
        trace=LinkTrace("t.csv", rows),
    )
    assert _windows_over(way, [0] * 30 + [1_200_000]) == 0


def _windows_over(way: LinkDirection, octets: list[int]) -> int | None:
    throughput = pl.LazyFrame(
        {
            "capture": "link-sat",
            "to_island": True,
            "window": range(len(octets)),
            "packets": [each // 1500 for each in octets],
            "ip_bytes": octets,
        }
    )
    tables: Any = SimpleNamespace(captures={"link-sat"}, origin_ns=START_NS, scan=lambda _: throughput)
    link = replace(synthetic_experiment().links[0], to_island=way)
    return windows_over_rate(tables, link, link_over_time([(START_NS, way)], trace_ns=START_NS), 1500, 0)


def test_a_change_that_failed_leaves_the_rate(tmp_path: Path) -> None:
    run = falling(tmp_path, "change")
    events = run.path / "events.jsonl"
    events.write_text(events.read_text().replace('"state":"end"', '"state":"failed","message":"no answer"'))
    assert analyse(run, find_binary())["links"]["sat"]["mean_rate_bit_s"] == 16_000_000


def test_a_run_on_a_slow_link_that_tc_played_says_how_much_rtts_are_too_short(tmp_path: Path) -> None:
    asked = synthetic_experiment()
    slow = replace(asked.links[0].to_world, rate=Rate(64_000))
    run = begin(tmp_path, replace(asked, links=(replace(asked.links[0], to_world=slow),)), network())
    said = (
        "sat was emulated by tc: to the world, the first packet after an idle time gets no serialisation delay "
        "(up to 187.5 ms), so its RTT is too short by that"
    )
    for backend, expected in (("engine", False), ("tc", True)):
        run.update_manifest({"backend": backend})
        assert (said in analyse(run, find_binary())["notes"]) == expected


def test_the_report_names_the_trace() -> None:
    asked = synthetic_experiment()
    link = replace(asked.links[0], to_world=replace(asked.links[0].to_world, trace=RAIN))
    rows = dict(settings(replace(asked, links=(link,)), network()))
    assert "trace rain.csv" in rows["links.sat.to_world"]
    assert rows["links.sat.to_island"].endswith(" loss, trace")


def test_planned_blockages_are_known_to_the_verdict(tmp_path: Path) -> None:
    run = simulate(tmp_path, seconds=4)
    experiment = from_json(Experiment, run.manifest()["experiment"])
    rows = (
        TraceRow(Duration(0)),
        TraceRow(Duration(10**9), blocked=True),
        TraceRow(Duration(2 * 10**9), delay=Duration(100 * 10**6)),
    )
    link = replace(
        experiment.links[0], to_island=replace(experiment.links[0].to_island, trace=LinkTrace("cut.csv", rows))
    )
    cut = replace(experiment, links=(link,))
    run.update_manifest({"experiment": to_json(cut)})
    summary = analyse(run, find_binary())
    assert summary["ping_blocked_share"] == 0.25
    assert summary["base_rtt_shortest_ms"] == 350.0, "without any latency class, while the trace has its least delay"
    assert blocked_s(cut.links, 0.5, 2.2) == ((1.5, 2.2),)
