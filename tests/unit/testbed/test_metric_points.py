# SPDX-License-Identifier: Apache-2.0
"""From the lines of jobs and switches to metric points: every figure under the name the table has for it."""

import asyncio
import contextlib
import json
import math
import re
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.metrics_spool import SPOOL, read_spool
from atoll_core.description.loader import load_experiment
from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import MetricPoints, Note
from atoll_core.lab.network import measurements_of_kinds
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_core.metrics.metrics_schema import COMMON_TAGS, MEASUREMENT_BY_NAME, MEASUREMENTS, schema_markdown
from atoll_core.plan.plan import JobSpec, Phase
from atoll_core.platforms import MININET
from atoll_hosts.machine import ClockOffset, Machine
from atoll_testbed.metrics.metric_points import (
    box_points,
    clock_point,
    event_point,
    interface_points,
    job_points,
    link_config_points,
    metrics_points,
    switch_points,
)
from atoll_testbed.metrics.metrics_recorder import MetricsRecorder
from atoll_testbed.run.run_request import RunOptions, RunRequest, create_run
from tests.support.skipped_waits import skipping_waits


def said(project: Path, topic: str, kind: str) -> list[dict[str, Any]]:
    """The messages of one type among the examples of a process boundary."""
    lines = (project / "tests/data/contract" / f"{topic}.jsonl").read_text().splitlines()
    messages = [json.loads(line).get("message", {}) for line in lines]
    return [message for message in messages if isinstance(message, dict) and message.get("type") == kind]


def as_table_has_it(points: list[MetricPoint]) -> list[MetricPoint]:
    """The points, of which there are some, each with the tags and only with fields of its measurement."""
    assert points
    for point in points:
        measurement = MEASUREMENT_BY_NAME[point.measurement]
        assert set(point.tags) == {name for name, _ in measurement.tags}
        assert set(point.fields) <= {figure.name for figure in measurement.fields}
        assert point.fields
    return points


def job(name: str, host: str, phase: Phase) -> JobSpec:
    return JobSpec(name, host, phase, ("atoll-host",), {})


def test_the_page_names_every_measurement(project: Path) -> None:
    """`atoll metrics names` prints the rest."""
    page = (project / "docs/metrics.md").read_text()
    names = re.findall(r"^### (\w+)$", schema_markdown(measurements_of_kinds().values()), re.MULTILINE)
    assert len(names) > 20
    assert [name for name in names if f"`{name}`" not in page] == []


def test_names_are_told_once() -> None:
    """No measurement has a tag of the common ones, nor two figures of one name."""
    for measurement in MEASUREMENTS:
        names = [name for name, _ in measurement.tags] + [figure.name for figure in measurement.fields]
        assert len({*names, *COMMON_TAGS}) == len(names) + len(COMMON_TAGS)


def test_a_link_has_a_point_for_each_direction(project: Path) -> None:
    """All that its counters tell is in the table."""
    line = said(project, "link", "counters")[0]
    points = as_table_has_it(list(box_points("sat", line, {}, {})))
    assert [dict(point.tags) for point in points] == [
        {"box": "sat", "direction": way} for way in ("to_island", "to_world")
    ]
    assert set(points[0].fields) == set(line["to_island"])
    assert {point.t_ns for point in points} == {line["t_ns"]}


def test_a_delay_box_has_a_point_for_itself_and_each_class(project: Path) -> None:
    """Classes are called as lab.yaml calls them."""
    line = said(project, "delay", "counters")[0]
    names = {int(vlan): f"rtt of {vlan}" for vlan in line["classes"]}
    points = as_table_has_it(list(box_points("delay", line, names, {})))
    assert [point.measurement for point in points] == ["delay_box"] + ["delay_class"] * len(names)
    assert {point.tags["class"] for point in points[1:]} == set(names.values())


@pytest.mark.parametrize(
    ("topic", "phase", "measurement"),
    [
        ("serve", Phase.SERVER, "server"),
        ("load", Phase.CLIENT, "load"),
        ("capture", Phase.CAPTURE, "capture"),
    ],
)
def test_a_job_s_counters_are_points(project: Path, topic: str, phase: Phase, measurement: str) -> None:
    """Every line of counters, at its own instant, with all it tells but its type and time."""
    for line in said(project, topic, "counters"):
        (point,) = as_table_has_it(list(job_points(job(f"{topic}-x", "w1", phase), line)))
        assert (point.measurement, point.t_ns, point.tags["host"]) == (measurement, line["t_ns"], "w1")
        assert {**point.fields, "type": "counters", "t_ns": point.t_ns} == line


def test_a_source_of_traffic_that_is_over_says_so_in_its_last_point(project: Path) -> None:
    """Else its last rate would seem to go on. A load's has no sums: its last counters are as new."""
    (load,) = as_table_has_it(list(job_points(job("load-i1", "i1", Phase.CLIENT), said(project, "load", "done")[0])))
    assert (load.measurement, load.fields) == ("load", {"active": 0, "ended": 1})
    receiver = job("transfer-receive", "is", Phase.TRANSFER)
    whole, nothing, _, uploaded = [line for line in said(project, "transfer", "done") if "end_ns" in line]
    (transfer,) = as_table_has_it(list(job_points(receiver, whole)))
    assert (transfer.measurement, transfer.t_ns) == ("transfer", whole["end_ns"])
    assert transfer.fields == {"received_bytes": 10_000_000, "ended": 1}
    assert transfer.tags == {"host": "is", "transfer": "transfer"}
    (named,) = job_points(job("transfer-receive-coded-a", "i1", Phase.TRANSFER), whole)
    assert named.tags == {"host": "i1", "transfer": "coded-a"}
    (sent,) = job_points(job("transfer-send-up", "i1", Phase.TRANSFER), uploaded)
    assert sent.tags == {"host": "i1", "transfer": "up"}
    assert sent.fields == {"sent_bytes": uploaded["received_bytes"], "ended": 1}
    assert list(job_points(receiver, nothing)) == []
    assert list(job_points(job("udp-send", "ws", Phase.CLIENT), {"type": "done", "sent_packets": 3})) == []


def test_a_ping_is_a_point_at_the_instant_it_was_sent(project: Path) -> None:
    """One that was lost has no RTT."""
    config = {"targets": [{"name": "i1", "address": "10.20.0.1"}]}
    series = JobSpec("ping", "ws", Phase.PING, ("atoll-host",), config)
    (reply,) = as_table_has_it(list(job_points(series, said(project, "ping", "reply")[0])))
    (lost,) = as_table_has_it(list(job_points(series, said(project, "ping", "lost")[0])))
    assert reply.fields == {"rtt_ns": 500422423, "lost": 0, "seq": 0}
    assert lost.fields == {"lost": 1, "seq": 1}
    assert lost.t_ns - reply.t_ns == 100_000_000


def test_a_whistle_is_an_event() -> None:
    """Its instant is that of the ping."""
    line = {"type": "reply", "target": "is", "seq": 0, "sent_ns": 7, "rtt_ns": 5}
    (point,) = as_table_has_it(list(job_points(job("whistle-start", "wh", Phase.WHISTLE), line)))
    assert (point.measurement, point.tags["kind"], point.fields["text"], point.t_ns) == (
        "event",
        "whistle",
        "whistle start",
        7,
    )


def test_entries_of_one_leg_are_summed_and_missing_counters_left_out() -> None:
    """A switch says 2^64 - 1 of a counter that it does not have."""
    counters = {
        "ports": {"1": {"rx_packets": 5, "rx_errors": 2**64 - 1}},
        "entries": [
            {"cookie": 0xA702_0100_0000_0065, "packets": 3, "bytes": 300},
            {"cookie": 0xA702_0100_0000_0065, "packets": 4, "bytes": 400},
            {"cookie": 0, "packets": 1, "bytes": 60},
        ],
    }
    port, leg, foreign = as_table_has_it(list(switch_points("sw-c", counters, 9)))
    assert port.fields == {"rx_packets": 5}
    assert leg.tags == {"switch": "sw-c", "app": "latency", "cookie": "a702010000000065"}
    assert leg.fields == {"entries": 2, "packets": 7, "bytes": 700}
    assert foreign.tags["app"] == ""


def test_interfaces_are_told_by_name() -> None:
    """As their kernel counts."""
    (point,) = as_table_has_it(list(interface_points("w1", {"w1-eth0": {"rx_packets": 2, "tx_bytes": 3}}, 1)))
    assert point.tags == {"host": "w1", "interface": "w1-eth0"}


def test_what_links_are_configured_to_is_a_point_each_direction(project: Path) -> None:
    """Rate, delay and queue of the experiment."""
    _, experiment = load_experiment(project / "examples/geo.yaml")
    points = as_table_has_it(list(link_config_points(experiment.links, 1)))
    assert points[0].fields == {"rate_bit_s": 16_000_000, "delay_ns": 250_000_000, "queue_bytes": 100_000}


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("step", {"step": "check", "state": "end"}, "step check done"),
        ("note", {"message": "sw-c lost its control channel"}, "sw-c lost its control channel"),
        ("swap", {"change": 1, "state": "turned"}, "swap: packets now take the new chain"),
        ("start", {"at_ns": 2_000_000_005, "clocks": {}}, "the load begins in 2.0 s"),
    ],
)
def test_the_point_of_an_event_has_its_text(kind: str, fields: dict[str, Any], text: str) -> None:
    """The state is a tag, so that annotations can choose by it."""
    (point,) = as_table_has_it([event_point(kind, 5, fields)])
    assert point.fields["text"] == text
    assert point.tags == {"kind": kind, "state": fields.get("state", "")}


def test_a_run_s_points_say_whose_they_are_and_are_all_different(project: Path, tmp_path: Path) -> None:
    """Two events of one nanosecond stay two; a figure that is no number is counted and the rest kept."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    run_dir = RunDir.create(tmp_path, "geo", 1_795_276_328_000_000_000)
    run_dir.update_manifest({"place": "mininet"})
    metering = MetricsRecorder(run_dir, network, experiment)
    metering.event("note", 5, {"message": 'a "quoted", name with = and\na line break'})
    metering.event("note", 5, {"message": "another"})
    metering.event("check", 6, {"src": "w1"})
    metering.record_box_line(
        "sat, 1=2", {"type": "counters", "t_ns": 7, "to_island": {"in_packets": 1, "idle_ns": math.nan}}
    )
    metering.close()
    whose = "experiment=geo,kind=note,place=mininet,run=geo-20261121T155208Z-1,testbed=island"
    first, second, link = list(read_spool(run_dir.path / SPOOL))
    assert first == f'event,{whose} text="a \\"quoted\\", name with = and\\na line break" 5'
    assert second == f'event,{whose} text="another" 6'
    assert link.startswith("link,box=sat\\,\\ 1\\=2,direction=to_island,")
    assert link.endswith(" in_packets=1i 7")


def test_a_switch_that_does_not_answer_costs_nothing_but_its_points(project: Path, tmp_path: Path) -> None:
    """The controller may be starting again; the metrics say how often something was not told."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    run_dir = RunDir.create(tmp_path, "geo", 0)
    metering = MetricsRecorder(run_dir, network, experiment)

    class MuteAgent:
        async def request(self, *_: Any, **__: Any) -> Any:
            raise LabError("the agent speaks protocol 1.0")

        measure = stop_measuring = request

    class Mute:
        experiment = None
        network = load_experiment(project / "examples/geo.yaml")[0]
        agent: Any = MuteAgent()
        events = EventBus()

        @property
        def controller(self) -> Any:
            raise LabError("the controller is gone")

        def machine(self, name: str) -> Machine:
            return Machine(name, self.agent, "/proc/1/ns/net")

    async def sample() -> None:
        async with metering.sampling(Mute()):  # pyright: ignore[reportArgumentType]
            await asyncio.sleep(0.05)

    noted: list[Note] = []
    Mute.events.subscribe(noted.append, Note)
    asyncio.run(sample())
    metering.close()
    unread = len(network.switches) + len(network.machines)
    assert [line for line in read_spool(run_dir.path / SPOOL) if f"unread={unread}i" in line]
    assert noted == [Note(f"no metrics of {', '.join(network.machines)}: the agent speaks protocol 1.0")]


@skipping_waits
async def test_a_clock_that_is_set_back_does_not_silence_the_samples(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of switches there are none here: the counters of the metering itself come on, by the clock as it is now."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    run_dir = RunDir.create(tmp_path, "geo", 0)
    metering = MetricsRecorder(run_dir, network, experiment)

    @contextlib.asynccontextmanager
    async def no_agents(*_: Any) -> AsyncGenerator[None]:
        yield

    monkeypatch.setattr("atoll_testbed.metrics.metrics_recorder._agent_metrics", no_agents)
    wall_ns = time.time_ns
    unswitched: Any = SimpleNamespace(experiment=None, network=SimpleNamespace(switches=()))
    async with metering.sampling(unswitched):
        await asyncio.sleep(0.2)
        monkeypatch.setattr(time, "time_ns", lambda: wall_ns() - 3600 * 10**9)
        await asyncio.sleep(1.5)
    metering.close()
    lines = [line for line in read_spool(run_dir.path / SPOOL) if line.startswith("metrics,")]
    first, second, *_ = (int(line.rpartition(" ")[2]) for line in lines)
    assert 3590e9 < first - second < 3600e9


def test_what_an_agent_tells_is_in_points(project: Path) -> None:
    """Machine, agent and clock once, each host's interfaces and TCP, each job; by this machine's clock."""
    answer = said(project, "agent", "metrics")
    assert [message["machine"]["busy"] for message in answer] == [None, 0.25]
    points = as_table_has_it(list(metrics_points("rack-1", answer[1], 1_000)))
    assert {point.t_ns for point in points} == {answer[1]["t_ns"] - 1_000}
    by_name = {point.measurement: point for point in points}
    assert set(by_name) == {"interface", "tcp", "udp", "job", "machine", "agent", "clock"}
    assert by_name["tcp"].tags == {"host": "w1"}
    assert by_name["tcp"].fields["retransmitted_segments"] == 6
    assert by_name["job"].tags == {"host": "w1", "job": "serve-w1"}
    assert by_name["machine"].fields["busy"] == 0.25
    assert by_name["clock"].fields["synchronised"] == 1
    for name in ("tcp", "udp", "machine", "agent"):  # each field of the table is told
        assert set(by_name[name].fields) == {figure.name for figure in MEASUREMENT_BY_NAME[name].fields}
    first = as_table_has_it(list(metrics_points("rack-1", {**answer[0], "clock": None}, 0)))
    assert "clock" not in {point.measurement for point in first}


def test_a_comparison_of_clocks_is_a_point() -> None:
    """Of the machine, at the instant of the comparison."""
    (point,) = as_table_has_it([clock_point("rack-1", ClockOffset(-5, 2, 4), 9)])
    assert (point.tags, point.t_ns) == ({"machine": "rack-1"}, 9)
    assert point.fields == {"offset_ns": -5, "bound_ns": 2, "rtt_ns": 4}


def test_a_run_that_wants_no_metrics_has_none(project: Path, tmp_path: Path) -> None:
    """No spool, and nobody is asked for counters; who watches is told what happens, and nothing else."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    run_dir = create_run(tmp_path, RunRequest(network, experiment, MININET, RunOptions(metrics=False)), 0)
    answer: list[MetricPoint] = []
    events = EventBus()
    events.subscribe(lambda event: answer.extend(event.points), MetricPoints)
    metering = MetricsRecorder(run_dir, network, experiment, events)
    assert not metering.enabled

    async def sample() -> None:
        async with metering.sampling(object()):  # pyright: ignore[reportArgumentType]
            metering.event("note", 5, {"message": "something"})
            metering.record_box_line("sat", {"type": "counters", "t_ns": 6, "to_island": {"in_packets": 1}})
            await asyncio.sleep(0.01)

    asyncio.run(sample())
    metering.close()
    assert [(point.measurement, point.t_ns) for point in answer] == [("event", 5)]
    assert not (run_dir.path / SPOOL).exists()
