# SPDX-License-Identifier: Apache-2.0
"""Load a run's points into a database after the run, at their instants or aligned with other runs."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.directory import COMPLETED, RUNNING
from atoll_analysis.run_directory.metrics_spool import SPOOL, SpoolTail
from atoll_core.errors import RunDirError
from atoll_dashboards.influx.influx_sink import PointCounts, WriteLines, WriteMessage, batches, write_accepted

ALIGNED_NS = 1_767_225_600_000_000_000
"""2026-01-01 00:00 UTC: where the measurement of an aligned run begins. Virtual time begins there, too."""


class Times(StrEnum):
    """The time stamps that a run's points get."""

    RECORDED = "recorded"  # of the wall clock
    ALIGNED = "aligned"  # the measurement begins at ALIGNED_NS


def loadable(
    paths: Iterable[Path], times: Times | None
) -> tuple[list[tuple[RunDir, Times]], list[tuple[Path, str, bool]]]:
    """Return the runs with the time stamps of their points, and the runs left out. No database is contacted.

    Of a run left out: its path, the reason, and whether it has points.

    ``times``: for all of them; None: each run's default. Raises RunDirError, a line for each path: when one is no run,
    or when each of them has no points or cannot be aligned.
    """
    loaded: list[tuple[RunDir, Times]] = []
    skipped: list[tuple[Path, str, bool]] = []
    mistakes: list[str] = []
    for path in paths:
        try:
            run_dir = RunDir.open(path)
            run_times = times or default_times(run_dir)
            reason = _no_points_reason(run_dir)
        except RunDirError as error:
            mistakes.append(str(error))
            continue
        if reason:
            skipped.append((path, reason, False))
            continue
        try:
            shift_ns(run_dir, run_times)
        except RunDirError as error:
            skipped.append((path, str(error).removeprefix(f"{run_dir.path}: "), True))
        else:
            loaded.append((run_dir, run_times))
    if mistakes or not loaded:
        raise RunDirError("\n".join([*mistakes, *(f"{path}: {reason}" for path, reason, _ in skipped)]))
    return loaded, skipped


def _no_points_reason(run_dir: RunDir) -> str | None:
    """Return why a run has no points, or None. Raises RunDirError when its spool cannot be read."""
    if (run_dir.path / SPOOL).exists():
        SpoolTail(run_dir.path / SPOOL).close()
        return None
    manifest = run_dir.manifest()
    if not manifest.get("metrics", True):
        return "has no metrics, because it was made with --no-metrics; make a new run"
    if manifest.get("outcome") == RUNNING:
        return "has no metrics yet: the run is in progress, or was killed before the measurement"
    if manifest.get("outcome") == COMPLETED:
        return f"has no metrics any more: {SPOOL} was deleted; restore it from a copy"
    return f"has no metrics: it ended before any were recorded ({manifest.get('outcome')})"


def load_run(
    run_dir: RunDir, write: WriteLines, times: Times | None = None, report: WriteMessage = lambda _: None
) -> PointCounts:
    """Write all points of a run; points already in the database are unchanged. Reports the reasons for refused lines.

    ``times``: by default as recorded, of a run in virtual time aligned. Raises RunDirError, DatabaseError.
    """
    tail = SpoolTail(run_dir.path / SPOOL)
    try:
        offset_ns = shift_ns(run_dir, times or default_times(run_dir))
        counts = PointCounts()
        for lines in batches(tail.frames()):
            write_accepted(write, [shifted(lines, offset_ns)], counts, report)
    finally:
        tail.close()
    return counts


def default_times(run_dir: RunDir) -> Times:
    """Return a run's default: aligned in virtual time, where all clocks begin at the same instant; else as recorded."""
    return Times.ALIGNED if run_dir.manifest().get("virtual") else Times.RECORDED


def shift_ns(run_dir: RunDir, times: Times) -> int:
    """Return the shift of the run's time stamps. Raises RunDirError when there is no measurement to align."""
    manifest = run_dir.manifest()
    virtual, host = manifest.get("virtual"), manifest.get("host")
    if times is Times.RECORDED and not virtual:
        return 0
    if times is Times.RECORDED and virtual and host:
        return int(host["started_ns"]) - int(virtual["clock"]["start_ns"])
    window = next((event for event in run_dir.events() if event["type"] == "window"), None)
    if times is Times.ALIGNED and window:
        return ALIGNED_NS - int(window["start_ns"])
    aligned, recorded = "its measurement did not end, so it cannot be aligned", "its manifest has no start time"
    if not window and virtual and not host:
        raise RunDirError(f"{run_dir.path}: {aligned}, and {recorded}; the times of its points are unknown")
    if times is Times.ALIGNED:
        raise RunDirError(f"{run_dir.path}: {aligned}; use --times recorded")
    raise RunDirError(f"{run_dir.path}: {recorded}; use --times aligned")


def shifted(lines: bytes, offset_ns: int) -> bytes:
    """Shift the time stamps of lines (after the last space)."""
    if offset_ns == 0:
        return lines
    points = (line.rpartition(b" ") for line in lines.removesuffix(b"\n").split(b"\n"))
    return b"".join(b"%b %d\n" % (point, int(stamp) + offset_ns) for point, _, stamp in points)
