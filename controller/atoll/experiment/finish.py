# SPDX-License-Identifier: Apache-2.0
"""After the measurement: captures compressed, then analysis and report in processes of their own.

The libraries for tables and plots are heavy; the keeper stays small without them.
"""

import asyncio
import json
import sys
from typing import Any

from atoll.model.errors import RunError
from atoll.rundir import RunDir


async def compress_and_analyse(run_dir: RunDir) -> dict[str, Any]:
    """Compress the captures, analyse the run, write its report; returns the summary (RunError when it fails)."""
    await asyncio.to_thread(run_dir.compress_captures)
    await _module("atoll.analysis", run_dir)
    await _module("atoll_dashboards.report", run_dir)
    summary: dict[str, Any] = json.loads((run_dir.path / "summary.json").read_text())
    return summary


async def _module(module: str, run_dir: RunDir) -> None:
    process = await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL"),  # nothing outlives who started it, even by `kill -9`
        sys.executable,
        "-m",
        module,
        str(run_dir.path),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    if process.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"exit code {process.returncode}"
        msg = f"{module} failed: {why}; the raw data is in {run_dir.path}"
        raise RunError(msg)
