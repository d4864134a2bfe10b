# SPDX-License-Identifier: Apache-2.0
"""What jobs of a plan may use: descriptors by channels, memory, of boxes by their settings; files have no limit."""

import dataclasses
from pathlib import Path

from atoll_controller.planner.job_limits import MEMORY_CAP
from atoll_controller.planner.planner import make_plan
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import UNLIMITED, JobLimits, JobSpec, Phase


def limits(network: Network, experiment: Experiment) -> dict[str, JobLimits]:
    """Of every job, by name."""
    return {job.name: job.limits for job in make_plan(network, experiment).jobs}


def test_descriptors_suffice_for_the_channels(project: Path) -> None:
    """A client has one connection for each of its channels; all channels may turn to one server."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    jobs = make_plan(network, experiment).jobs
    loads = [(job.limits.open_files or 0, job.config or {}) for job in jobs if job.phase is Phase.CLIENT]
    serving = [job.limits.open_files or 0 for job in jobs if job.name.startswith("serve-")]
    assert sum(len(config["channels"]) for _, config in loads) == experiment.traffic.channels
    assert all(files >= len(config["channels"]) + 16 for files, config in loads), "as many as the program asks for"
    assert min(serving) > experiment.traffic.channels


def test_an_open_loop_may_have_any_number_of_connections(project: Path) -> None:
    """How many flows are open is the link's doing there."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    traffic = dataclasses.replace(experiment.traffic, flows_per_s=20.0)
    found = limits(network, dataclasses.replace(experiment, traffic=traffic))
    assert found["load-i1"] == found["serve-w1"] == MEMORY_CAP


def test_no_file_is_bounded(project: Path) -> None:
    """Captures grow with the run."""
    found = limits(*load_experiment(project / "examples/geo.yaml"))
    assert {limit.file_bytes for limit in found.values()} == {None}
    assert found["capture-world"].memory_bytes == MEMORY_CAP.memory_bytes


def test_links_and_delay_boxes_have_a_limit_of_memory_that_follows_from_their_settings(project: Path) -> None:
    """A faster link: more memory."""
    (geo, fast) = (
        limits(*load_experiment(project / "examples/geo.yaml", more))
        for more in ((), ("links.sat.to_island.rate=160 Mbit/s",))
    )
    link = geo["link-sat"]
    assert link.follow_from == ("rate", "delay", "jitter", "queue")
    assert (fast["link-sat"].data_bytes or 0) - (link.data_bytes or 0) > 144e6 / 8 * 0.25, "what is on its way"
    boxes = [limit for name, limit in geo.items() if name.startswith(("delay-", "link-"))]
    assert len(boxes) > 1
    assert all(limit.data_bytes and limit.data_bytes < 10e9 for limit in boxes), boxes


def test_a_users_program_has_the_limit_of_memory_that_its_lab_declares(project: Path) -> None:
    network, experiment = load_experiment(project / "examples/relay.yaml")
    declared = JobLimits(data_bytes=500_000_000, follow_from=("memory_max",))
    assert limits(network, experiment)["program-relay"] == declared
    relay, *others = network.boxes
    assert relay.program
    unlimited = dataclasses.replace(relay, program=dataclasses.replace(relay.program, memory_max=None))
    assert limits(dataclasses.replace(network, boxes=(unlimited, *others)), experiment)["program-relay"] == UNLIMITED


def test_a_plan_of_before_there_were_limits_is_read(project: Path) -> None:
    """As one without any; what is asked of an agent is what there is."""
    spec = JobSpec("ping", "ws", Phase.PING, ("atoll-host", "ping"), {}, limits=JobLimits(nice=3, cpus=(0, 1)))
    answer = to_json(spec)
    assert from_json(JobSpec, answer) == spec
    assert from_json(JobSpec, {key: part for key, part in answer.items() if key != "limits"}).limits == UNLIMITED
    assert spec.limits.requested == {"nice": 3, "cpus": (0, 1)}
    assert UNLIMITED.requested == {}
