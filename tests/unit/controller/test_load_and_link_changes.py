# SPDX-License-Identifier: Apache-2.0
"""Changes of load and links during a run: what they are, what is refused, and what jobs and links are asked for."""

from dataclasses import replace
from pathlib import Path

import pytest

from atoll_controller.planner.change_schedule import plan_schedule
from atoll_controller.planner.job_plan import jobs
from atoll_controller.planner.plan_text import schedule_text
from atoll_controller.planner.planner import make_plan
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import Bernoulli, Experiment
from atoll_core.experiment.setting_texts import version_differences
from atoll_core.plan.plan import Backend
from atoll_core.units import Duration, Rate, Size

HEAD = """name: changing
lab: island.yaml
duration: 60 s
chain: [tap-w, sat, tap-i]
links:
  sat: {to_island: &d {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}, to_world: *d}
traffic: {channels: 20}
udp: {rate: 2 Mbit/s}
"""


@pytest.fixture
def written(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes an experiment with these changes; its path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "island.yaml").write_text((project / "emulation/labs/island.yaml").read_text())

    def write(*changes: str, head: str = HEAD) -> Path:
        path = Path("e.yaml")
        path.write_text(head + "changes:\n" + "".join(f"  - {each}\n" for each in changes))
        return path

    return write


def planned(path: Path, backend: Backend) -> None:
    described = load_experiment(path)
    plan_schedule(*described, make_plan(*described, backend), backend)


def mistakes(path: Path, backend: Backend = Backend.ENGINE) -> list[str]:
    """What is wrong with the changes, which begin on line 10."""
    with pytest.raises(DescriptionError) as answer:
        planned(path, backend)
    return [str(each).removeprefix("e.yaml:") for each in answer.value.mistakes]


def test_a_change_of_load_and_links_keeps_what_it_leaves_out(written) -> None:
    _, experiment = load_experiment(
        written(
            "{at: 10 s, traffic: {channels: 40}}",
            "{at: 20 s, traffic: {flow_sizes: 10 kB}, udp: {rate: 4 Mbit/s}}",
            "{at: 30 s, links: {sat: {to_island: {rate: 8 Mbit/s, queue: 50 kB}}}}",
            "{at: 40 s, links: {sat: {to_island: {loss: 1 %}}}, latency: {w1: rtt-5}}",
            "{at: 50 s, links: {sat: {to_island: {loss: null, delay: 270 ms}}}}",
        )
    )
    first, _, third, fourth, fifth, last = experiment.versions
    assert [load.channels for load in experiment.loads] == [20, 40, 40, 40, 40, 40]
    assert [load.flow_sizes for load in experiment.loads] == ["published"] * 2 + ["10 kB"] * 4
    rates = [version.udp_rate for version in experiment.versions]
    assert rates == [Rate.parse("2 Mbit/s")] * 2 + [Rate.parse("4 Mbit/s")] * 4
    assert (first.links, first.traffic) == (experiment.links, experiment.traffic)
    assert third.links == first.links
    sat = fourth.links[0]
    assert sat.to_world == first.links[0].to_world
    assert (sat.to_island.rate, sat.to_island.queue) == (Rate.parse("8 Mbit/s"), Size.parse("50 kB"))
    assert (sat.to_island.delay, sat.to_island.loss) == (Duration.parse("250 ms"), None)
    assert fifth.links[0].to_island.loss == Bernoulli(0.01)
    assert last.links[0].to_island.loss is None
    assert from_json(Experiment, to_json(experiment)) == experiment
    assert [list(version_differences(before, after)) for before, after in
            zip(experiment.versions, experiment.versions[1:], strict=False)] == [
        ["traffic.channels 40 instead of 20"],
        ["traffic.flow_sizes 10 kB instead of published", "udp.rate 4 Mbit/s instead of 2 Mbit/s"],
        [
            "links.sat.to_island.rate 8 Mbit/s instead of 16 Mbit/s",
            "links.sat.to_island.queue 50 kB instead of 100 kB",
        ],
        ["links.sat.to_island.loss 1 % instead of null", "latency.w1 rtt-5"],
        [
            "links.sat.to_island.delay 270 ms instead of 250 ms",
            "links.sat.to_island.loss null instead of 1 %",
        ],
    ]  # fmt: skip


def test_an_experiment_over_time_has_what_it_ever_has(written) -> None:
    _, experiment = load_experiment(
        written(
            "{at: 15 s, traffic: {channels: 40}, udp: {rate: 4 Mbit/s}}",
            "{at: 30 s, links: {sat: {to_island: {rate: 8 Mbit/s, delay: 270 ms}}}}",
            "{at: 45 s, traffic: {channels: 5}, links: {sat: {to_island: {queue: 200 kB}}}}",
        )
    )
    assert experiment.max_channels == 40
    assert experiment.first_load == experiment.traffic
    assert experiment.mean_udp_rate == Rate.parse("3500 kbit/s")
    (sat,) = experiment.links_over_time
    assert sat.to_world == experiment.links[0].to_world
    assert (sat.to_island.rate, sat.to_island.queue) == (Rate.parse("16 Mbit/s"), Size.parse("200 kB"))
    assert sat.to_island.delays == (Duration.parse("250 ms"), Duration.parse("270 ms"))
    assert sat.to_island.full_queue == Duration.parse("200 ms")  # 200 kB at 8 Mbit/s
    assert sat.to_island.trace is not None
    rates = [(row.t.s, row.rate) for row in sat.to_island.trace.rows]
    assert rates == [
        (t_s, Rate.parse(rate))
        for t_s, rate in zip((0, 15, 30, 45), ("16 Mbit/s",) * 2 + ("8 Mbit/s",) * 2, strict=True)
    ]


def test_clients_have_the_channels_of_every_version_and_keep_them_while_others_come(written) -> None:
    described = load_experiment(
        written("{at: 10 s, traffic: {channels: 23}}", "{at: 20 s, traffic: {channels: 3}}", "{at: 30 s, chain: [sat]}")
    )
    load = {job.host: job.config for job in jobs(*described) if job.config and job.name.startswith("load-")}
    assert sorted(channel for config in load.values() for channel in config["channels"]) == list(range(20))
    assert [load["i4"]["channels"], load["i4"]["changes"]] == [
        [3, 9, 15],
        [{"after_ns": 10**10, "channels": [3, 9, 15, 21]}, {"after_ns": 2 * 10**10, "channels": []}],
    ]
    assert load["i1"]["changes"] == [{"after_ns": 2 * 10**10, "channels": [0]}]
    (server, *_) = [job for job in jobs(*described) if job.name.startswith("serve-")]
    assert server.limits.open_files == 2 * 23 + 64


def test_an_open_loop_that_changes_has_the_mean_of_its_channels(written) -> None:
    head = HEAD.replace("{channels: 20}", "{channels: 20, flows_per_s: 40}")
    described = load_experiment(written("{at: 10 s, traffic: {flows_per_s: 80}}", head=head))
    (config,) = [job.config for job in jobs(*described) if job.config and job.name == "load-i1"]
    assert config["pace"] == {"kind": "poisson", "mean_ns": 500_000_000}
    assert config["changes"] == [{"after_ns": 10**10, "pace": {"kind": "poisson", "mean_ns": 250_000_000}}]


def test_each_backend_is_asked_for_what_changes(written) -> None:
    path = written("{at: 10 s, links: {sat: {to_island: {rate: 8 Mbit/s, queue: 50 kB}, to_world: {loss: 1 %}}}}")
    described = load_experiment(path)
    (change,) = plan_schedule(*described, make_plan(*described))
    ((_, request),) = change.links
    (config,) = [job.config for job in jobs(*described) if job.config and job.name == "link-sat"]
    assert request == {
        "op": "set",
        "to_island": config["to_island"] | {"rate_bit_s": 8_000_000, "queue_bytes": 50_000},
        "to_world": config["to_world"] | {"loss": {"kind": "bernoulli", "probability": 0.01}},
    }
    assert (change.swap.stages, change.drain) == ((), Duration(0))
    (change,) = plan_schedule(*described, make_plan(*described, Backend.TC), Backend.TC)
    ((_, asked),) = change.links
    assert [line.split(" handle")[0] for line in asked["tc"]] == [
        "qdisc change dev ifb-to-island root",
        "qdisc change dev sat-w root",
    ]
    assert "at 10 s: links.sat.to_island.rate 8 Mbit/s" in schedule_text(described[1], (change,))


def test_the_room_for_packets_in_flight_is_that_of_all_versions(written) -> None:
    path = written(
        "{at: 10 s, links: {sat: {to_island: {rate: 32 Mbit/s}}}}",
        "{at: 20 s, links: {sat: {to_island: {delay: 100 ms}}}}",
    )
    described = load_experiment(path)
    plan = make_plan(*described, Backend.TC)
    (link,) = [job.config for job in plan.jobs if job.config and job.name == "link-sat"]
    limits = [link["link"]["to_island"]["delay"]["limit_packets"]]
    requests = [change.links[0][1] for change in plan_schedule(*described, plan, Backend.TC)]
    limits += [request["link"]["to_island"]["delay"]["limit_packets"] for request in requests]
    assert limits == [32_000_000 // 8 // 4 // 20 + 1000] * 3


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ("{at: 10 s, traffic: {}}", "change 1: this change has no effect"),
        ("{at: 10 s, traffic: {channels: 20}}", "change 1: this change has no effect"),
        ("{at: 10 s, traffic: {channels: many}}", "change 1: traffic: channels: 'many' is not a whole number"),
        ("{at: 10 s, traffic: {think_time: 1 s}}", "change 1: traffic: unknown key 'think_time'"),
        ("{at: 10 s, traffic: {flow_sizes: sizes.csv}}", "change 1: traffic: flow_sizes: sizes.csv: "),
        ("{at: 10 s, traffic: {flows_per_s: 5}}", "change 1: traffic: flows_per_s: the load is a closed loop; write"),
        ("{at: 10 s, links: {sta: {to_island: {rate: 1 Mbit/s}}}}", "change 1: link 'sta': 'sta' has no settings that"),
        ("{at: 10 s, links: {sat: {to_island: {queue: 600 B}}}}", "change 1: link 'sat': to_island: queue: 600 B"),
        ("{at: 10 s, links: {sat: {to_island: {rate: 2}}}}", "change 1: link 'sat': to_island: rate: the number 2"),
        ("{at: 10 s, links: {sat: {to_island: {jitter: 2 ms}}}}", "change 1: link 'sat': to_island: unknown key"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_once_with_its_line(written, change: str, answer: str) -> None:
    (found,) = mistakes(written(change))
    assert found.startswith(f"10: {answer}")


def test_a_change_of_udp_that_there_is_not_is_refused(written) -> None:
    head = HEAD.replace("udp: {rate: 2 Mbit/s}\n", "ping: {interval: 100 ms}\n")
    (found,) = mistakes(written("{at: 10 s, udp: {rate: 1 Mbit/s}}", head=head))
    assert found.startswith("10: change 1: udp: the experiment has no UDP")


def test_a_loss_before_the_queue_cannot_be_added_by_tc(written) -> None:
    path = written("{at: 10 s, links: {sat: {to_island: {loss: {probability: 1 %, where: before}}}}}")
    (found,) = mistakes(path, Backend.TC)
    assert found.startswith("10: change 1 (at 10 s): links.sat: the tc backend cannot add or remove a loss before")


def test_the_experiment_at_an_instant_is_that_of_the_last_change_before(written) -> None:
    _, experiment = load_experiment(
        written(
            "{at: 15 s, traffic: {channels: 40}}",
            "{at: 30 s, links: {sat: {to_island: {rate: 8 Mbit/s}}}, chain: [sat], latency: {w1: null}}",
        )
    )
    start, middle, end = experiment.states
    assert start == replace(experiment, schedule=())
    assert [experiment.at(Duration.parse(t)) for t in ("14.9 s", "15 s", "60 s")] == [start, middle, end]
    assert (middle.links, middle.traffic.channels) == (experiment.links, 40)
    assert (end.traffic, end.links[0].to_island.rate) == (middle.traffic, Rate.parse("8 Mbit/s"))
    assert (end.chain.hops, end.latency, end.schedule) == (("sat",), (), ())
