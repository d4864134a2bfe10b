# SPDX-License-Identifier: Apache-2.0
"""Compress captures after the measurement, then run analysis and report in separate processes.

The libraries for tables and plots are large; the daemon does not load them.
"""

import asyncio
import json
import sys
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import replace_text
from atoll_core.errors import RunError
from atoll_hosts.binary import find_binary


async def compress_and_analyse(run_dir: RunDir) -> dict[str, Any]:
    """Compress the captures, analyse the run, write its report; returns the summary. Raises RunError, MachineError."""
    await asyncio.to_thread(run_dir.compress_captures)
    await _module("atoll_analysis", run_dir, "--binary", str(find_binary()))
    await _module("atoll_dashboards.report.report", run_dir)
    summary: dict[str, Any] = json.loads((run_dir.path / "summary.json").read_text())
    return summary


async def _module(module: str, run_dir: RunDir, *options: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL"),  # it does not outlive its parent, even after `kill -9`
        sys.executable,
        "-m",
        module,
        str(run_dir.path),
        *options,
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
        raise _failure(module, run_dir, process.returncode, errors.decode(errors="replace").strip())


def _failure(module: str, run_dir: RunDir, exit_code: int, output: str) -> RunError:
    """An error of one line; the full output, usually a traceback, is written to the run's logs."""
    lines = output.splitlines() or [f"exit code {exit_code}"]
    kept = ""
    if len(lines) > 1:
        log = run_dir.logs / f"{module}.err"
        try:
            replace_text(log, output + "\n")
            kept = f"; its full output is in {log}"
        except RunError as error:
            kept = f"; {error}"
    return RunError(f"{module} failed: {lines[-1]}{kept}")
