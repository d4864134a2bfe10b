# SPDX-License-Identifier: Apache-2.0
"""Reduce the rows of long runs for figures, keeping every peak and every gap that is visible."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

Numbers = NDArray[np.float64] | NDArray[np.int64]

SEGMENTS = 1200  # more than the time axis has pixels
_COLUMNS, _ROWS, _PER_CELL = 300, 150, 4  # of a scatter plot


def extremes(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return the rows that a figure of these columns over time needs.

    Rows are split into at least ``SEGMENTS`` stretches of equal length. Of each one, the rows with the least and the
    greatest value of each column stay, each with the row after it: in a figure of steps an extreme then lasts no longer
    than it did. Rows that are few enough all stay.
    """
    length = len(rows) // SEGMENTS
    if length <= 4 * len(columns):
        return rows
    indices: set[int] = set()
    for begin in range(0, len(rows), length):
        for column in columns:
            segment = rows[column].slice(begin, length)
            for index in (segment.arg_min(), segment.arg_max()):
                if index is not None:  # a column of nulls has neither
                    indices |= {begin + index, min(begin + index + 1, len(rows) - 1)}
    return rows[sorted({0, *indices, len(rows) - 1})]


def scatter_points(x: Numbers, y: Numbers) -> NDArray[np.intp]:
    """Return the points that a scatter plot with logarithmic axes needs: a few of many overlapping ones.

    The plane is split into cells half as wide as a marker. ``_PER_CELL`` translucent markers in each of several
    neighbouring cells are as dark as any number of them. Points that are few enough all stay.
    """
    if len(x) <= 4 * SEGMENTS:
        return np.arange(len(x))
    cell = _cells(x, _COLUMNS) * (_ROWS + 1) + _cells(y, _ROWS)
    order = np.argsort(cell, kind="stable")
    surplus = cell[order[_PER_CELL:]] == cell[order[:-_PER_CELL]]  # so many before it are in the same cell
    return np.sort(np.delete(order, _PER_CELL + np.flatnonzero(surplus)))


def _cells(values: Numbers, count: int) -> NDArray[np.int32]:
    log = np.log(values)
    log -= log.min()
    return (log * (count / max(float(log.max()), 1e-9))).astype(np.int32)


def share_points(ascending: Numbers) -> NDArray[np.intp]:
    """Return the rows of a sorted column that a plot of cumulative shares on a logarithmic axis needs.

    The last row of each of ``SEGMENTS`` equal stretches of the axis.
    """
    if len(ascending) <= 4 * SEGMENTS:
        return np.arange(len(ascending))
    ends: NDArray[np.float64] = np.geomspace(float(ascending[0]), float(ascending[-1]), SEGMENTS)
    return np.unique(np.searchsorted(ascending, ends, side="right") - 1)
