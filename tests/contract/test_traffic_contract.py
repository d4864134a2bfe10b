# SPDX-License-Identifier: Apache-2.0
"""What Python tells and expects of the jobs on hosts is as in tests/data/contract, which Rust's tests read too."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.figures.udp import judge_udp, udp_figures
from atoll_analysis.tables.job_logs import channel_service_figures, transfer_reports
from atoll_analysis.verdict.findings import FindingCode, reason
from atoll_controller.planner import traffic_jobs
from atoll_controller.planner.job_plan import jobs
from atoll_controller.planner.planner import make_plan
from atoll_controller.planner.traffic_jobs import with_quiet_jobs
from atoll_core.description.loader import load_experiment
from atoll_core.units import Rate, Size

TOPICS = ("serve", "load", "transfer", "ping", "capture")


def examples(project: Path, topic: str, *senders: str) -> list[dict[str, Any]]:
    """The messages of a topic that come from one of the senders; there is at least one."""
    lines = (project / "tests" / "data" / "contract" / f"{topic}.jsonl").read_text().splitlines()
    found = [line["message"] for line in map(json.loads, lines) if line["from"] in senders]
    assert found
    return found


def shape(message: Any) -> Any:
    """Names and types of a configuration, whatever the figures and however long the lists."""
    if isinstance(message, dict):
        return {name: shape(field) for name, field in message.items()}
    if isinstance(message, list):
        return [shape(message[0])]
    return type(message).__name__


@pytest.mark.parametrize("topic", TOPICS)
def test_planned_configurations_have_the_shape_of_an_example(project: Path, topic: str) -> None:
    network, experiment = load_experiment(project / "examples" / "geo.yaml")
    known = [shape(example) for example in examples(project, topic, "keeper")]
    planned = [job for job in jobs(network, experiment) if job.argv == ("atoll-host", topic)]
    assert planned
    for job in planned:
        assert shape(job.config) in known, job.name


def test_the_probes_of_a_calibration_have_the_shape_of_an_example(project: Path) -> None:
    network, _ = load_experiment(project / "examples" / "geo.yaml")
    world, island = network.host("ws"), network.host("is")
    probes = (
        traffic_jobs.calibration_receive(island, per_packet=True),
        traffic_jobs.calibration_send(world, island, rate_bit_s=1, packet_bytes=1500, start_at_ns=0, duration_ns=1),
        traffic_jobs.calibration_ping(world, island, interval_ns=1, start_at_ns=0, timeout_ns=1),
    )
    for probe in probes:
        known = [shape(example) for example in examples(project, probe.argv[1], "keeper")]
        planned = shape(probe.config)
        assert any({**example, "count": planned.get("count")} == {"count": None, **planned} for example in known)


LOADS = (
    "traffic={channels: 20, flow_sizes: 10 kB, think_time: 2 s, write_rate: 2 Mbit/s}",
    "traffic={channels: 20, flow_sizes: {counts: ip}, think_time: {mean: 2 s, distribution: exponential}}",
    "traffic={channels: 20, flow_sizes: 40 kB, flows_per_s: 50}",
)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    "udp",
    [
        "{rate: 2 Mbit/s}",
        "{rate: 2 Mbit/s, flow_sizes: 10 kB, packet: 1200 B}",
        "{rate: 2 Mbit/s, receivers: clients}",
    ],
)
def test_loads_of_every_kind_have_the_shape_of_an_example(project: Path, load: str, udp: str) -> None:
    network, experiment = load_experiment(project / "examples" / "geo.yaml", [load, f"udp={udp}"])
    planned = [job for job in jobs(network, experiment) if job.argv[-1] in ("serve", "load", "udp")]
    assert len(planned) == 6 + 6 + (1 + 6 if "clients" in udp else 1 + 1)
    for job in planned:
        known = [shape(example) for example in examples(project, job.argv[-1], "keeper")]
        assert shape(job.config) in known, (job.name, job.config)


def test_loads_of_hosts_with_in_band_control_have_the_shape_of_an_example(project: Path) -> None:
    network, experiment = load_experiment(project / "tests" / "data" / "rack-in-band.yaml")
    everyone = tuple(replace(host, control=host.address) for host in network.hosts)
    lab = replace(network, hosts=everyone)
    planned = with_quiet_jobs(make_plan(lab, experiment), lab).jobs
    for topic, count in (("load", 2), ("serve", 1)):
        (example,) = (each for each in examples(project, topic, "keeper") if each.get("quiet"))
        assert [shape(job.config) for job in planned if job.argv[-1] == topic] == [shape(example)] * count


def test_changes_of_the_load_have_the_shape_of_an_example(project: Path) -> None:
    changes = """changes=[{at: 10 s, traffic: {channels: 21, flow_sizes: {distribution: 10 kB, counts: ip}}},
        {at: 20 s, traffic: {flows_per_s: 50}, udp: {rate: 4 Mbit/s}}]"""
    settings = ["traffic={channels: 20, flows_per_s: 40}", "udp={rate: 2 Mbit/s}", changes]
    described = load_experiment(project / "examples" / "geo.yaml", settings)
    planned = {job.name: job.config for job in jobs(*described) if job.config and "changes" in job.config}
    assert set(planned) == {"udp-send", *(f"load-i{client}" for client in range(1, 7))}
    for name, topic in (("load-i3", "load"), ("udp-send", "udp")):
        (example,) = (each for each in examples(project, topic, "keeper") if "changes" in each)
        assert planned[name].keys() == example.keys()
        assert shape(max(planned[name]["changes"], key=len)) == shape(example["changes"][0])


def test_what_udp_came_to_is_read_from_the_last_words_of_both_ends(project: Path, tmp_path: Path) -> None:
    asked = Rate(8000)
    said = {end: examples(project, "udp", end)[-1] for end in ("send", "receive")}
    for end, words in said.items():
        (tmp_path / f"udp-{end}.out").write_text(json.dumps(words) + "\n")
    found = udp_figures(Size(1500), asked, 60.0, tmp_path)
    assert (found["sent_packets"], found["received_packets"], found["lost_packets"]) == (2, 5, -3)
    assert (found["jitter_ms"], found["reordered_packets"], found["flows_completed"]) == (0.0, 1, 1)
    assert (found["sent_mbit_s"], found.get("tolerance_bit_s")) == (0.0004, 200)
    assert list(judge_udp(found)) == [
        reason(FindingCode.UDP_RATE, "UDP was sent at 0.0004 Mbit/s, asked for 0.008 Mbit/s ± 2.5%")
    ]
    assert list(judge_udp({**found, "sent_mbit_s": 0.00781})) == []
    nothing = udp_figures(Size(1500), Rate(10**9), 60.0, tmp_path / "nothing")
    assert (nothing["sent_mbit_s"], nothing.get("tolerance_bit_s")) == (None, 10**7)


@pytest.mark.parametrize("topic", [*TOPICS, "udp"])
def test_jobs_begin_with_ready_and_end_with_done(project: Path, topic: str) -> None:
    senders = ("send", "receive") if topic in ("transfer", "udp") else (topic,)
    kinds = [message["type"] for message in examples(project, topic, *senders)]
    assert kinds[0] == "ready"
    assert kinds[-1] == "done"


def test_fairness_and_transfer_are_read_from_the_jobs_last_words(project: Path, tmp_path: Path) -> None:
    done = examples(project, "load", "load")[-1]
    for client, fairness in (("i1", done["fairness"]), ("i2", 0.25)):
        said = json.dumps({**done, "fairness": fairness})
        (tmp_path / f"load-{client}.out").write_text(said + "\n")
    assert channel_service_figures(tmp_path)[0] == 0.25
    received = [message for message in examples(project, "transfer", "receive") if message["type"] == "done"]
    (tmp_path / "transfer-receive.out").write_text("".join(f"{json.dumps(report)}\n" for report in received))
    assert transfer_reports(tmp_path, "transfer-receive") == received
