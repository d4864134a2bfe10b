# SPDX-License-Identifier: Apache-2.0
"""What benchmarks/metrics makes of runs: lateness of all boxes together, ratios and how sure they are."""

import json
from pathlib import Path

import pytest

from atoll_core.errors import AtollError
from metricsbench import carrying
from metricsbench.lateness import FIGURES, Found, Lateness, interval, lateness_of, load, table


def test_the_departures_of_all_boxes_count_together(tmp_path: Path) -> None:
    """Those of the measurement, which the last mark tells; nine of ten at some 10 us, the tenth at some 1000 us."""
    few, many = [[10_000, 45]], [[10_000, 45], [1_000_000, 10]]
    lines = [
        {"mark": "begin", "to_island": {"lateness_max_ns": 9_000_000, "lateness_histogram": [[9_000_000, 1000]]}},
        {"mark": "end", "to_island": {"lateness_max_ns": 990_000, "lateness_histogram": many}},
        {"mark": "end", "classes": {"101": {"lateness_max_ns": 9_900, "lateness_histogram": few}}},
    ]
    (tmp_path / "link.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = lateness_of(tmp_path)
    assert (found.departures, found.points, found.figures_us["max"]) == (100, 0, 990)
    assert 9.375 <= found.figures_us["p50"] <= 10
    assert 937.5 <= found.figures_us["p99"] <= 1000
    assert found.figures_us["mean"] == pytest.approx(0.9 * 9.7 + 0.1 * 969, rel=0.01)


def test_boxes_that_tell_no_lateness_are_named(tmp_path: Path) -> None:
    """The kernel's do not."""
    (tmp_path / "link.jsonl").write_text("")
    with pytest.raises(AtollError, match="report no lateness"):
        lateness_of(tmp_path)


def test_an_interval_is_of_the_median_and_wants_six_ratios() -> None:
    """Of ten, the second to the ninth: the median is outside with a probability of 22/1024."""
    assert interval([1.0] * 5) is None
    assert interval([6.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == (1.0, 6.0)
    assert interval(list(range(10, 0, -1))) == (2, 9)


def test_what_is_measured_later_is_added(tmp_path: Path) -> None:
    """To runs of the same length, and to nothing else."""
    run = Lateness(1000, 5, dict.fromkeys(FIGURES, 1.0))
    found = Found({"cpu": "a processor"}, 15, [(run, run)])
    (tmp_path / "store.json").write_text(json.dumps(found.as_json()))
    assert load(tmp_path / "store.json").added(found) == Found(found.machine, 15, [(run, run), (run, run)])
    with pytest.raises(AtollError, match="runs of 20 s cannot be added to those of 15 s"):
        found.added(Found(found.machine, 20, []))
    (tmp_path / "store.json").write_text("{}")
    with pytest.raises(AtollError, match="no results of this benchmark"):
        load(tmp_path / "store.json")


def test_ratios_are_those_of_pairs() -> None:
    """Not of medians."""
    runs = [Lateness(1000, 0, dict.fromkeys(FIGURES, us)) for us in (10.0, 20.0, 40.0, 20.0)]
    machine = {"cpu": "a processor", "cores": "2", "date": "today", "revision": "abc", "load_average": "0"}
    found = Found(machine, 20, [(runs[0], runs[1]), (runs[2], runs[3])])
    assert "| p99 | 25.0 (10.0 to 40.0) | 20.0 (20.0 to 20.0) | 1.25 | too few pairs |" in table(found)


def test_points_that_are_missing_are_in_the_table() -> None:
    """With the machine, its date and revision."""
    machine: dict[str, str] = dict.fromkeys(
        ("cpu", "cores", "machine", "kernel", "date", "revision", "load_average"), "known"
    )
    found = carrying.Figures(
        machine,
        points=200_000,
        seconds=2.0,
        spool_bytes=3_000_000,
        spool_cpu_s=0.8,
        sink_cpu_s=0.2,
        behind_s=1.25,
        late_s=0.004,
        delivered=200_000,
        in_database=199_990,
    )
    text = carrying.table(found)
    assert "revision known" in text
    assert "| points, in 2 s | 200,000 (100,000/s) |" in text
    assert "| in the database in the end | 199,990 (missing: 10) |" in text
    assert "| written, CPU | 0.8 s, 4.0 us a point |" in text
    assert "| both together | 50% of one core |" in text
