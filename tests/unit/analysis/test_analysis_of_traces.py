# SPDX-License-Identifier: Apache-2.0
"""A run whose link followed a trace: its figures are valid, and the report says what they are relative to."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from atoll_analysis import analyse
from atoll_analysis.figures.path_delays import blocked_s
from atoll_core.codec import from_json, to_json
from atoll_core.experiment.experiment import Experiment, LinkTrace, TraceRow
from atoll_core.units import Duration, Rate
from atoll_dashboards.report.plots import PLOTS
from atoll_dashboards.report.provenance import settings
from atoll_dashboards.report.report_data import read_sources
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import begin, network, simulate
from tests.support.synthetic_run import experiment as synthetic_experiment

RAIN = LinkTrace("rain.csv", (TraceRow(Duration(0)), TraceRow(Duration(10**9), rate=Rate(8_000_000))))


def test_what_refers_to_a_constant_link_is_said_to(tmp_path: Path) -> None:
    run = simulate(tmp_path, seconds=3)
    constant = analyse(run, find_binary())
    experiment = from_json(Experiment, run.manifest()["experiment"])
    link = replace(experiment.links[0], to_island=replace(experiment.links[0].to_island, trace=RAIN))
    run.update_manifest({"experiment": to_json(replace(experiment, links=(link,)))})
    followed = analyse(run, find_binary())
    (note,) = [note for note in followed["notes"] if note not in constant["notes"]]
    assert note.startswith("a link followed a trace")
    assert followed["reasons"] == constant["reasons"]
    figure = next(plot for plot in PLOTS if plot.name == "rates").figure(read_sources(run))
    assert figure is not None
    (line,) = [line for line in figure.axes[0].get_lines() if line.get_label() == "rate of the link"]
    assert np.asarray(line.get_xydata()).tolist() == [[0, 16], [1, 8], [3, 8]], "as the trace has it, to the end"


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
    rows = dict(settings(replace(asked, links=(link,))))
    assert rows["sat, to the world"].endswith("drop-tail queue 100 kB, from the start of the load as in rain.csv")
    assert rows["sat, to the island"] == "16 Mbit/s, 250 ms one way, drop-tail queue 100 kB"


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
