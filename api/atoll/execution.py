# SPDX-License-Identifier: Apache-2.0
"""Running an experiment from a script or a notebook.

The work is done by a thread with an event loop of its own, because a notebook's own loop is busy. Its processes and
kernels end with it.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from atoll.recordings import Run
from atoll_core.description.loader import DescriptionFile
from atoll_core.errors import RunError, UsageError
from atoll_core.events.events import StepBegun
from atoll_core.plan.plan import Backend
from atoll_core.platforms import HARDWARE, MININET, VIRTUAL, LabTarget
from atoll_emulation.this_machine.core_pinning import claimed_core
from atoll_emulation.this_machine.host_requirements import require_virtual_machine
from atoll_studies.study import setting_argument
from atoll_studies.sweeping.live_attempt import run_on_daemon
from atoll_testbed.preflight.requirements import require_machine_for, require_runnable
from atoll_testbed.run.postprocess import compress_and_analyse
from atoll_testbed.run.run_request import RunOptions, RunRequest, create_run
from atoll_testbed.virtual.virtual_run import measure_in_kernel

Platform = Literal["virtual", "mininet", "hardware"]
Event = dict[str, Any]


def run(
    experiment: str | Path,
    *,
    on: Platform = "virtual",
    settings: Mapping[str, Any] | None = None,
    runs: str | Path = "runs",
    inventory: str | Path | None = None,
    backend: Literal["engine", "tc"] | None = None,
) -> Run:
    """Run an experiment and return the run, whatever its verdict. Ctrl-C ends it, and all that it started.

    ``settings``: override values of the description by their keys, as ``--set`` does:
    ``{"duration": "30 s", "tcp.congestion_control": "bbr", "seed": 2}``. ``runs``: the parent of the run directory.
    ``inventory``: the machines, on hardware. ``backend``: the link emulator; default: tc in virtual time, else the
    engine. Raises AtollError: DescriptionError with every mistake of the description, RunError if the run fails.
    """
    with start(experiment, on=on, settings=settings, runs=runs, inventory=inventory, backend=backend) as running:
        return running.result()


def start(
    experiment: str | Path,
    *,
    on: Platform = "virtual",
    settings: Mapping[str, Any] | None = None,
    runs: str | Path = "runs",
    inventory: str | Path | None = None,
    backend: Literal["engine", "tc"] | None = None,
) -> "RunningExperiment":
    """Start an experiment, to follow its events; parameters and errors as for :func:`run`.

    Use it in a ``with`` block, which cancels the run if it is left early:

        with atoll.start("examples/geo.yaml") as running:
            for event in running:
                print(event["type"], event.get("text", ""))
            run = running.result()
    """
    if on not in (VIRTUAL, MININET, HARDWARE):
        raise UsageError(f"on={on!r}: unknown platform; known platforms: virtual, mininet, hardware")
    if on == HARDWARE and inventory is None:
        raise UsageError("on='hardware': give inventory=, the path of the inventory file")
    if on != HARDWARE and inventory is not None:
        raise UsageError(f"on={on!r}: inventory is for hardware only; leave it out")
    file = DescriptionFile.read(
        Path(experiment), tuple(setting_argument(key, value) for key, value in (settings or {}).items())
    )
    link_backend = Backend(backend) if backend else Backend.TC if on == VIRTUAL else Backend.ENGINE
    request = RunRequest(*file.network_and_experiment(), on, RunOptions(link_backend))
    require_runnable(request, Path(runs))
    require_machine_for(on, link_backend)
    target = LabTarget(on, Path(inventory).absolute() if inventory else None)
    return RunningExperiment(request, file, target, Path(runs).resolve())


class RunningExperiment:
    """A run in progress. Iterate over it for its events (docs/api.md, each with a ``text`` if it has one)."""

    def __init__(self, request: RunRequest, file: DescriptionFile, target: LabTarget, runs_dir: Path) -> None:
        self._request = request
        self._file = file
        self._target = target
        self._runs_dir = runs_dir
        self._path: Path | None = None
        self._error: BaseException | None = None
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._work = self._loop.create_task(self._execute())
        self._thread = threading.Thread(target=self._run_loop, name=f"atoll {request.experiment.name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[Event]:
        """Yield the events until the run has ended. An event is yielded once."""
        while (event := self._events.get()) is not None:
            yield event
        self._events.put(None)  # for the next iteration

    def result(self) -> Run:
        """Wait for the end of the run, and return it. Raises RunError if it failed or was cancelled."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        if self._path is None:
            raise RunError("the run ended without a run directory")
        return Run(self._path)

    def cancel(self) -> None:
        """End the run, and wait until nothing of it is left but its directory. It may have ended already."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._work.cancel)
            self._thread.join()

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._work)
        except asyncio.CancelledError:
            data_text = f"; its data are in {self._path}" if self._path else ""
            self._error = RunError(f"the run was cancelled{data_text}")
        except BaseException as error:  # noqa: BLE001 - raised by result()
            self._error = error
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._events.put(None)

    async def _execute(self) -> None:
        if self._target.platform == VIRTUAL:
            await self._in_virtual_time()
        else:
            await run_on_daemon(self._target, self._file, self._request.options, self._runs_dir, self._on_event)

    async def _in_virtual_time(self) -> None:
        kernel = require_virtual_machine()
        directory = create_run(self._runs_dir, self._request, time.time_ns())
        self._path = directory.path
        with claimed_core() as core:
            await measure_in_kernel(directory, self._request, kernel, core, self._events.put)
        self._events.put(StepBegun("analyse").to_line())
        await compress_and_analyse(directory)

    def _on_event(self, event: Event) -> None:
        if event["type"] == "run":
            self._path = Path(event["run_dir"])
        self._events.put(event)
