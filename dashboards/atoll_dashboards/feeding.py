# SPDX-License-Identifier: Apache-2.0
"""The sink of a run as the run sees it: a process that is started, and told when the spool has ended."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from atoll.model.errors import AtollError, UsageError
from atoll_dashboards.influx_settings import influx_settings

_END_S = 8.0  # to deliver what is left: more than a database that is not there can take


@contextlib.asynccontextmanager
async def feeding(run: Path, note: Callable[[str], None]) -> AsyncGenerator[None]:
    """While the block lasts, the run's points go into the user's database, if one is set; ``note`` gets what is wrong.

    The spool has ended when the block does. Nothing that happens to database or sink is an error of the run.
    """

    def tell(text: str) -> None:
        with contextlib.suppress(AtollError):  # where the run's own files cannot be written, it ends for that reason
            note(text)

    try:
        settings = influx_settings()
    except UsageError as error:
        tell(f"metrics go into no database: {error}")
        settings = None
    if settings is None:
        yield
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "atoll_dashboards.sink",
        str(run),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    hearing = asyncio.create_task(_hear(process, run, tell))
    try:
        yield
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(hearing, _END_S)
        except TimeoutError:
            tell(f"metrics: the database is too slow to take the rest now; `atoll metrics load {run}` does it later")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _hear(process: asyncio.subprocess.Process, run: Path, note: Callable[[str], None]) -> None:
    """Pass on what the sink says; returns when it has ended."""
    done = False
    async for text in process.stdout or ():  # always a pipe
        line: dict[str, Any] = json.loads(text)
        match line["type"]:
            case "problem":
                note(f"metrics: {line['message']}")
            case "recovered":
                note("metrics: the database takes points again; those since are delivered")
            case "done":
                done = True
                if line["left"]:
                    note(f"metrics: {line['left']} points are in no database yet: `atoll metrics load {run}`")
            case _:
                pass
    if await process.wait() and not done:
        note(f"metrics: the sink has ended; `atoll metrics load {run}` delivers the points")
