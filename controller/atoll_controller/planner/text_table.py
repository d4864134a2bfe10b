# SPDX-License-Identifier: Apache-2.0
"""Rows of text in columns."""

from collections.abc import Iterator


def columns(rows: list[tuple[str, ...]], indent: str) -> Iterator[str]:
    """The rows, a line each, every column but the last as wide as its widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        yield indent + "  ".join((*cells, row[-1]))
