# SPDX-License-Identifier: Apache-2.0
"""The recommended queue capacity is the smallest that meets the criteria; rules of thumb stand beside it."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.report import View, report_study
from atoll_studies.points import make_points
from atoll_studies.results.queue_capacity import QueueAdvice, QueueRun, advise, queue_advice, read_queue_run
from atoll_studies.results.result_tables import runs_table
from atoll_studies.results.results import read_results
from atoll_studies.statistics.warm_up import WarmUp
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.views.tables import tables
from tests.support.sandbox import QUICK
from tests.support.study_runs import record


def run(queue_kb: int, **changes: Any) -> QueueRun:
    """A run on a GEO link of 16 Mbit/s that meets every criterion, but for what is changed."""
    usual: dict[str, Any] = {
        "link": "sat",
        "queue_bytes": 1000 * queue_kb,
        "mean_rate_bit_s": 16_000_000,
        "least_rate_bit_s": 16_000_000,
        "settled_s": 60.0,
        "base_rtt_ms": 560.0,
        "transfer_s": 20.0,
        "time_limit_s": 58.0,
        "utilisation": 0.8,
        "swinging_share": 0.0,
        "standing": 0.0,
        "long_flows": 16.0,
        "regime": "pre-oscillation",
    }
    return QueueRun(**{**usual, **changes})


def unmet(advice: QueueAdvice) -> dict[int, tuple[str, ...]]:
    return {level.queue_bytes // 1000: level.unmet for level in advice.levels}


def recommended_kb(advice: QueueAdvice) -> int | None:
    return advice.recommended.queue_bytes // 1000 if advice.recommended else None


@pytest.mark.parametrize(
    ("runs", "seconds", "expected_kb", "caveats"),
    [
        (3, 16.8, 100, ()),
        (2, 16.8, 100, ("fewer than 3 runs of a capacity",)),
        (3, 16.7, 100, ("runs shorter than 30 base RTTs after the warm-up",)),
        (1, 5.0, None, ("fewer than 3 runs of a capacity", "runs shorter than 30 base RTTs after the warm-up")),
    ],
)
def test_few_or_short_runs_are_a_caveat_and_few_short_ones_support_nothing(
    runs: int, seconds: float, expected_kb: int | None, caveats: tuple[str, ...]
) -> None:
    advice = advise({}, [run(queue, settled_s=seconds) for queue in (100, 200) for _ in range(runs)])
    assert (recommended_kb(advice), advice.caveats) == (expected_kb, caveats)


def test_the_smallest_capacity_that_meets_all_criteria_is_recommended() -> None:
    """In any order of runs; slow transfers, a link half used, swings, a standing queue and voice count against it."""
    advice = advise(
        {},
        [
            run(800, standing=0.3),
            run(30, transfer_s=25.1),
            run(60, utilisation=0.71),
            run(120),
            run(240),
            run(90, swinging_share=0.1),
        ],
    )
    assert unmet(advice) == {
        30: ("transfer",),
        60: ("utilisation",),
        90: ("oscillation",),
        120: (),
        240: (),
        800: ("standing queue", "voice"),
    }
    assert recommended_kb(advice) == 120
    assert [level.voice_ms for level in advice.levels] == [295, 310, 325, 340, 400, 680]
    assert [level.is_marginal_for_voice for level in advice.levels] == [False, True, True, True, True, False]


def test_rules_of_thumb_are_the_bandwidth_delay_product_and_its_part_by_the_root_of_long_flows() -> None:
    advice = advise({}, [run(100), run(200)])
    assert (advice.product_bytes, advice.long_flows, advice.root_bytes) == (1_120_000, 16, 280_000)
    few = advise({}, [run(100, long_flows=0.2), run(200, long_flows=0.2)])
    assert few.root_bytes == few.product_bytes
    unknown = advise({}, [run(100, base_rtt_ms=None), run(200, base_rtt_ms=None)])
    assert (unknown.product_bytes, unknown.root_bytes) == (None, None)


def test_figures_are_medians_of_runs_and_a_transfer_that_does_not_end_is_the_slowest() -> None:
    advice = advise({}, [run(100, transfer_s=math.inf), run(100, transfer_s=math.inf), run(100), run(200)])
    first, second = advice.levels
    assert (first.runs, first.transfer_s, first.unmet) == (3, math.inf, ("transfer",))
    assert (second.transfer_s, advice.recommended) == (20, second)
    neither = advise({}, [run(100, transfer_s=math.inf), run(200, transfer_s=math.inf)])
    assert unmet(neither) == {100: ("transfer",), 200: ("transfer",)}
    assert recommended_kb(neither) == 100


def test_a_criterion_that_no_run_measured_is_not_applied() -> None:
    nothing = {"transfer_s": None, "utilisation": None, "swinging_share": None, "standing": None, "base_rtt_ms": None}
    advice = advise({}, [run(queue, **nothing) for queue in (100, 800) for _ in range(3)])
    assert (unmet(advice), advice.caveats, advice.recommended) == ({100: (), 800: ()}, (), None)
    few = advise({}, [run(queue, **nothing) for queue in (100, 800)])
    assert (len(few.caveats), few.refusal) == (1, "the runs measured none of the criteria"), "more runs do not help"


def study_with(tmp_path: Path, factors: str) -> StudyDirectory:
    """A study whose runs have the queue of their level and a transfer that a small one slows down."""
    file = tmp_path / "study.yaml"
    file.write_text(f"name: made-up\nexperiment: {QUICK}\nrepetitions: 2\nfigures: [goodput]\nfactors:\n{factors}")
    study = load_study(file)
    points = make_points(study)
    found = StudyDirectory(tmp_path / "s")
    found.write(study, points)
    for point in points:
        queue_bytes = study.configurations[point.configuration].experiment.link("sat").to_island.queue.bytes
        record(
            found,
            point.id,
            "valid",
            goodput=8.0,
            base_rtt_ms=560.0,
            bottleneck="sat",
            links={"sat": {"queue_bytes": queue_bytes, "rate_bit_s": 16_000_000}},
            duration_s=60.0,
            transfer_bytes=10**7,
            transfer_complete=True,
            transfer_s=1e6 / queue_bytes,
            utilisation=0.5,
            long_flows_mean=4.0,
            regime={"regime": "oscillation", "swinging_share": 0.02},
            standing_queue={"share": 0.0},
        )
    return found


def test_a_report_of_a_study_recommends_a_capacity_for_each_other_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = study_with(
        tmp_path, "  traffic.channels: [5, 50]\n  links.sat.to_island.queue: [30 kB, 60 kB, 100 kB, 110 kB]\n"
    )
    found = queue_advice(read_results(place))
    assert [each.other_levels for each in found] == [{"traffic.channels": "5"}, {"traffic.channels": "50"}]
    assert [unmet(each) for each in found] == [{30: ("transfer",), 60: ("transfer",), 100: (), 110: ()}] * 2
    report_study(place.path, View())
    said = capsys.readouterr().out
    assert "queue capacity (traffic.channels 50)" in said
    said = " ".join(said.split(" ")).replace("\n", " ")  # notes are wrapped
    assert (
        "recommended: 100.00\u00a0kB, the smallest capacity that meets all criteria (on little evidence: fewer than 3 "
        "runs of a capacity); bandwidth-delay product (BDP) 1.12\u00a0MB; "
        "BDP / sqrt(4.0 long flows) = 560.00\u00a0kB"
    ) in said
    for name in ("page.html", "page.md", "page.json"):
        report_study(place.path, View(out=tmp_path / name))
        assert ("110000" if name.endswith("json") else "Queue capacity (traffic.channels 50)") in (
            tmp_path / name
        ).read_text()
    capsys.readouterr()
    report_study(place.path, View(as_json=True))
    advice = json.loads(capsys.readouterr().out)["queue_capacity"]
    assert [each["recommended_bytes"] for each in advice] == [100_000, 100_000]
    assert advice[0]["levels"][0] == {
        "queue_bytes": 30_000,
        "runs": 2,
        "transfer_s": pytest.approx(33.333, abs=0.001),
        "transfer_at_least_s": pytest.approx(33.333, abs=0.001),
        "finished_share": 1.0,
        "utilisation": 0.5,
        "full_and_empty_share": 0.02,
        "standing_share": 0.0,
        "voice_ms": 295.0,
        "regimes": {"oscillation": 2},
        "unmet": ["transfer"],
        "measured": True,
    }
    assert advice[0]["caveats"] == ["fewer than 3 runs of a capacity"]


@pytest.mark.parametrize(
    ("warm_up", "expected"),
    [
        (WarmUp(40.0, "40 s"), [100, 100]),
        (WarmUp(50.0, "50 s"), [None, None]),
        (WarmUp(0.0, "MSER-5", unsettled=(0,)), [None, 100]),
    ],
)
def test_runs_that_are_few_support_no_capacity_if_they_are_short_behind_their_warm_up(
    tmp_path: Path, warm_up: WarmUp, expected: list[int | None]
) -> None:
    place = study_with(tmp_path, "  traffic.channels: [5, 50]\n  links.sat.to_island.queue: [100 kB, 110 kB]\n")
    found = queue_advice(replace(read_results(place), warm_up=warm_up))
    assert [recommended_kb(each) for each in found] == expected


def test_a_study_whose_queue_is_no_factor_has_no_recommendation(tmp_path: Path) -> None:
    assert queue_advice(read_results(study_with(tmp_path, "  traffic.channels: [5, 50]\n"))) == []


def test_uploads_say_nothing_of_the_queue_to_the_island(tmp_path: Path) -> None:
    queues = "  links.sat.to_island.queue: [30 kB, 110 kB]\n"
    transfer = "  transfer: [{size: 10 MB, start: 0 s, direction: upload}]\n"
    (found,) = queue_advice(read_results(study_with(tmp_path, queues + transfer)))
    assert unmet(found) == {30: (), 110: ()}
    (tmp_path / "alone").mkdir()
    load = "  traffic: [{channels: 5, direction: upload}]\n"
    assert queue_advice(read_results(study_with(tmp_path / "alone", queues + transfer + load))) == []


def test_a_variant_that_sets_the_queue_and_the_load_is_compared_with_runs_of_its_load_only(tmp_path: Path) -> None:
    """Else six runs of every load at one queue would be pooled, and held against those of one load at another."""
    place = study_with(
        tmp_path,
        "  load:\n"
        "    few: {traffic.channels: 5, links.sat.to_island.queue: 60 kB}\n"
        "    many: {traffic.channels: 50, links.sat.to_island.queue: 60 kB}\n"
        "    'few, doubled': {traffic.channels: 5, links.sat.to_island.queue: 120 kB}\n",
    )
    (found,) = queue_advice(read_results(place))
    assert found.other_levels == {"load": "few / few, doubled"}
    assert [(level.queue_bytes, level.runs) for level in found.levels] == [(60_000, 2), (120_000, 2)]


def test_queues_of_both_directions_that_change_together_are_one_queue(tmp_path: Path) -> None:
    place = study_with(
        tmp_path,
        "  queues:\n"
        "    small: {links.sat.to_island.queue: 60 kB, links.sat.to_world.queue: 60 kB}\n"
        "    large: {links.sat.to_island.queue: 120 kB, links.sat.to_world.queue: 120 kB}\n",
    )
    (found,) = queue_advice(read_results(place))
    assert found.other_levels == {}
    assert [(level.queue_bytes, level.runs) for level in found.levels] == [(60_000, 2), (120_000, 2)]


def test_regimes_are_a_column_of_runs_and_a_table_of_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = study_with(tmp_path, "  traffic.channels: [5, 50]\n")
    changed = read_results(place).directories[0][1]
    summary = RunDir(changed).summary()
    RunDir(changed).write_summary({**summary, "regime": {**summary["regime"], "regime": "congestion"}})
    results = read_results(place)
    assert runs_table(results)["regime"].to_list().count("oscillation") == 3
    (table,) = [each for each in tables(results) if each.title == "regimes"]
    assert table.columns == ("", "oscillation", "congestion")
    assert sorted(row[1:] for row in table.rows) == [("1", "1"), ("2", "0")]
    report_study(place.path, View(as_json=True))
    said = json.loads(capsys.readouterr().out)
    assert sorted(map(len, (each["regimes"] for each in said["configurations"]))) == [1, 2]


def test_the_recommendation_is_also_in_packets_of_the_mean_size() -> None:
    runs = [run(queue, mean_packet_bytes=size) for queue in (100, 200) for size in (450.0, 500.0, 700.0)]
    advice = advise({}, runs)
    assert (recommended_kb(advice), advice.mean_packet_bytes, advice.recommended_packets) == (100, 500.0, 200)


def test_without_packet_sizes_the_recommendation_is_in_bytes_alone() -> None:
    assert advise({}, [run(100)] * 3 + [run(200)] * 3).recommended_packets is None


def test_a_repeated_transfer_of_which_one_download_broke_off_has_the_median_time(tmp_path: Path) -> None:
    place = study_with(tmp_path, "  traffic.channels: [5, 50]\n")
    path = read_results(place).directories[0][1]
    summary = {**RunDir(path).summary(), "transfer_bytes": 10**6, "transfer_complete": False}
    for seconds, expected in ((12.0, 12.0), (None, math.inf)):
        RunDir(path).write_summary({**summary, "transfer_s": seconds})
        found = read_queue_run(path)
        assert found is not None
        assert found.transfer_s == expected
