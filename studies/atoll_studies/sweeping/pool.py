# SPDX-License-Identifier: Apache-2.0
"""Run attempts as processes of their own, several at a time. No port is opened."""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_core.errors import RunError
from atoll_studies.study_directory import NoAttemptError

_LAST_LINES = 10  # of a worker's standard error: several for a DescriptionError or a traceback
_POLL_S = 1.0  # between two looks at how many there may be: workers of a cluster come and go
_END_TIMEOUT_S = 60.0  # for a process to end after SIGTERM: a lab of real time takes itself down


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How the process of an attempt ended: with an attempt that was added, or before."""

    point: str
    exit_code: int  # 0, that of NoAttemptError, or less than 0: minus the signal that killed it
    message: str  # its last lines on standard error

    @property
    def is_lost(self) -> bool:
        """Whether its end tells of no attempt: killed, for want of memory, say; or the run did not begin."""
        return self.exit_code != 0


Attempt = Callable[[str], Coroutine[Any, Any, AttemptEnd]]
"""Makes an attempt at a point; cancelled, it ends what it started."""


async def attempt_all(
    points: Iterable[str],
    attempt: Attempt,
    jobs: Callable[[], Awaitable[int]],
    on_start: Callable[[str], None],
    on_end: Callable[[AttemptEnd], bool],
) -> None:
    """Make attempts at the points in their order, ``jobs`` at a time. ``on_end`` returns whether one is tried again.

    Raises RunError if an attempt cannot be recorded.
    """
    queue = deque(points)
    running: set[asyncio.Task[AttemptEnd]] = set()
    try:
        while queue or running:
            while queue and len(running) < await jobs():
                point = queue.popleft()
                on_start(point)
                running.add(asyncio.create_task(attempt(point)))
            done, running = await asyncio.wait(running, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                end = task.result()
                if end.exit_code > 0 and end.exit_code != NoAttemptError.exit_code:
                    raise RunError(end.message or f"an attempt at point {end.point} could not be recorded")
                if on_end(end):
                    queue.append(end.point)
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)


class Pool:
    """Makes attempts as processes of this machine.

    The processes die with this one, even after ``kill -9``, and what they started dies with them. Signals of the
    terminal do not reach them: cancelled, :meth:`run` ends them.
    """

    def __init__(self, study: Path, jobs: int) -> None:
        self._study = study
        self._jobs = jobs

    async def run(
        self, points: Iterable[str], on_start: Callable[[str], None], on_end: Callable[[AttemptEnd], bool]
    ) -> None:
        """Make attempts at the points, as :func:`attempt_all` does."""

        async def jobs() -> int:
            return self._jobs

        await attempt_all(points, self._attempt, jobs, on_start, on_end)

    async def _attempt(self, point: str) -> AttemptEnd:
        process = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL"),
            *(sys.executable, "-m", "atoll_studies.sweeping.worker", str(self._study), point),
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
                async with asyncio.timeout(_END_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
            raise
        return AttemptEnd(point, process.returncode or 0, last_lines(errors))


def last_lines(errors: bytes) -> str:
    """The end of a worker's standard error."""
    lines = errors.decode(errors="replace").strip().splitlines()
    return "\n".join(lines[-_LAST_LINES:])
