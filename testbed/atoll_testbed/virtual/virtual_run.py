# SPDX-License-Identifier: Apache-2.0
"""A run in virtual time: start a kernel in which the run's raw data are recorded, follow its progress, end it.

Inside the kernel the run directory has a fixed path, and ``guest_main`` works there as the daemon would. Progress is
read as lines of a file. After the last line or an error the kernel is ended, and with it everything inside.
"""

import asyncio
import contextlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.directory import COUNTERS_FILE, PROGRESS_FILE, RUNNING
from atoll_controller.planner.virtual_cost import memory
from atoll_core.errors import AtollError, RunError
from atoll_core.events.events import Progress
from atoll_core.units import Size
from atoll_emulation.uml.boot import RunningKernel, VirtualClock, start_in_uml
from atoll_emulation.uml.guest_init import OUTPUT
from atoll_emulation.uml.kernel import UmlKernel
from atoll_hosts.binary import VARIABLE, find_binary
from atoll_testbed.run.run_request import RunRequest
from atoll_testbed.virtual.precompile import compile_stale, module_folders

TakeLine = Callable[[dict[str, Any]], None]

STUCK_TIMEOUT_S = 120.0
"""A kernel without progress for this wall time is aborted, as a program in it computes without end. A link writes every
100 ms of virtual time. Time in which other programs have the processor does not count."""
_STUCK_PER_CHANNEL_S = 0.01  # all may connect at one instant of virtual time: 5 ms each through two PEPs, busy machine

_MAX_OTHER_STEPS_S = 600  # virtual time for steps other than the load; the sum of their limits is less

_POLL_S = 0.1
_SILENCE_S = 5.0  # after so long without progress it is measured how long the kernel waits for a processor
_MIN_PACE_S = 1.0  # of measuring: before that the pace is a guess
_MEMORY_MB = 2048  # the host allocates only the part in use

# None of the caller's variables, which must not affect a run. Nor must the path of this installation: Python would
# write bytecode there, and the kernel draws a random number for each directory that is written to.
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}


def stuck_timeout_s(channels: int) -> float:
    """The time by the machine's clock after which a kernel without progress is taken to hang."""
    return STUCK_TIMEOUT_S + _STUCK_PER_CHANNEL_S * channels


async def measure_in_kernel(
    run_dir: RunDir,
    request: RunRequest,
    kernel: UmlKernel,
    core: int,
    progress: TakeLine,
    *,
    stuck_s: float | None = None,
) -> None:
    """Record the raw data of a run, whose request is in ``run_dir``, too, in a new kernel on CPU ``core``.

    ``progress`` takes the lines that a daemon would stream; live lines also have ``wall_s``, ``factor`` and ``left_s``.
    Raises RunError, LabError or MachineError, and records the reason; cancellation is recorded, too. In any case, no
    process of the kernel is left, and captures are kept. Call it from the main thread: the kernel ends with the thread
    that starts it.
    """
    experiment = request.experiment
    clock = VirtualClock(experiment.seed, limit_s=math.ceil(experiment.duration.s) + _MAX_OTHER_STEPS_S)
    facts: dict[str, Any] = {"kernel": kernel.release, "mode": kernel.mode, "build": kernel.executable.parent.name}
    facts["clock"] = asdict(clock)
    follower = _Follower(run_dir, progress, experiment.duration.s, stuck_s or stuck_timeout_s(experiment.max_channels))
    host = {"kernel": platform.release(), "cpus": os.cpu_count(), "core": core, "root": os.geteuid() == 0}
    try:
        facts["stale_modules"] = await compile_stale(module_folders(), lambda text: progress(Progress(text).to_line()))
        run_dir.update_manifest({"virtual": facts})
        run_dir.hide_from_guest(inside_manifest(run_dir.manifest()))
        with start_in_uml(
            [sys.executable, "-P", "-m", "atoll_testbed.virtual.guest_main", str(OUTPUT)],
            run_dir.path,
            kernel=kernel,
            clock=clock,
            cpu=core,
            memory_mb=kernel_memory_mb(memory(request.network, experiment)),
            environment=_ENVIRONMENT | {VARIABLE: str(find_binary())},
            directory=Path.cwd(),
        ) as running:
            await follower.follow(running)
    except asyncio.CancelledError:
        with contextlib.suppress(RunError):
            _conclude(run_dir, f"cancelled at step {follower.step}", host | follower.times())
        raise
    except AtollError as error:
        try:
            _conclude(run_dir, f"failed at step {follower.step}: {error}", host | follower.times())
        except RunError as unwritten:
            if not follower.has_error:  # on a full disk, the process inside cannot report the error either
                raise unwritten from error
        raise
    _conclude(run_dir, None, host | follower.times())


def kernel_memory_mb(estimated: Size) -> int:
    """The memory of the kernel in MiB: at least the default, and twice the estimate, in whole GiB."""
    return max(_MEMORY_MB, math.ceil(2 * estimated.bytes / 2**30) * 1024)


def inside_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The values inside the kernel for keys of a manifest that differ between runs of the same experiment.

    Paths and line numbers of descriptions, settings of the command line and the revision would take memory inside, and
    the instants at which a program requests memory change the order in which others continue.
    """
    experiment = _without_lines(manifest["experiment"]) | {"file": "experiment.yaml", "lab": "lab.yaml", "given": []}
    network = _without_lines(manifest["network"])
    if all(box["program"] is None for box in network["boxes"]):  # a program's folder is that of the lab's file
        network["file"] = "lab.yaml"
    return {"experiment": experiment, "network": network, "revision": None, "virtual": None}


def _without_lines(described: Any) -> Any:
    """A description as JSON without its line numbers: the keys ``line``, ``..._line`` and ``lines``."""
    if isinstance(described, dict):
        keys = cast("dict[str, Any]", described)
        empty_by_word: dict[str, Any] = {"line": 0, "lines": []}
        return {key: empty_by_word.get(key.rpartition("_")[2], _without_lines(keys[key])) for key in keys}
    if isinstance(described, list):
        return [_without_lines(value) for value in cast("list[Any]", described)]
    return described


def _conclude(run_dir: RunDir, outcome: str | None, host: dict[str, Any]) -> None:
    """Complete the manifest: the outcome, if the process inside has not written it, and the host's part.

    Then record the files. Raises RunError.
    """
    recorded = str(run_dir.manifest()["outcome"])
    final_outcome = outcome if outcome is not None and recorded == RUNNING else _host_path_text(recorded, run_dir)
    run_dir.restore_manifest({"outcome": final_outcome, "host": host})
    run_dir.write_checksums()


def _host_path_text(text: str, run_dir: RunDir) -> str:
    """A message from inside with the run directory's path outside."""
    return text.replace(f"{OUTPUT}/", f"{run_dir.path}/")


class _Follower:
    """Reads the progress of the run inside until its last line."""

    def __init__(self, run_dir: RunDir, progress: TakeLine, duration_s: float, stuck_s: float) -> None:
        self.step = "boot"
        self.has_error = False  # the last line was an error
        self._dir = run_dir
        self._progress = progress
        self._duration_s = duration_s
        self._first_live: tuple[float, float] | None = None  # wall and virtual time of the first live line
        self._stuck_s = stuck_s
        self._start_ns = time.time_ns()
        self._start_s = time.monotonic()
        self._steps_s: dict[str, float] = {}
        self._progress_size = (0, self._start_s)  # bytes of progress, and since when so many
        self._waited_s: float | None = None  # that the kernel had waited for a processor when this was _SILENCE_S old
        self._lines = _new_lines(run_dir.path / PROGRESS_FILE)

    def times(self) -> dict[str, Any]:
        """Start and end by the host's clock, the duration until now, and the start of each step."""
        return {
            "started_ns": self._start_ns,
            "finished_ns": time.time_ns(),
            "wall_s": round(time.monotonic() - self._start_s, 3),
            "steps_s": self._steps_s,
        }

    async def follow(self, running: RunningKernel) -> None:
        """Wait for the end of the run. Raises its error."""
        self._progress(Progress("virtual kernel").to_line())
        while True:
            ended = crash = None
            try:
                ended = running.wait(0)
            except AtollError as error:
                crash = error
            for line in next(self._lines):
                if line["type"] == "done":
                    return
                self._on_line(line)
            if crash is not None:
                raise crash
            if ended is not None:
                code = f"exit code {ended[0]}{running.last_lines()}"
                raise RunError(f"the run inside the virtual kernel ended with {code}")
            self._raise_if_stuck(running)
            await asyncio.sleep(_POLL_S)

    def _on_line(self, line: dict[str, Any]) -> None:
        kind, wall_s = line["type"], time.monotonic() - self._start_s
        if kind == "error":
            self.has_error = True
            error = RunError(_host_path_text(line["message"], self._dir))
            error.exit_code = int(line["exit_code"])
            raise error
        if kind == "step":
            self.step = str(line["step"])
            self._steps_s[self.step] = round(wall_s, 3)
        elif kind == "live":
            line |= self._pace(float(line["elapsed_s"]), wall_s)
        self._progress(line)

    def _pace(self, elapsed_s: float, wall_s: float) -> dict[str, float]:
        """Further keys of a live line: wall time, virtual seconds per wall second, and remaining wall time."""
        self._first_live = self._first_live or (wall_s, elapsed_s)
        wall, virtual = wall_s - self._first_live[0], elapsed_s - self._first_live[1]
        if wall < _MIN_PACE_S or virtual <= 0:
            return {"wall_s": wall_s}
        factor = virtual / wall
        return {"wall_s": wall_s, "factor": factor, "left_s": max(0.0, self._duration_s - elapsed_s) / factor}

    def _raise_if_stuck(self, running: RunningKernel) -> None:
        files = (self._dir.path / PROGRESS_FILE, self._dir.path / COUNTERS_FILE, self._dir.path / "events.jsonl")
        size = sum(map(_size, files))
        now = time.monotonic()
        silent_s = now - self._progress_size[1]
        if size != self._progress_size[0]:
            self._progress_size, self._waited_s = (size, now), None
        elif self._waited_s is None:
            self._waited_s = running.waited_s() if silent_s > _SILENCE_S else None
        elif silent_s > self._stuck_s and silent_s > self._stuck_s + running.waited_s() - self._waited_s:
            msg = f"the virtual kernel made no progress for {self._stuck_s:g} s at step {self.step}"
            raise RunError(f"{msg}{running.last_lines()}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # not there yet, or taken away
        return 0


def _new_lines(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the JSON lines that were completed in a growing file since the last time."""
    file = None
    while file is None:
        try:
            file = path.open("rb")
        except (FileNotFoundError, PermissionError):  # not there yet, or for an instant nobody's but root's
            yield []
    with file:
        while True:
            begin = file.tell()
            complete, newline, _ = file.read().rpartition(b"\n")
            file.seek(begin + len(complete) + len(newline))  # an incomplete line is read again later
            yield [json.loads(line) for line in complete.splitlines()]
