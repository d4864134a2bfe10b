# SPDX-License-Identifier: Apache-2.0
"""Rows of logs on disk on their way to a table, so that a log of any length takes the same memory."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.io.plugins import register_io_source

_BATCH_ROWS = 1 << 13  # at a time
_NULL = -(2**63)  # a null in the files; counters and instants are far from it

GroupKey = tuple[str, ...]
RowArray = NDArray[np.int64]


class RowSpool:
    """Rows of 64-bit integers in groups; the table has them sorted by group and then by one of the columns.

    Files are made in ``folder`` and read when the table is: it has to stay until then.
    """

    def __init__(
        self, folder: Path, name: str, group_columns: Sequence[str], columns: Sequence[str], order_column: str
    ) -> None:
        """``group_columns``: text that makes a group; ``order_column``: the column by which its rows are sorted."""
        self._folder = folder
        self._name = name
        self._group_columns = tuple(group_columns)
        self._columns = tuple(columns)
        self._order_index = self._columns.index(order_column)
        # Of each group the rows in order, and apart from these the late ones, which a greater one came before.
        self._pending: defaultdict[tuple[GroupKey, bool], list[list[int]]] = defaultdict(list)
        self._files: dict[tuple[GroupKey, bool], Path] = {}
        self._last: dict[GroupKey, int] = {}  # of the column of the order

    def append(self, key: GroupKey, figures: Mapping[str, Any]) -> None:
        """Take the row that these figures make; what is absent or None is null."""
        row = [_NULL if (figure := figures.get(column)) is None else int(figure) for column in self._columns]
        is_late = row[self._order_index] < self._last.get(key, _NULL)
        if not is_late:
            self._last[key] = row[self._order_index]
        pending = self._pending[key, is_late]
        pending.append(row)
        if len(pending) >= _BATCH_ROWS:
            self._flush(key, is_late=is_late)

    def table(self) -> pl.LazyFrame:
        """All rows, sorted; rows that are equal in the column of the order stay in the order of their coming."""
        for key, is_late in self._pending:
            self._flush(key, is_late=is_late)
        schema = {**dict.fromkeys(self._group_columns, pl.String), **dict.fromkeys(self._columns, pl.Int64)}

        def batches(
            with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
        ) -> Iterator[pl.DataFrame]:
            del batch_size
            for frame in self._frames(schema):
                rows = frame if predicate is None else frame.filter(predicate)
                if n_rows is not None:
                    rows = rows.head(n_rows)
                    n_rows -= len(rows)
                yield rows if with_columns is None else rows.select(with_columns)

        return register_io_source(batches, schema=schema, is_pure=True)

    def _flush(self, key: GroupKey, *, is_late: bool) -> None:
        path = self._files.setdefault((key, is_late), self._folder / f"{self._name}-{len(self._files)}.rows")
        with path.open("ab") as file:
            file.write(np.array(self._pending[key, is_late], np.int64).tobytes())
        self._pending[key, is_late].clear()

    def _frames(self, schema: Mapping[str, type[pl.DataType]]) -> Iterator[pl.DataFrame]:
        yield pl.DataFrame(schema=schema)
        for key in sorted(self._last):
            for rows in self._sorted(key):
                frame = pl.DataFrame(rows, schema=self._columns, orient="row")
                frame = frame.with_columns(pl.when(pl.all() != _NULL).then(pl.all()))
                groups = zip(self._group_columns, key, strict=True)
                group_literals = (pl.lit(value).alias(column) for column, value in groups)
                yield frame.select(*group_literals, pl.all())

    def _sorted(self, key: GroupKey) -> Iterator[RowArray]:
        """The rows of a group, some at a time; of equal ones the late ones are later."""
        unsorted = next(self._read(key, is_late=True, row_count=-1), np.empty((0, len(self._columns)), np.int64))
        late_rows: RowArray = unsorted[np.argsort(unsorted[:, self._order_index], kind="stable")]
        for rows in self._read(key, is_late=False, row_count=_BATCH_ROWS):
            late_count = int(late_rows[:, self._order_index].searchsorted(int(rows[-1, self._order_index])))
            merged, late_rows = np.concatenate([rows, late_rows[:late_count]]), late_rows[late_count:]
            yield merged[np.argsort(merged[:, self._order_index], kind="stable")]

    def _read(self, key: GroupKey, *, is_late: bool, row_count: int) -> Iterator[RowArray]:
        """So many rows at a time (-1: all), as they came."""
        path, width = self._files.get((key, is_late)), len(self._columns)
        if path is not None:
            with path.open("rb") as file:
                while len(numbers := np.fromfile(file, np.int64, row_count * width if row_count > 0 else -1)):
                    yield numbers.reshape(-1, width)
