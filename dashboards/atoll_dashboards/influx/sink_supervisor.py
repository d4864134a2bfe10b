# SPDX-License-Identifier: Apache-2.0
"""Supervise the sink process of a run: start it, restart it if it is killed, end it."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError, UsageError
from atoll_core.plural import counted
from atoll_dashboards.influx.influx_settings import influx_settings

END_TIMEOUT_S = 8.0
"""How long a run waits at its end for what is left: more than a database that is not there can take."""

_QUIET_WAIT_S = 1.0  # a longer wait is shown
_MOST_STARTS = 4  # of a sink that is killed: what kills it three times more, for want of memory say, would do so again
_RESTART_PAUSE_S = 1.0

WriteLine = Callable[[str], None]


@contextlib.asynccontextmanager
async def sink_for(run: Path, note: WriteLine, show: WriteLine) -> AsyncGenerator["_SinkSupervisor"]:
    """Copy the run's points into the user's database, if one is set, during the block; ``points`` is set after it.

    ``note`` gets problems, ``show`` a line when the end takes longer. The spool has ended when the block does. A
    failure of database or sink is no error of the run.
    """

    def report(text: str) -> None:
        with contextlib.suppress(AtollError):  # where the run's own files cannot be written, it ends for that reason
            note(text)

    try:
        settings = influx_settings()
    except UsageError as error:
        report(f"metrics are not sent to a database: {error}")
        settings = None
    supervisor = _SinkSupervisor(run, report)
    if settings is None:
        yield supervisor
        return
    copying = asyncio.create_task(supervisor.copy_all())
    try:
        yield supervisor
    finally:
        supervisor.end()
        await _wait(copying, f"waiting until {settings} has stored the last metrics, {END_TIMEOUT_S:g} s at most", show)
        if not copying.done():
            report(f"metrics: the database is too slow; `atoll metrics load {run}` stores the remaining points later")
        copying.cancel()
        await asyncio.wait([copying])


async def _wait(copying: asyncio.Task[None], text: str, show: WriteLine) -> None:
    try:
        await asyncio.wait([copying], timeout=_QUIET_WAIT_S)
        if not copying.done():
            show(text)
            await asyncio.wait([copying], timeout=END_TIMEOUT_S - _QUIET_WAIT_S)
    except asyncio.CancelledError:
        copying.cancel()
        await asyncio.wait([copying])
        raise


class _SinkSupervisor:
    """The sink's process and its successors. ``points``: those in the database, as a sink reports at its end."""

    def __init__(self, run: Path, report: WriteLine) -> None:
        self.points = 0
        self._run = run
        self._report = report
        self._ended = asyncio.Event()
        self._process: Process | None = None

    def end(self) -> None:
        """Signal the end of the spool: the sink delivers what is left and ends."""
        self._ended.set()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def copy_all(self) -> None:
        """Run sinks until one has copied the whole spool; kills the running one when cancelled.

        One that was killed leaves neither gap nor duplicates: the next begins at the beginning of the spool, and what
        is written again is the same points.
        """
        remedy = f"`atoll metrics load {self._run}` stores the points"
        for start in range(1, _MOST_STARTS + 1):
            try:
                code, done = await self._run_sink()
            except OSError as error:
                self._report(f"metrics: the sink cannot be started: {error.strerror}; {remedy}")
                return
            if done or code == 0:
                return
            if code > 0:  # for a reason that it has printed, which stays
                self._report(f"metrics: the sink has ended; {remedy}")
                return
            killed = f"metrics: the sink was killed by signal {-code}"
            if start == _MOST_STARTS:
                self._report(f"{killed} for the {_MOST_STARTS}th time and is not restarted; {remedy}")
                return
            self._report(f"{killed}; it is restarted and sends all points again from the first")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RESTART_PAUSE_S):
                    await self._ended.wait()

    async def _run_sink(self) -> tuple[int, bool]:
        """Start a sink and pass on its lines; its exit code, and whether it has copied all that it could."""
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "atoll_dashboards.influx.influx_sink",
            str(self._run),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        if self._ended.is_set():
            self.end()
        done = False
        try:
            async for text in process.stdout or ():  # always a pipe
                if text.endswith(b"\n"):  # not cut by its death
                    done |= self._report_line(json.loads(text))
            return await process.wait(), done
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _report_line(self, line: dict[str, Any]) -> bool:
        """Report a line of the sink; returns whether it is the last one."""
        match line["type"]:
            case "problem":
                self._report(f"metrics: {line['message']}")
            case "recovered":
                self._report("metrics: the database accepts points again; the points of the meantime were delivered")
            case "done":
                self.points = line["delivered"]
                if line["unfit"]:
                    self._report(f"metrics: the database refused {counted(line['unfit'], 'point')}")
                if line["left"]:
                    remaining = counted(line["left"], "point")
                    self._report(
                        f"metrics: not in a database yet: {remaining}; `atoll metrics load {self._run}` stores them"
                    )
                return True
            case _:
                pass
        return False
