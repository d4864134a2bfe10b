# SPDX-License-Identifier: Apache-2.0
"""Packets read, and tables written, in slices of bounded size: memory does not grow with the length of a run."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from atoll_analysis.run_directory.atomic_files import error_from_message, write_errors
from atoll_core.errors import RunError

_ROW_GROUP = 1 << 17  # rows: several groups of each capture are in memory while it is read


def slices(packets: pl.LazyFrame, key: pl.Expr, size: int) -> Iterator[tuple[pl.LazyFrame, int | None]]:
    """Split packets by ``key // size``, in ascending order; with the earliest instant in all later slices, or None.

    ``key``: an integer that grows with time, such as the number of a flow. Only the part of a Parquet file that a slice
    spans in time is read for it: the file has the least and the greatest instant of each of its row groups.
    """
    number = key.floordiv(size)
    spans = (
        packets.group_by(number=number)
        .agg(first_ns=pl.col("t_ns").min(), last_ns=pl.col("t_ns").max())
        .collect(engine="streaming")
        .sort("number")
        .with_columns(later_ns=pl.col("first_ns").shift(-1).cum_min(reverse=True))
    )
    if len(spans) == 1:
        yield packets, None
        return
    for index, first_ns, last_ns, later_ns in spans.iter_rows():
        yield packets.filter(pl.col("t_ns").is_between(first_ns, last_ns) & (number == index)), later_ns


class Parts:
    """A table that is made in parts, each of which fits into memory; they are kept as files in ``folder``."""

    def __init__(self, folder: Path, name: str, empty: pl.LazyFrame) -> None:
        """``empty``: the table if it has no part."""
        self._folder = folder
        self._name = name
        self._empty = empty
        self._files: list[Path] = []

    def append(self, rows: pl.LazyFrame) -> None:
        """Compute these rows and put them below the earlier ones. Raises RunError when the disk is full."""
        path = self._folder / f"{self._name}-{len(self._files)}.parquet"
        sink(rows, path)
        self._files.append(path)

    def table(self) -> pl.LazyFrame:
        """All rows in order; the folder has to stay until they are read."""
        return pl.scan_parquet(self._files, glob=False) if self._files else self._empty


def merged(frames: Sequence[pl.LazyFrame], folder: Path, size: int) -> pl.LazyFrame:
    """The packets of all frames by their instants; of equal ones, those of the first frame first.

    They are sorted about ``size`` at a time, and kept in ``folder``, which has to stay until they are read.
    """
    packets = pl.concat(frames)
    t_ns = pl.col("t_ns")
    span = packets.select(pl.len(), t_ns.min().alias("first"), t_ns.max().alias("last")).collect(engine="streaming")
    count, first_ns, last_ns = span.row(0)
    parts = Parts(folder, "merged", packets)
    if count:
        for part, _ in slices(packets, pl.col("t_ns") - first_ns, 1 + (last_ns - first_ns) * size // count):
            parts.append(part.sort("t_ns", maintain_order=True))
    return parts.table()


def sink(
    frame: pl.LazyFrame, path: Path, shown: Path | None = None, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a frame to a Parquet file. Raises RunError, which names ``shown`` if given, when that is not possible."""
    named_path = shown or path
    with write_errors(named_path):
        try:
            frame.sink_parquet(
                path, compression="zstd", compression_level=3, row_group_size=_ROW_GROUP, metadata=dict(metadata or {})
            )
        except pl.exceptions.PolarsError as error:
            other_error = RunError(f"{named_path} could not be made: {error}")
            raise error_from_message(named_path, str(error), other_error) from error
