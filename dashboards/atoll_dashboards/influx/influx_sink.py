# SPDX-License-Identifier: Apache-2.0
"""Write a run's spool into the database, in order: ``python -m atoll_dashboards.influx.influx_sink RUN``.

A separate process that reads the spool. The run never waits for it and receives only its few lines of output
(docs/contracts.md). It begins at the beginning of the spool and holds one batch. Writing points again changes nothing,
so an outage, a restart or a later ``atoll metrics load`` leaves neither gaps nor duplicates.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory.metrics_spool import SPOOL, SpoolTail
from atoll_core.errors import AtollError
from atoll_dashboards.influx.influx_client import Database, DatabaseError, RejectedError
from atoll_dashboards.influx.influx_settings import influx_settings

BATCH_BYTES = 1 << 20  # some 5000 lines, as InfluxDB advises
_POLL_S = 0.5
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 5.0
_NICENESS = 10
_MOST_REASONS = 10  # printed at most; a line that cannot be parsed is its own reason
_SHORTEST_SHARD_NS = 3600 * 10**9
_LONGEST_SERIES_BYTES = 65_535  # bytes that InfluxDB takes of measurement and tags (models.MaxKeyLength)

WriteMessage = Callable[[dict[str, Any]], None]

WriteLines = Callable[[bytes], None]
"""Writes whole lines (:meth:`Database.write`), or raises a DatabaseError."""


@dataclass(slots=True)
class PointCounts:
    """Numbers of points (lines) by outcome. ``rejected``: refused by the database for their content."""

    delivered: int = 0
    rejected: int = 0
    remaining: int = 0
    _reasons: set[str] = field(default_factory=set[str], compare=False, repr=False)

    def is_new(self, reason: str) -> bool:
        """Return whether a reason for refused lines is new; False after several reasons."""
        if reason in self._reasons or len(self._reasons) >= _MOST_REASONS:
            return False
        self._reasons.add(reason)
        return True


def batches(frames: Iterable[bytes], most_bytes: int = BATCH_BYTES) -> Iterator[bytes]:
    """Split frames into pieces of whole lines, in order, of at most ``most_bytes`` bytes (or one longer line)."""
    pending = b""
    for frame in frames:
        pending += frame
        while len(pending) > most_bytes:
            end = pending.rfind(b"\n", 0, most_bytes) + 1 or pending.find(b"\n") + 1
            yield pending[:end]
            pending = pending[end:]
    if pending:
        yield pending


def write_accepted(write: WriteLines, pieces: list[bytes], counts: PointCounts, report: WriteMessage) -> None:
    """Write pieces of whole lines in order; a piece leaves the list when its lines are counted.

    When lines are refused, ``report`` gets the reason unless the tally has it already. Their number is taken from the
    database's response, or else by halving the piece; points sent again change nothing. Raises DatabaseError;
    ``pieces`` then holds the remaining lines.
    """
    while pieces:
        lines = pieces[0]
        count = lines.count(b"\n")
        try:
            write(lines)
        except RejectedError as error:
            if count > 1 and not (error.dropped and error.dropped <= count and _message_covers_all(lines)):
                pieces[:1] = _halves(lines)
                continue
            if counts.is_new(error.reason):
                report({"type": "problem", "message": error.reason})
            rejected = min(error.dropped or 1, count)
            counts.rejected += rejected
            counts.delivered += count - rejected
        else:
            counts.delivered += count
        del pieces[0]


def _message_covers_all(lines: bytes) -> bool:
    """Return whether the database's message about dropped lines can cover all of them.

    The message is about one shard. Shards are of whole hours by default. That of 1.8 is about the lines that it can
    parse; of ours it cannot parse those with too long a series.
    """
    points = lines.removesuffix(b"\n").split(b"\n")
    hours = {int(point.rpartition(b" ")[2]) // _SHORTEST_SHARD_NS for point in points}
    return len(hours) == 1 and max(map(len, points)) <= _LONGEST_SERIES_BYTES


def _halves(lines: bytes) -> tuple[bytes, bytes]:
    """Split two lines or more into two pieces of about the same size."""
    end = len(lines) - 1
    middle = lines.find(b"\n", len(lines) // 2, end) + 1 or lines.rfind(b"\n", 0, end) + 1
    return lines[:middle], lines[middle:]


class Sink:
    """Copies a spool into a database until the spool has ended.

    ``ended``: set when nothing more will be written. ``report``: gets a message when something fails, and when it
    works again.
    """

    def __init__(self, tail: SpoolTail, write: WriteLines, ended: threading.Event, report: WriteMessage) -> None:
        self._tail = tail
        self._write = write
        self._ended = ended
        self._report = report
        self._last_error = ""
        self.counts = PointCounts()

    def copy_all(self) -> None:
        """Return when all is delivered, or when the spool has ended and the database accepts nothing.

        Raises RunDirError when the spool is damaged.
        """
        while True:
            is_last = self._ended.is_set()
            for lines in batches(self._tail.frames()):
                pieces = [lines]
                if not self._deliver(pieces):
                    self.counts.remaining += sum(piece.count(b"\n") for piece in pieces)
            if is_last:
                return
            self._ended.wait(_POLL_S)

    def _deliver(self, pieces: list[bytes]) -> bool:
        """Write a batch, with retries until the spool has ended; False: the lines in ``pieces`` remain."""
        if self.counts.remaining:
            return False
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                write_accepted(self._write, pieces, self.counts, self._report)
            except DatabaseError as error:
                if self._last_error != str(error):
                    self._last_error = str(error)
                    self._report({"type": "problem", "message": self._last_error})
                if self._ended.is_set():
                    return False
                self._ended.wait(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            else:
                if self._last_error:
                    self._last_error = ""
                    self._report({"type": "recovered"})
                return True


def _print_message(message: dict[str, Any]) -> None:
    print(json.dumps(message, separators=(",", ":")), flush=True)  # noqa: T201 - a job writes to standard output


def _until_input_ends(ended: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    ended.set()


def main(run: Path) -> int:
    """Copy the run's spool until standard input ends; exit code 1 if points remain that are not in the database."""
    os.nice(_NICENESS)
    ended = threading.Event()
    threading.Thread(target=_until_input_ends, args=(ended,), daemon=True).start()
    try:
        settings = influx_settings()
        if settings is None:
            return 0
        with Database(settings) as database:
            sink = Sink(SpoolTail(run / SPOOL), database.write, ended, _print_message)
            sink.copy_all()
    except AtollError as error:
        _print_message({"type": "problem", "message": str(error)})
        return error.exit_code
    counts = sink.counts
    _print_message({"type": "done", "delivered": counts.delivered, "unfit": counts.rejected, "left": counts.remaining})
    return 1 if counts.remaining else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
