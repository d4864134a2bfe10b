# SPDX-License-Identifier: Apache-2.0
"""What jobs of a plan may use: descriptors by channels, memory, never the size of a file; boxes as they please."""

import dataclasses
from pathlib import Path

from atoll_controller.planner.job_limits import MODEST
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
    assert found["load-i1"] == found["serve-w1"] == MODEST


def test_no_file_is_bounded_and_no_box(project: Path) -> None:
    """Captures grow with the run; what a link holds is for its settings to say."""
    found = limits(*load_experiment(project / "examples/geo.yaml"))
    assert {limit.file_bytes for limit in found.values()} == {None}
    assert found["link-sat"] == UNLIMITED
    assert found["capture-world"].memory_bytes == MODEST.memory_bytes


def test_a_plan_of_before_there_were_limits_is_read(project: Path) -> None:
    """As one without any; what is asked of an agent is what there is."""
    spec = JobSpec("ping", "ws", Phase.PING, ("atoll-host", "ping"), {}, limits=JobLimits(nice=3, cpus=(0, 1)))
    answer = to_json(spec)
    assert from_json(JobSpec, answer) == spec
    assert from_json(JobSpec, {key: part for key, part in answer.items() if key != "limits"}).limits == UNLIMITED
    assert spec.limits.asked == {"nice": 3, "cpus": (0, 1)}
    assert UNLIMITED.asked == {}
