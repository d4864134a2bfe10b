# SPDX-License-Identifier: Apache-2.0
"""Markdown tables whose columns line up, so that they can be read on a terminal, too."""

from collections.abc import Sequence


def markdown_table(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Format rows, headings first, as a table. ``left``: the number of columns that are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width if number < left else "-" * (width - 1) + ":" for number, width in enumerate(widths)]
    return "\n".join(_line(row, widths, left) for row in (rows[0], rule, *rows[1:]))


def _line(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    cells = [
        cell.ljust(width) if number < left else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(cells)} |"
