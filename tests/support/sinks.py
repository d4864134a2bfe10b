# SPDX-License-Identifier: Apache-2.0
"""The sink that ``sink_for`` has started from this process, for tests that end it."""

import asyncio
import contextlib
import os
from pathlib import Path


async def sink_of(run: Path) -> int:
    """The process id of the sink that carries this run's spool, as soon as there is one."""
    while True:
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread or a child that has ended
                for pid in (thread / "children").read_text().split():
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    if b"atoll_dashboards.influx.influx_sink" in words and os.fsencode(run) in words:
                        return int(pid)
        await asyncio.sleep(0.01)
