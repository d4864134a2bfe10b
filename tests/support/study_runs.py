# SPDX-License-Identifier: Apache-2.0
"""Made-up runs of studies, for tests of what is made of them."""

from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_studies.study_directory import Attempt, Provenance, StudyDirectory

HERE = Provenance("abc", "virtual", "7.2.12-atoll", "seccomp", "7.2.12-0123456789ab")


def record(
    directory: StudyDirectory,
    point: str,
    outcome: str,
    origin: Provenance = HERE,
    goodput: float | None = None,
    **figures: Any,
) -> None:
    """Add an attempt as a worker does; ``goodput`` and ``figures``: of its summary."""
    made = directory.working / point
    made.mkdir(parents=True)
    directory.point_path(point).mkdir(parents=True, exist_ok=True)
    summary: dict[str, Any] = dict.fromkeys(Summary.__annotations__)
    summary |= {"links": {}, "terrestrial_rtt_ms": {}, "changes": [], "channels": 0, "ping_sent": 0}
    RunDir(made).write_manifest({"outcome": "completed"})
    RunDir(made).write_summary({**summary, "goodput_mbit_s": goodput, **figures})
    number = len(directory.attempts(point)) + 1
    kept = directory.point_path(point) / f"20260102T030405Z-{number}"
    message = "" if outcome.startswith("valid") else "late"
    directory.add_attempt(made, point, Attempt(kept, outcome, message, 10.0, origin))
