# SPDX-License-Identifier: Apache-2.0
"""What those who watch are handed: points of the run, else of the boxes; nothing is made while nobody watches."""

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.metrics_spool import SPOOL, read_spool
from atoll_core.description.loader import load_experiment
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Counters, MetricPoints
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_daemon.event_log import MOST_WAITING, POINTS_PER_EVENT, EventListener, EventLog, LivePoints
from atoll_testbed.metrics.metrics_recorder import MetricsRecorder
from tests.support.skipped_waits import skipping_waits

PERIOD_S = 1.0
COUNTED = {"in_packets": 5, "queue_max_bytes": 100}


class Watched:
    """A log, its live points, and somebody who listens to samples."""

    def __init__(self, project: Path) -> None:
        self.events = EventLog(lambda: 1)
        self.points = LivePoints(self.events, PERIOD_S)
        network, experiment = load_experiment(project / "examples/geo.yaml")
        self.testbed: Any = SimpleNamespace(network=network, experiment=experiment)
        self.dropped = False

    def listen(self, *, samples: bool = True) -> EventListener:
        return self.events.subscribe(0, "somebody", takes_samples=samples, drop=lambda: setattr(self, "dropped", True))

    def count(self, box: str, line: dict[str, Any], now_ns: int = 9) -> None:
        self.points.add_counters(self.testbed, Counters(box, {"type": "counters", **line}), now_ns)


@pytest.fixture
def watched(project: Path) -> Watched:
    return Watched(project)


async def taken(listener: EventListener) -> dict[str, Any]:
    message = await listener.get()
    assert message is not None
    return message


@skipping_waits
async def test_points_of_a_second_come_together(watched: Watched) -> None:
    listener = watched.listen()
    with watched.points.of_run("geo-1"):
        watched.points.add([MetricPoint("server", {"host": "w1"}, {"active": 3}, 7)])
        watched.points.add([MetricPoint("server", {"host": "w2"}, {"active": 4}, 6)])
        message = await taken(listener)
    assert message == {
        "type": "points",
        "t_ns": 7,
        "run": "geo-1",
        "points": [["server", {"host": "w1"}, {"active": 3}, 7], ["server", {"host": "w2"}, {"active": 4}, 6]],
    }


@skipping_waits
async def test_points_are_of_the_run_they_were_taken_in(watched: Watched) -> None:
    """What is gathered when a run begins or ends is handed on before."""
    listener = watched.listen()
    watched.count("sat", {"t_ns": 1, "to_island": COUNTED})
    with watched.points.of_run("geo-1"):
        watched.points.add([MetricPoint("event", {}, {"text": "step apply"}, 2)])
    watched.count("sat", {"t_ns": 3, "to_island": COUNTED})
    runs = [(message["run"], message["t_ns"]) for message in [await taken(listener) for _ in range(3)]]
    assert runs == [(None, 9), ("geo-1", 2), (None, 9)]


@skipping_waits
async def test_between_runs_boxes_say_what_they_count_and_links_what_they_are_set_to(watched: Watched) -> None:
    """Settings come once a second, counters each time; a lab on which nothing stands has no settings."""
    listener = watched.listen()
    for t_ns in (1, 2):
        watched.count("sat", {"t_ns": t_ns, "to_island": COUNTED, "to_world": COUNTED})
    watched.count("delay", {"t_ns": 3, "unknown_vlan_packets": 0, "classes": {"101": {"in_packets": 2}}})
    points = (await taken(listener))["points"]
    assert [point[0] for point in points] == [*["link_config"] * 2, *["link"] * 4, "delay_box", "delay_class"]
    to_island = {"box": "sat", "direction": "to_island"}
    assert points[0] == [
        "link_config", to_island, {"rate_bit_s": 16_000_000, "delay_ns": 250_000_000, "queue_bytes": 100_000}, 9
    ]  # fmt: skip
    assert points[2] == ["link", to_island, COUNTED, 1]
    assert points[-1] == ["delay_class", {"box": "delay", "vlan": "101", "class": "rtt-5"}, {"in_packets": 2}, 3]
    watched.testbed.experiment = None
    watched.count("sat", {"t_ns": 4, "to_island": COUNTED})
    assert [point[0] for point in (await taken(listener))["points"]] == ["link"]


@skipping_waits
async def test_during_a_run_boxes_are_the_run_s(watched: Watched) -> None:
    """It spools their counters, and hands them on; twice would be wrong."""
    listener = watched.listen()
    with watched.points.of_run("geo-1"):
        watched.count("sat", {"t_ns": 1, "to_island": COUNTED})
        await asyncio.sleep(2 * PERIOD_S)
    assert listener.get_nowait() is None


@skipping_waits
async def test_during_a_run_without_metrics_its_boxes_are_listened_to(watched: Watched) -> None:
    """It spools nothing, so nobody else hands on what they count."""
    listener = watched.listen()
    with watched.points.of_run("geo-1", counters_from_run=False):
        watched.count("sat", {"t_ns": 1, "to_island": COUNTED})
        message = await taken(listener)
    assert (message["run"], message["points"][-1][2]) == ("geo-1", COUNTED)


@skipping_waits
async def test_while_nobody_watches_nothing_is_put_together(watched: Watched) -> None:
    """Whoever listens to events alone is nobody here; points of before are not for who comes later."""
    watched.listen(samples=False)

    def never() -> Iterator[MetricPoint]:
        raise AssertionError("somebody looked at the points")
        yield

    watched.points.add(never())
    watched.count("sat", {"classes": None})
    listener = watched.listen()
    await asyncio.sleep(2 * PERIOD_S)
    assert listener.get_nowait() is None


@skipping_waits
async def test_figures_that_are_none_are_left_out_and_the_rest_is_json(watched: Watched) -> None:
    listener = watched.listen()
    watched.points.add([MetricPoint("a", {}, {"x": math.nan, "y": 1}, 1), MetricPoint("b", {}, {"x": math.inf}, 2)])
    message = await taken(listener)
    assert message["points"] == [["a", {}, {"y": 1}, 1]]
    json.dumps(message, allow_nan=False)


@skipping_waits
async def test_who_does_not_read_is_dropped_by_points_sooner_than_by_events(watched: Watched) -> None:
    """What waits for one who listens is bounded in points, too; who reads is never dropped by one large sample."""
    reader, slow = watched.listen(), watched.listen()
    points = [["a", {}, {"x": 1}, 1]] * POINTS_PER_EVENT * 200
    sent = 0
    while not watched.dropped:
        watched.events.sample("points", run=None, points=points)
        assert reader.get_nowait() is not None
        sent += 1
    assert sent <= MOST_WAITING / 200 + 2
    assert await slow.get() is None
    answer = reader.get_nowait()
    assert answer is not None
    assert (answer["type"], answer["listener"]) == ("listener_dropped", "somebody")
    watched.events.sample("points", run=None, points=points * 10)
    assert reader.get_nowait() is not None


def test_metering_hands_on_what_it_spools_and_nothing_else(project: Path, tmp_path: Path) -> None:
    """All points, in their order, without the tags that all of them have."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    run_dir = RunDir.create(tmp_path, "geo", 1_795_276_328_000_000_000)
    handed: list[MetricPoint] = []
    events = EventBus()
    events.subscribe(lambda event: handed.extend(event.points), MetricPoints)
    metering = MetricsRecorder(run_dir, network, experiment, events)
    metering.event("note", 5, {"message": "up"})
    metering.event("check", 6, {"src": "w1"})
    metering.record_box_line("sat", {"type": "counters", "t_ns": 7, "to_island": COUNTED, "to_world": COUNTED})
    metering.close()
    spooled = [MetricPoint.parse(line) for line in read_spool(run_dir.path / SPOOL)]
    assert [(point.measurement, point.fields, point.t_ns) for point in spooled] == [
        (point.measurement, point.fields, point.t_ns) for point in handed
    ]
    assert [dict(point.tags) for point in handed] == [
        {"kind": "note", "state": ""},
        {"box": "sat", "direction": "to_island"},
        {"box": "sat", "direction": "to_world"},
    ]
