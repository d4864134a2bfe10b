# SPDX-License-Identifier: Apache-2.0
"""Compress captures after the measurement, then run analysis and report in separate processes.

The libraries for tables and plots are large; the daemon does not load them. Both processes are started at once and load
theirs while captures are compressed, and the report's while the run is analysed.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import replace_text
from atoll_core.errors import RunError
from atoll_hosts.binary import find_binary


async def compress_and_analyse(run_dir: RunDir) -> dict[str, Any]:
    """Compress the captures, analyse the run, write its report; returns the summary. Raises RunError, MachineError."""
    binary = str(find_binary())
    async with (
        _started_module("atoll_analysis", run_dir, "--binary", binary) as analysis,
        _started_module("atoll_dashboards.report.report", run_dir) as report,
    ):
        await asyncio.to_thread(run_dir.compress_captures)
        await _run_to_end("atoll_analysis", run_dir, analysis)
        await _run_to_end("atoll_dashboards.report.report", run_dir, report)
    summary: dict[str, Any] = json.loads((run_dir.path / "summary.json").read_text())
    return summary


@contextlib.asynccontextmanager
async def _started_module(module: str, run_dir: RunDir, *options: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start a module, which loads its libraries and waits for a line; it has ended after the block."""
    process = await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL"),  # it does not outlive its parent, even after `kill -9`
        sys.executable,
        "-m",
        module,
        str(run_dir.path),
        "--after-line",
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _run_to_end(module: str, run_dir: RunDir, process: asyncio.subprocess.Process) -> None:
    """Let a module begin, and wait for its end. Raises RunError."""
    _, errors = await process.communicate(b"\n")
    if process.returncode:
        raise _failure(module, run_dir, process.returncode, errors.decode(errors="replace").strip())


def _failure(module: str, run_dir: RunDir, exit_code: int, output: str) -> RunError:
    """An error of one line; the full output, usually a traceback, is written to the run's logs."""
    lines = output.splitlines() or [f"exit code {exit_code}"]
    log_text = ""
    if len(lines) > 1:
        log = run_dir.logs / f"{module}.err"
        try:
            replace_text(log, output + "\n")
            log_text = f"; its full output is in {log}"
        except RunError as error:
            log_text = f"; {error}"
    return RunError(f"{module} failed: {lines[-1]}{log_text}")
