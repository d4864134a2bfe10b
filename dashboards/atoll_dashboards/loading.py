# SPDX-License-Identifier: Apache-2.0
"""A run's points into a database at any later time, at the instants they have or where runs lie side by side."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from atoll.model.errors import RunDirError
from atoll.rundir import RunDir
from atoll.rundir.spool import SPOOL, SpoolTail
from atoll_dashboards.sink import Tally, Writes, batches, write_fit

ALIGNED_NS = 1_767_225_600_000_000_000
"""2026-01-01 00:00 UTC: where the measurement of an aligned run begins. Virtual time begins there, too."""


class Times(StrEnum):
    """At which instants the points of a run are laid down."""

    RECORDED = "recorded"  # when it was made, by the wall clock
    ALIGNED = "aligned"  # as if every run's measurement had begun at ALIGNED_NS


def loadable(paths: Iterable[Path], times: Times | None) -> list[tuple[RunDir, Times]]:
    """The runs, and at which instants the points of each are laid down; no database is asked.

    ``times``: of all of them; None: as is usual for each. Raises RunDirError, a line for each path that is no run, has
    no points, or cannot be laid down so.
    """
    found: list[tuple[RunDir, Times]] = []
    wrong: list[str] = []
    for path in paths:
        try:
            run_dir = RunDir.open(path)
            how = times or usual_times(run_dir)
            SpoolTail(run_dir.path / SPOOL).close()
            shift_ns(run_dir, how)
        except RunDirError as error:
            wrong.append(str(error))
        else:
            found.append((run_dir, how))
    if wrong:
        raise RunDirError("\n".join(wrong))
    return found


def load_run(
    run_dir: RunDir,
    database: Writes,
    times: Times | None = None,
    tell: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Tally:
    """Write all points of a run; those that are there already stay as they are. Lines that are unfit are told.

    ``times``: by default as recorded, of a run in virtual time aligned. Raises RunDirError, DatabaseError.
    """
    tail = SpoolTail(run_dir.path / SPOOL)
    try:
        by_ns = shift_ns(run_dir, times or usual_times(run_dir))
        tally = Tally()
        for lines in batches(tail.frames()):
            write_fit(database, shifted(lines, by_ns), tally, tell)
    finally:
        tail.close()
    return tally


def usual_times(run_dir: RunDir) -> Times:
    """Runs in virtual time all begin at the same instant of a clock of their own; others have been when they were."""
    return Times.ALIGNED if run_dir.manifest().get("virtual") else Times.RECORDED


def shift_ns(run_dir: RunDir, times: Times) -> int:
    """By how much the run's stamps are moved. Raises RunDirError when nothing was measured that could be aligned."""
    manifest = run_dir.manifest()
    if times is Times.ALIGNED:
        for event in run_dir.events():
            if event["type"] == "window":
                return ALIGNED_NS - int(event["start_ns"])
        raise RunDirError(
            f"{run_dir.path}: its measurement did not end, so it cannot be aligned; take --times recorded"
        )
    virtual, host = manifest.get("virtual"), manifest.get("host")
    if not virtual:
        return 0
    if not host:
        raise RunDirError(f"{run_dir.path}: it does not say when it was made; take --times aligned")
    return int(host["started_ns"]) - int(virtual["clock"]["start_ns"])


def shifted(lines: bytes, by_ns: int) -> bytes:
    """The lines with their stamps, which are what stands after the last space, moved."""
    if by_ns == 0:
        return lines
    return b"".join(_shifted(line, by_ns) for line in _lines(lines))


def _shifted(line: bytes, by_ns: int) -> bytes:
    point, _, stamp = line.rpartition(b" ")
    return b"%b %d\n" % (point, int(stamp) + by_ns)


def _lines(lines: bytes) -> Iterator[bytes]:
    yield from lines.removesuffix(b"\n").split(b"\n")
