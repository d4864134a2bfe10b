# SPDX-License-Identifier: Apache-2.0
"""Data of a run except captures: manifest, events and logs, read and typed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from atoll_analysis.run_directory.directory import COMPLETED, COUNTERS_FILE, RUNNING, RunDir, read_json_lines
from atoll_analysis.tables.box_counters import BoxMeasurement, Part, measurements, stalls
from atoll_analysis.tables.change_timeline import (
    ScheduledChange,
    direction_over_time,
    scheduled_changes,
    steering_periods,
)
from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction
from atoll_analysis.tables.topology import RunTopology
from atoll_core.codec import from_json
from atoll_core.errors import RunDirError
from atoll_core.experiment.experiment import Experiment, Link
from atoll_core.experiment.link_over_time import LinkOverTime
from atoll_core.experiment.traffic import FlowDirection
from atoll_core.lab.network import HostRole, Network
from atoll_core.plan.plan import JobSpec, Phase, Plan


@dataclass(frozen=True, slots=True)
class Window:
    """The measurement window: from the clients' start to their end."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class RunData:
    """Description, events and logs of one run."""

    run_dir: str
    manifest: Mapping[str, Any]
    experiment: Experiment
    network: Network
    plan: Plan
    events: tuple[Mapping[str, Any], ...]
    window: Window | None  # None: nothing was measured
    measurements: tuple[BoxMeasurement, ...]  # of link and delay boxes, from mark "begin" to mark "end"
    stalls: tuple[int, int] | None  # of these boxes: number and total ns; None: they measured no lateness
    changes: tuple[ScheduledChange, ...]  # what became of the scheduled ones
    topology: RunTopology

    @property
    def placement(self) -> dict[str, int]:
        """How many channels each client has at first, or none; of older runs by the jobs they had."""
        clients = dict.fromkeys((host.name for host in self.network.with_role(HostRole.ISLAND_CLIENT)), 0)
        planned = {allocation.host: allocation.channels for allocation in self.plan.placement}
        from_jobs = {job.host: len((job.config or {}).get("channels", ())) for job in self.plan.jobs if is_load(job)}
        return clients | (planned or from_jobs)

    @property
    def base_rtt_ns(self) -> int | None:
        """The round-trip time between the special hosts while every queue was empty; None: not measured."""
        return next((int(event["rtt_ns"]) for event in self.of_type("base_rtt")), None)

    @property
    def lasting_placement(self) -> dict[str, int]:
        """How many channels each client has throughout, in every version of the load."""
        _, *later = self.experiment.allocated_channels(self.network)
        return {
            client: min([channels, *(len(version[client][1]) for version in later)])
            for client, channels in self.placement.items()
        }

    @property
    def groups(self) -> dict[str, str]:
        """The group of each client; empty without groups."""
        return {client: load.name for load in self.experiment.traffic.groups for client in load.clients}

    @property
    def load_changes_ns(self) -> tuple[int, ...]:
        """When the scheduled changes of the load began."""
        loads = zip(self.changes, pairwise(self.experiment.loads), strict=True)
        return tuple(change.began_ns for change, (before, after) in loads if change.began_ns and before != after)

    @property
    def in_virtual_time(self) -> bool:
        """Whether the run was made in virtual time."""
        return "virtual" in self.manifest

    @property
    def is_imported(self) -> bool:
        """Whether the run was imported from captures, which are all that is known of it."""
        return "imported" in self.manifest

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions that there are figures of."""
        return (TO_ISLAND, TO_WORLD) if self.experiment.has_uploads else (TO_ISLAND,)

    @property
    def uploading(self) -> frozenset[str]:
        """The clients whose flows are uploads."""
        loads = [load for load in self.experiment.loads[0].loads if load.direction is FlowDirection.UPLOAD]
        clients = [host.name for host in self.network.with_role(HostRole.ISLAND_CLIENT)] if loads else []
        return frozenset(client for load in loads for client in load.clients or clients)

    @property
    def uploading_addresses(self) -> list[int]:
        """The addresses of these clients."""
        uploading = self.uploading
        return [int(host.address) for host in self.network.hosts if host.name in uploading]

    def bottleneck(self, direction: Direction = TO_ISLAND) -> Link | None:
        """The slowest link in a direction, as :meth:`RunTopology.slowest_link` chooses it."""
        span = self.window or Window(0, self.experiment.duration.ns)
        return self.topology.slowest_link(
            lambda link: self.link_over_time(link, direction).capacity_bytes(span.start_ns, span.end_ns)
        )

    def link_over_time(self, link: Link, direction: Direction = TO_ISLAND) -> LinkOverTime:
        """A link's direction over CLOCK_REALTIME; without a measurement, since the load began."""
        origin_ns = self.window.start_ns if self.window else 0
        return direction_over_time(self.experiment, self.events, origin_ns, link.box, direction)

    def of_type(self, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Events of one type, in order."""
        return tuple(event for event in self.events if event.get("type") == kind)

    def direction(self, link: Link, name: str) -> Part | None:
        """A link's measurement of a direction between the marks."""
        parts = (part for box in self.measurements if box.box == link.box for part in box.parts)
        return next((part for part in parts if part.name == name), None)

    @property
    def lateness_max_ns(self) -> int | None:
        """The largest lateness of any departure between the marks; None: not measured."""
        lateness = [part.lateness_max_ns for box in self.measurements for part in box.parts]
        return max((late_ns for late_ns in lateness if late_ns is not None), default=None)


def read_run_data(run: RunDir) -> RunData:
    """Read everything of a run but its captures. Raises RunDirError when the manifest holds no request."""
    manifest = run.manifest()
    try:
        experiment = from_json(Experiment, manifest["experiment"])
        network = from_json(Network, manifest["network"])
        plan = from_json(Plan, manifest["plan"])
    except KeyError as missing:
        reason = f"the run ended before its plan was computed (manifest.json has no {missing})"
        raise RunDirError(f"{run.path}: nothing to analyse: {reason}") from missing
    except (TypeError, ValueError) as error:
        reason = f"manifest.json does not conform to its format {manifest['format']}: {error}"
        raise RunDirError(f"{run.path}: {reason}") from error
    events = tuple(run.events())
    window = _window(events, run)
    marks: list[Mapping[str, Any]] = []
    span_ns = (window.start_ns, window.end_ns) if window else None
    stall_sums = stalls(
        _collect_marks(read_json_lines(run.path / COUNTERS_FILE), marks), experiment.limits.stall.ns, span_ns
    )
    network, scheduled = experiment.as_used(network), scheduled_changes(experiment, events)
    return RunData(
        run_dir=str(run.path),
        manifest=manifest,
        experiment=experiment,
        network=network,
        plan=plan,
        events=events,
        window=window,
        measurements=measurements(marks),
        stalls=stall_sums,
        changes=scheduled,
        topology=RunTopology(experiment, network, plan.captures, steering_periods(experiment, scheduled)),
    )


def _collect_marks(lines: Iterable[Mapping[str, Any]], marks: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The same lines; on their way the few of them that are marks are noted: all lines of a long run are gigabytes."""
    for line in lines:
        if line.get("type") == "mark":
            marks.append(line)
        yield line


def _window(events: tuple[dict[str, Any], ...], run: RunDir) -> Window | None:
    # A run that was cut short has no window event: it measured from the first client's start to the last word of a box.
    for event in events:
        if event.get("type") == "window":
            return Window(int(event["start_ns"]), int(event["end_ns"]))
    start_ns = [
        int(line["t_ns"])
        for log in sorted(run.logs.glob("load-*.out"))
        for line in read_json_lines(log)
        if line.get("type") == "started"
    ]
    box_lines = read_json_lines(run.path / COUNTERS_FILE)
    last_ns = max((int(line["t_ns"]) for line in box_lines if "t_ns" in line), default=0)
    return Window(min(start_ns), last_ns) if start_ns and min(start_ns) < last_ns else None


def is_load(job: JobSpec) -> bool:
    """Whether a job is an island client's channels (names: atoll_controller.planner.job_plan)."""
    return job.phase is Phase.CLIENT and job.name.startswith("load-")


def cut_short(data: RunData) -> str | None:
    """How a run that did not complete ended, in one line ("cancelled at step measure"); None: it completed."""
    outcome = str(data.manifest.get("outcome", RUNNING))
    if outcome == COMPLETED:
        return None
    if outcome != RUNNING:
        return "; ".join(outcome.splitlines())
    steps = [str(event.get("step")) for event in data.of_type("step") if event.get("state") == "begin"]
    return f"killed at step {steps[-1]}" if steps else "killed before its first step"
