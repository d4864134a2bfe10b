# SPDX-License-Identifier: Apache-2.0
"""A run that was measured elsewhere: two captures with the descriptions of the lab and the experiment."""

from pathlib import Path

from atoll_analysis.importers.captures import import_captures
from atoll_analysis.run_directory import RunDir
from atoll_controller.planner.job_plan import capture_points, whistle_jobs
from atoll_controller.planner.traffic_jobs import channel_allocations
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Plan
from atoll_testbed.run.run_request import revision


def import_run(world: Path, island: Path, described: tuple[Network, Experiment], runs: Path, binary: Path) -> RunDir:
    """Make a run directory below ``runs`` of the captures at both ends of the chain; it is not analysed yet.

    Raises PlanError if the chain has no two taps, or changes; else as
    :func:`atoll_analysis.importers.captures.import_captures`.
    """
    network, experiment = described
    if len(experiment.versions) > 1:
        raise PlanError(f"{experiment.file}: has changes, but captures do not show when they were made: remove them")
    points = {point.name: point for point in capture_points(network, experiment)}
    if not {"world", "island"} <= points.keys():
        raise PlanError(f"{experiment.file}: its chain needs two taps, one for each capture")
    plan = Plan(
        lab=network.name,
        experiment=experiment.name,
        flows=(),
        hosts=(),
        jobs=whistle_jobs(network),
        captures=(points["island"], points["world"]),
        checks=(),
        seed=experiment.seed,
        placement=channel_allocations(network, experiment),
    )
    run = import_captures({"world": world, "island": island}, network, experiment, plan, runs, binary)
    run.update_manifest({"revision": revision()})
    return run
