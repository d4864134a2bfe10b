# SPDX-License-Identifier: Apache-2.0
"""A sweep: find out which points of a study have no usable run yet, and make attempts at them."""

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from atoll_controller.planner.virtual_cost import disk, memory, wall_time
from atoll_core.errors import UsageError
from atoll_core.platforms import VIRTUAL
from atoll_core.plural import counted
from atoll_core.units import Duration, Size
from atoll_emulation.this_machine.core_pinning import usable_cores
from atoll_emulation.this_machine.host_requirements import require_virtual_machine
from atoll_emulation.uml.kernel import UmlKernel
from atoll_studies.points import Point, make_points, run_request
from atoll_studies.results.study_runs import PointRuns, decisions, out_of_tries, warm_up_of
from atoll_studies.study import StudyDescription
from atoll_studies.study_directory import FAILED, Attempt, Provenance, StudyDirectory, is_study
from atoll_studies.sweeping.cluster import Cluster
from atoll_studies.sweeping.pool import Ended, Pool
from atoll_studies.sweeping.worker import provenance
from atoll_testbed.preflight.requirements import max_parallel_runs, require_machine_for, require_runnable
from atoll_testbed.virtual.precompile import compile_stale, module_folders

_REAL_OVERHEAD_S = 20.0  # of a run in real time: lab, configuration test, analysis


class State(StrEnum):
    """The state of a point."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"  # it has a usable run
    INVALID = "invalid"  # it has only invalid runs, and is not tried again
    FAILED = "failed"  # likewise; the last one has no verdict
    OPTIONAL = "optional"  # of a study with ``stop``: made if the interval is still too wide after those before


@dataclass(slots=True)
class PointState:
    """A point, its attempts, and its state in a sweep."""

    point: Point
    estimate_s: float
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    state: State = State.WAITING
    new_attempts: list[Attempt] = field(default_factory=list[Attempt])  # those of this sweep
    lost: int = 0  # tries of this sweep of which no attempt is left: killed, or ended before the run had a directory
    loss_reason: str = ""  # why the last try left none; empty if it left one
    began_s: float | None = None  # time.monotonic() of the attempt that runs

    @property
    def usable(self) -> Attempt | None:
        """The run whose figures count."""
        return next((attempt for attempt in self.attempts if attempt.usable), None)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a sweep takes."""

    runs: int
    wall: Duration
    disk: Size
    jobs: int


class Sweep:
    """The work on a study's directory: :meth:`require_machine`, :meth:`read`, :meth:`run`."""

    def __init__(
        self,
        study: StudyDescription,
        directory: StudyDirectory,
        inventory: Path | None = None,
        scheduler: str | None = None,
    ) -> None:
        """``scheduler``: address of a Dask scheduler, whose workers make the runs. Raises UsageError."""
        self.inventory = inventory
        if scheduler and study.platform != VIRTUAL:
            raise UsageError(
                f"--scheduler {scheduler}: runs on {study.platform} are made on this machine; leave it out"
            )
        self.cluster = Cluster(directory, scheduler) if scheduler else None
        self.study = study
        self.directory = directory
        self.estimates = [_estimated_s(study, number) for number in range(len(study.configurations))]
        self.points = {point.id: PointState(point, self.estimates[point.configuration]) for point in make_points(study)}
        self.origin: Provenance | None = None
        """The provenance of runs that are made here."""
        self._mix = False
        self.on_change: Callable[[PointState], None] = lambda _: None
        """Is called when the state of a point has changed."""

    def require_machine(self) -> None:
        """Check that the runs can be made here. Raises MachineError, PlanError, DescriptionError."""
        kernel = require_platform(self.study, self.directory.path)
        self.origin = provenance(self.study.platform, kernel, self.inventory)

    def read(self, *, resume: bool, mix: bool) -> None:
        """Read the directory, and find the points that are left. ``resume``: there may be runs. ``mix``: of any origin.

        Raises UsageError, RunDirError.
        """
        self._mix = mix
        if is_study(self.directory.path) and (name := self.directory.study()["name"]) != self.study.name:
            raise UsageError(
                f"{self.directory.path} belongs to study {name}, but this study is {self.study.name}; name another "
                "directory"
            )
        for each in self.points.values():
            each.attempts = self.directory.attempts(each.point.id)
        attempts = [attempt for each in self.points.values() for attempt in each.attempts]
        if not resume and (kept := self.directory.count_attempts()):
            raise UsageError(
                f"{self.directory.path} has {counted(kept, 'run')}; --resume keeps them and makes the missing runs"
            )
        others = {attempt.provenance for attempt in attempts if attempt.usable} - {self.origin}
        if others and not mix:
            made = "\n".join(f"  {other}" for other in sorted(others, key=str))
            raise UsageError(
                f"{self.directory.path} has runs made by\n{made}\nand this is {self.origin}; continue with --mix "
                "(results then say so), or name another directory for a new study"
            )
        for each in self.points.values():
            each.state = self._state(each)
        self._update_optional()

    @property
    def unused(self) -> int:
        """The number of runs in the directory whose points are no longer of the study. They are kept."""
        return self.directory.count_attempts() - sum(len(each.attempts) for each in self.points.values())

    def _update_optional(self) -> None:
        """Find out which repetitions a study with ``stop`` takes, as far as its runs show it."""
        if self.study.stop is None:
            return
        runs = {
            key: PointRuns(key, each.point.configuration, each.point.repetition, each.point.seed, each.attempts)
            for key, each in self.points.items()
        }
        made = (State.DONE, State.INVALID, State.FAILED)
        looks = decisions(
            self.study.stop,
            warm_up_of(self.study.warm_up, list(runs.values())),
            list(runs.values()),
            lambda point: self.points[point.id].state in made,
        )
        for each in self.points.values():
            if each.state in (State.WAITING, State.OPTIONAL):
                taken = each.point.repetition < looks[each.point.configuration].repetitions
                each.state = State.WAITING if taken else State.OPTIONAL

    def _state(self, each: PointState) -> State:
        """The state by what is in the directory. Earlier attempts of another provenance are no tries of this one."""
        if each.usable:
            return State.DONE
        tried = [try_ for try_ in each.attempts if try_.provenance == self.origin or try_ in each.new_attempts]
        if not out_of_tries(tried, self.study.attempts - each.lost, self.study.platform):
            return State.WAITING
        return State.FAILED if not tried or tried[-1].outcome == FAILED else State.INVALID

    def counts(self) -> dict[State, int]:
        """The number of points in each state."""
        return {state: sum(each.state is state for each in self.points.values()) for state in State}

    def left(self) -> list[PointState]:
        """Points that are not done, those that run first."""
        return [each for each in self.points.values() if each.state in (State.RUNNING, State.WAITING)]

    @property
    def taken(self) -> int:
        """The number of points that the study takes, as far as is known."""
        return len(self.points) - len(self.optional())

    def optional(self) -> list[PointState]:
        """Points that are made only if intervals are still too wide after those before."""
        return [each for each in self.points.values() if each.state is State.OPTIONAL]

    def jobs(self, wanted: int | None) -> int:
        """The number of attempts at a time: as given, or one a core as far as memory allows; in real time one.

        Of a cluster the number of its workers' threads.

        Raises UsageError for several in real time, MachineError if not even one has the memory.
        """
        if self.study.platform != VIRTUAL:
            if wanted not in (None, 1):
                raise UsageError(f"--jobs {wanted}: runs on {self.study.platform} are made one at a time")
            return 1
        if self.cluster is not None:
            return self.cluster.jobs()
        largest = max(self.study.configurations, key=lambda each: memory(each.network, each.experiment))
        most_jobs = max_parallel_runs(largest.experiment, memory(largest.network, largest.experiment))
        return wanted or min(usable_cores(), most_jobs)

    def predict(self, jobs: int, *, at_most: bool = False) -> Prediction:
        """Estimate the wall time and the disk space that is left to do, to a factor of two.

        ``at_most``: with all runs that a study with ``stop`` may need; otherwise with those that it needs for certain.
        """
        runs = [*self.left(), *(self.optional() if at_most else ())]
        described = [self.study.configurations[each.point.configuration] for each in runs]
        return Prediction(
            runs=len(runs),
            wall=Duration(round(1e9 * makespan([each.estimate_s for each in runs], jobs))),
            disk=Size(sum(disk(each.network, each.experiment).bytes for each in described)),
            jobs=jobs,
        )

    def time_left_s(self, jobs: int) -> float:
        """The estimated wall time to the end, corrected by how the estimates of ended runs met."""
        ended = [(each.usable.wall_s, each.estimate_s) for each in self.points.values() if each.usable]
        slowness = sum(wall_s for wall_s, _ in ended) / sum(estimated for _, estimated in ended) if ended else 1.0
        now = time.monotonic()
        # read once: attempts end while a terminal's thread is here
        spent = {each.point.id: now - began_s for each in self.left() if (began_s := each.began_s) is not None}
        work = [max(0.0, slowness * each.estimate_s - spent.get(each.point.id, 0.0)) for each in self.left()]
        return makespan(work, jobs)

    async def run(self, jobs: int) -> None:
        """Make attempts until every point that is taken is done, or was tried often enough.

        Call it under the directory's lock. Raises RunError if an attempt cannot be recorded.
        """
        self.directory.clear_working()
        points = [each.point for each in self.points.values()]
        self.directory.write(self.study, points, None if self._mix else self.origin, self.inventory)
        await compile_stale(module_folders(), lambda _: None)  # once, not in every process
        try:
            pool = self.cluster or Pool(self.directory.path, jobs)
            while waiting := [each.point.id for each in self.points.values() if each.state is State.WAITING]:
                await pool.run(waiting, self._started, self._ended)
                self._update_optional()
        finally:
            self.directory.clear_working()

    def _started(self, point: str) -> None:
        each = self.points[point]
        each.state, each.began_s = State.RUNNING, time.monotonic()
        self.on_change(each)

    def _ended(self, ended: Ended) -> bool:
        each = self.points[ended.point]
        before, each.attempts = each.attempts, self.directory.attempts(ended.point)
        each.new_attempts += [attempt for attempt in each.attempts if attempt not in before]
        lost = ended.lost and len(each.attempts) == len(before)
        each.lost += lost
        each.loss_reason = "" if not lost else "killed" if ended.exit_code < 0 else ended.message
        each.state, each.began_s = self._state(each), None
        self.on_change(each)
        return each.state is State.WAITING


def require_platform(study: StudyDescription, runs: Path) -> UmlKernel | None:
    """Check that the machine can make the runs; returns the virtual kernel, if the study is of virtual time.

    Raises MachineError, PlanError, DescriptionError, UsageError.
    """
    for each in study.configurations:
        require_runnable(run_request(each.network, each.experiment, study.backend, study.platform), runs)
    require_machine_for(study.platform, study.backend)
    return require_virtual_machine() if study.platform == VIRTUAL else None


def makespan(work: Sequence[float], jobs: int) -> float:
    """The time that pieces of work take in their order, ``jobs`` at a time."""
    busy_until = [0.0] * jobs
    for piece in work:
        heapq.heapreplace(busy_until, busy_until[0] + piece)
    return max(busy_until)


def _estimated_s(study: StudyDescription, number: int) -> float:
    configuration = study.configurations[number]
    if study.platform == VIRTUAL:
        return wall_time(configuration.network, configuration.experiment, study.backend).s
    return configuration.experiment.duration.s + _REAL_OVERHEAD_S
