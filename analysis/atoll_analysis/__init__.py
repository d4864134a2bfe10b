# SPDX-License-Identifier: Apache-2.0
"""From captures and logs to tables, figures and a verdict. Polars is loaded by the first analysis, not by importing."""

from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_core.errors import RunDirError


def analyse(run: RunDir, binary: Path) -> dict[str, Any]:
    """Build a run's tables, figures and verdict; write summary.json and return it (keys: atoll_analysis.summary).

    ``binary``: the atoll-host executable, which decodes captures. Raises RunDirError when there is nothing to analyse,
    as the captures were dropped, say, and RunError when a capture cannot be decoded or the disk is full; a run that was
    cut short is no error.
    """
    if "captures_dropped" in run.manifest():
        msg = f"{run.path}: its captures were deleted, so it cannot be analysed again; its tables and summary are kept"
        raise RunDirError(msg)
    from atoll_analysis.analyse_run import analyse_run

    return analyse_run(run, binary)
