# SPDX-License-Identifier: Apache-2.0
"""Run attempts as processes of their own, several at a time. No port is opened."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from atoll_core.errors import RunError
from atoll_studies.study_directory import NoAttemptError

_LAST_LINES = 10  # of a worker's standard error: several for a DescriptionError or a traceback
_END_S = 60.0  # for a process that was asked to end: a lab of real time takes itself down


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process of an attempt ended: with an attempt that was added, or before."""

    point: str
    exit_code: int  # 0, that of NoAttemptError, or less than 0: minus the signal that killed it
    message: str  # its last lines on standard error

    @property
    def lost(self) -> bool:
        """Whether there is no attempt: killed, by the kernel for want of memory, say; or the run did not begin."""
        return self.exit_code != 0


class Pool:
    """Makes attempts at points until none is left.

    The processes die with this one, even after ``kill -9``, and what they started dies with them. Signals of the
    terminal do not reach them: cancelled, :meth:`run` ends them.
    """

    def __init__(self, study: Path, jobs: int) -> None:
        self._study = study
        self._jobs = jobs
        self._queue: deque[str] = deque()

    async def run(
        self, points: Iterable[str], on_start: Callable[[str], None], on_end: Callable[[Ended], bool]
    ) -> None:
        """Make attempts at the points in their order. ``on_end`` returns whether the point is tried again, at the end.

        Raises RunError if an attempt cannot be recorded.
        """
        self._queue = deque(points)
        running: dict[asyncio.Task[Ended], str] = {}
        try:
            while self._queue or running:
                while self._queue and len(running) < self._jobs:
                    point = self._queue.popleft()
                    on_start(point)
                    running[asyncio.create_task(self._attempt(point))] = point
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del running[task]
                    ended = task.result()
                    if ended.exit_code > 0 and ended.exit_code != NoAttemptError.exit_code:
                        raise RunError(ended.message or f"an attempt at point {ended.point} could not be recorded")
                    if on_end(ended):
                        self._queue.append(ended.point)
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.gather(*running, return_exceptions=True)

    async def _attempt(self, point: str) -> Ended:
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL"),
            *(sys.executable, "-m", "atoll_studies.worker", str(self._study), point),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _, errors = await process.communicate()
        except asyncio.CancelledError:
            process.terminate()
            try:
                async with asyncio.timeout(_END_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
            raise
        lines = errors.decode(errors="replace").strip().splitlines()
        return Ended(point, process.returncode or 0, "\n".join(lines[-_LAST_LINES:]))
