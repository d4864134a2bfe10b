# SPDX-License-Identifier: Apache-2.0
"""The metrics spool: every point is written to disk first, in compressed line protocol, then to a database."""

import io
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from atoll_analysis.run_directory.atomic_files import Appender
from atoll_core.errors import RunDirError
from atoll_core.metrics.line_protocol import MetricPoint

SPOOL = "metrics.lp.zst"
"""Its name in a run directory."""

_FRAME_S = 1.0
_READ_BYTES = 1 << 20


class MetricsSpool:
    """Appends points to ``metrics.lp.zst`` as zstd frames, one a second, each complete in itself.

    A kill loses at most the points since the last frame. Points come every 100 ms or so; an owner that may fall silent
    calls :meth:`flush` itself. ``points`` counts those taken, ``left_out`` fields that line protocol cannot express
    (NaN, infinities).
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds, monotonic. Raises RunError when the file cannot be made."""
        import zstandard

        self.points = 0
        self.left_out = 0
        self._file = Appender(path)
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._clock = clock
        self._pending: list[str] = []
        self._frame_since = clock()

    def write(self, points: Iterable[MetricPoint]) -> None:
        """Take points; those of more than a second are written. Raises RunError (disk full, say)."""
        for point in points:
            line, left_out = point.line()
            self.left_out += left_out
            if line is not None:
                self.points += 1
                self._pending.append(line + "\n")
        if self._clock() - self._frame_since >= _FRAME_S:
            self.flush()

    def flush(self) -> None:
        """Write what is pending as one frame. Raises RunError; the points then stay pending."""
        if self._pending:
            self._file.append(self._compressor.compress("".join(self._pending).encode()))
            self._pending.clear()
        self._frame_since = self._clock()

    def close(self) -> None:
        """Write what is pending and close the file."""
        try:
            self.flush()
        finally:
            self._file.close()


class SpoolTail:
    """Reads a spool frame by frame, also while it grows: a frame that is not whole yet is read when it is."""

    def __init__(self, path: Path) -> None:
        """Raises RunDirError when there is no spool."""
        import zstandard

        try:
            self._file = path.open("rb")
        except OSError as error:
            raise RunDirError(f"{path}: the metrics cannot be read: {error.strerror}") from None
        self._path = path
        self._decompressor = zstandard.ZstdDecompressor()
        self._offset_bytes = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def frames(self) -> Iterator[bytes]:
        """The frames that are whole by now and were not read before: some lines each. Raises RunDirError (damaged)."""
        import zstandard

        chunk_bytes = _READ_BYTES
        while True:
            self._file.seek(self._offset_bytes)
            unread = self._file.read(chunk_bytes)
            read_bytes = len(unread)
            while unread:
                frame = self._decompressor.decompressobj()
                try:
                    lines = frame.decompress(unread)
                except zstandard.ZstdError as error:
                    raise RunDirError(f"{self._path}: damaged at byte {self._offset_bytes}: {error}") from None
                if not frame.eof:
                    break
                self._offset_bytes += len(unread) - len(frame.unused_data)
                unread = frame.unused_data
                yield lines
            if read_bytes < chunk_bytes:
                return
            if len(unread) == read_bytes:  # a frame longer than what was read
                chunk_bytes *= 2


def read_spool(path: Path) -> Iterator[str]:
    """The lines of a spool, without their ends; a frame cut by a kill ends it."""
    import zstandard

    with path.open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        for line in io.TextIOWrapper(reader, encoding="utf-8", newline="\n"):
            if line.endswith("\n"):
                yield line[:-1]
