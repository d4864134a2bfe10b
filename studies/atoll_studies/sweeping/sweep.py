# SPDX-License-Identifier: Apache-2.0
"""A sweep: find out which points of a study have no usable run yet, and make attempts at them."""

import functools
import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from atoll_controller.planner.virtual_cost import disk, memory, wall_time
from atoll_core.errors import MachineError, UsageError
from atoll_core.platforms import VIRTUAL
from atoll_core.plural import counted
from atoll_core.units import Duration, Size
from atoll_emulation.this_machine.core_pinning import usable_cores
from atoll_emulation.this_machine.host_requirements import require_virtual_machine
from atoll_emulation.uml.kernel import UmlKernel
from atoll_studies.points import Point, make_points, run_request
from atoll_studies.results.queue_capacity import QueueRun, read_queue_run
from atoll_studies.results.queue_search import search_path
from atoll_studies.results.study_runs import PointRuns, decisions, out_of_tries, warm_up_of
from atoll_studies.statistics.bisection import End, SearchPath
from atoll_studies.study import StudyDescription
from atoll_studies.study_directory import FAILED, Attempt, Provenance, StudyDirectory, is_study
from atoll_studies.sweeping.cluster import Cluster
from atoll_studies.sweeping.pool import AttemptEnd, Pool
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


_ENDED = (State.DONE, State.INVALID, State.FAILED)


@dataclass(slots=True)
class PointState:
    """A point, its attempts, and its state in a sweep."""

    point: Point
    estimate_s: float
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    state: State = State.WAITING
    new_attempts: list[Attempt] = field(default_factory=list[Attempt])  # those of this sweep
    lost_tries: int = 0  # of this sweep, that left no attempt: killed, or ended before the run had a directory
    loss_reason: str = ""  # why the last try left none; empty if it left one
    began_s: float | None = None  # time.monotonic() of the attempt that runs

    @property
    def chosen(self) -> Attempt | None:
        """The run whose figures count."""
        return next((attempt for attempt in self.attempts if attempt.is_usable), None)


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
        self.directory = directory
        self.points: dict[str, PointState] = {}
        self._queue_run = functools.cache(read_queue_run)  # a search is replayed after each run
        self.searches: dict[tuple[str, ...], SearchPath] = {}
        """The searches of the study by the levels of its other factors."""
        self._use(study)
        self.origin: Provenance | None = None
        """The provenance of runs that are made here."""
        self._mix = False
        self.on_change: Callable[[PointState], None] = lambda _: None
        """Is called when the state of a point has changed."""

    def require_machine(self) -> None:
        """Check that the runs can be made here. Raises MachineError, PlanError, DescriptionError."""
        if self.study.missing_controls:
            raise MachineError("\n".join(map(str, self.study.missing_controls)))
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
        for entry in self.points.values():
            self._read(entry)
        self._extend_searches()
        attempts = [attempt for entry in self.points.values() for attempt in entry.attempts]
        if not resume and (kept := self.directory.count_attempts()):
            raise UsageError(
                f"{self.directory.path} has {counted(kept, 'run')}; --resume keeps them and makes the missing runs"
            )
        other_origins = {attempt.provenance for attempt in attempts if attempt.is_usable} - {self.origin}
        if other_origins and not mix:
            makers = "\n".join(f"  {other}" for other in sorted(other_origins, key=str))
            raise UsageError(
                f"{self.directory.path} has runs made by\n{makers}\nand this is {self.origin}; continue with --mix "
                "(results then say so), or name another directory for a new study"
            )
        self._update_optional()

    @property
    def unused_runs(self) -> int:
        """The number of runs in the directory whose points are no longer of the study. They are kept."""
        return self.directory.count_attempts() - sum(len(entry.attempts) for entry in self.points.values())

    def _read(self, entry: PointState) -> None:
        entry.attempts = self.directory.attempts(entry.point.id)
        entry.state = self._state(entry)

    def _use(self, study: StudyDescription) -> None:
        """Have the points of a study. Those that were there keep their states."""
        estimates = [_estimated_s(study, number) for number in range(len(study.configurations))]
        points = make_points(study)
        entries = {p.id: self.points.get(p.id) or PointState(p, estimates[p.configuration]) for p in points}
        self.study = study  # first: a terminal's thread reads the points, then the study
        for point in points:
            entries[point.id].point = point
        self.points = entries

    def _extend_searches(self) -> None:
        """Replay the searches, and add the points that they take next."""
        search = self.study.search
        while search is not None:
            taken = {others: path.taken for others, path in self.searches.items()}
            self.searches = {others: search_path(search, runs) for others, runs in self._queue_runs().items()}
            following = {others: path.taken for others, path in self.searches.items()}
            if following == taken:
                return
            known = set(self.points)
            self._use(self.study.with_capacities(following))
            for entry in self.points.values():
                if entry.point.id not in known:
                    self._read(entry)

    def _queue_runs(self) -> dict[tuple[str, ...], dict[int, list[QueueRun | None]]]:
        """The runs that ended, by the other levels and the capacity, as far as all repetitions before them ended."""
        runs: dict[tuple[str, ...], dict[int, list[QueueRun | None]]] = {
            self.study.other_levels(configuration): {} for configuration in self.study.configurations
        }
        for entry in sorted(self.points.values(), key=lambda entry: entry.point.repetition):
            configuration = self.study.configurations[entry.point.configuration]
            by_capacity = runs[self.study.other_levels(configuration)]
            own = by_capacity.setdefault(self.study.capacity(configuration), [])
            if len(own) == entry.point.repetition and entry.state in _ENDED:
                own.append(self._queue_run(entry.chosen.path) if entry.chosen else None)
        return runs

    @property
    def most_searched(self) -> int:
        """The number of runs that searches may take besides the points that there are."""
        search = self.study.search
        if search is None:
            return 0
        most_runs = search.most_capacities * search.repetitions
        return sum(most_runs - sum(path.taken.values()) for path in self.searches.values() if path.end is End.OPEN)

    def _update_optional(self) -> None:
        """Find out which repetitions a study with ``stop`` takes, as far as its runs show it."""
        if self.study.stop is None:
            return
        runs = {
            key: PointRuns(key, entry.point.configuration, entry.point.repetition, entry.point.seed, entry.attempts)
            for key, entry in self.points.items()
        }
        decision_by_configuration = decisions(
            self.study.stop,
            warm_up_of(self.study.warm_up, list(runs.values())),
            list(runs.values()),
            lambda point: self.points[point.id].state in _ENDED,
        )
        for entry in self.points.values():
            if entry.state in (State.WAITING, State.OPTIONAL):
                taken = entry.point.repetition < decision_by_configuration[entry.point.configuration].repetitions
                entry.state = State.WAITING if taken else State.OPTIONAL

    def _state(self, entry: PointState) -> State:
        """The state by what is in the directory. Earlier attempts of another provenance are no tries of this one."""
        if entry.chosen:
            return State.DONE
        tried = [a for a in entry.attempts if a.provenance == self.origin or a in entry.new_attempts]
        if not out_of_tries(tried, self.study.attempts - entry.lost_tries, self.study.platform):
            return State.WAITING
        return State.FAILED if not tried or tried[-1].outcome == FAILED else State.INVALID

    def counts(self) -> dict[State, int]:
        """The number of points in each state."""
        return {state: sum(entry.state is state for entry in self.points.values()) for state in State}

    def remaining(self) -> list[PointState]:
        """Points that are not done, those that run first."""
        return [entry for entry in self.points.values() if entry.state in (State.RUNNING, State.WAITING)]

    @property
    def needed_runs(self) -> int:
        """The number of points that the study takes, as far as is known."""
        return len(self.points) - len(self.optional())

    def optional(self) -> list[PointState]:
        """Points that are made only if intervals are still too wide after those before."""
        return [entry for entry in self.points.values() if entry.state is State.OPTIONAL]

    def jobs(self, requested: int | None) -> int:
        """The number of attempts at a time: as given, or one a core as far as memory allows; in real time one.

        Of a cluster the number of its workers' threads.

        Raises UsageError for several in real time, MachineError if not even one has the memory.
        """
        if self.study.platform != VIRTUAL:
            if requested not in (None, 1):
                raise UsageError(f"--jobs {requested}: runs on {self.study.platform} are made one at a time")
            return 1
        if self.cluster is not None:
            return self.cluster.jobs()
        largest = max(self.study.configurations, key=lambda c: memory(c.network, c.experiment))
        most_jobs = max_parallel_runs(largest.experiment, memory(largest.network, largest.experiment))
        return requested or min(usable_cores(), most_jobs)

    def predict(self, jobs: int, *, at_most: bool = False) -> Prediction:
        """Estimate the wall time and the disk space that is left to do, to a factor of two.

        ``at_most``: with all runs that a study with ``stop`` or ``search`` may need; otherwise with those that it needs
        for certain.
        """
        runs = [*self.remaining(), *(self.optional() if at_most else ())]
        described = [self.study.configurations[entry.point.configuration] for entry in runs]
        estimates = [entry.estimate_s for entry in runs]
        if at_most and self.most_searched:  # runs at other capacities take about as long
            count = self.most_searched
            described += list(itertools.islice(itertools.cycle(self.study.configurations), count))
            every = [_estimated_s(self.study, number) for number in range(len(self.study.configurations))]
            estimates += list(itertools.islice(itertools.cycle(every), count))
        return Prediction(
            runs=len(described),
            wall=Duration(round(1e9 * makespan(estimates, jobs))),
            disk=Size(sum(disk(c.network, c.experiment).bytes for c in described)),
            jobs=jobs,
        )

    def time_left_s(self, jobs: int) -> float:
        """The estimated wall time to the end, corrected by how the estimates of ended runs met."""
        ended = [(entry.chosen.wall_s, entry.estimate_s) for entry in self.points.values() if entry.chosen]
        slowness = sum(wall_s for wall_s, _ in ended) / sum(estimated for _, estimated in ended) if ended else 1.0
        now = time.monotonic()
        # read once: attempts end while a terminal's thread is here
        elapsed_s = {e.point.id: now - began_s for e in self.remaining() if (began_s := e.began_s) is not None}
        work = [max(0.0, slowness * e.estimate_s - elapsed_s.get(e.point.id, 0.0)) for e in self.remaining()]
        return makespan(work, jobs)

    async def run(self, jobs: int) -> None:
        """Make attempts until every point that is taken is done, or was tried often enough.

        Call it under the directory's lock. Raises RunError if an attempt cannot be recorded.
        """
        self.directory.clear_working()
        self._write()
        await compile_stale(module_folders(), lambda _: None)  # once, not in every process
        try:
            pool = self.cluster or Pool(self.directory.path, jobs)
            while waiting := [entry.point.id for entry in self.points.values() if entry.state is State.WAITING]:
                await pool.run(waiting, self._on_start, self._on_end)
                self._extend_searches()
                self._update_optional()
                self._write()
        finally:
            self.directory.clear_working()

    def _write(self) -> None:
        points = [entry.point for entry in self.points.values()]
        self.directory.write(self.study, points, None if self._mix else self.origin, self.inventory)

    def _on_start(self, point: str) -> None:
        entry = self.points[point]
        entry.state, entry.began_s = State.RUNNING, time.monotonic()
        self.on_change(entry)

    def _on_end(self, end: AttemptEnd) -> bool:
        entry = self.points[end.point]
        before, entry.attempts = entry.attempts, self.directory.attempts(end.point)
        entry.new_attempts += [attempt for attempt in entry.attempts if attempt not in before]
        is_lost = end.is_lost and len(entry.attempts) == len(before)
        entry.lost_tries += is_lost
        entry.loss_reason = "" if not is_lost else "killed" if end.exit_code < 0 else end.message
        entry.state, entry.began_s = self._state(entry), None
        self.on_change(entry)
        return entry.state is State.WAITING


def require_platform(study: StudyDescription, runs: Path) -> UmlKernel | None:
    """Check that the machine can make the runs; returns the virtual kernel, if the study is of virtual time.

    Raises MachineError, PlanError, DescriptionError, UsageError.
    """
    for c in study.configurations:
        require_runnable(run_request(c.network, c.experiment, study.backend, study.platform), runs)
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
