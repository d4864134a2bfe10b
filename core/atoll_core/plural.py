# SPDX-License-Identifier: Apache-2.0
"""Text for counts (singular or plural), lists, columns, and numbers with a given precision."""

import math
from collections.abc import Iterator, Sequence


def counted(count: int, noun: str) -> str:
    """``1 run``, ``2 runs``, ``2 switches``; of nouns that take an s, or an es after ch."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def were(count: int, noun: str) -> str:
    """``1 packet was``, ``2 packets were``."""
    return f"{counted(count, noun)} {'was' if count == 1 else 'were'}"


def listed(words: Sequence[str], conjunction: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``; ``conjunction``: before the last word. Needs at least one word."""
    *head, end = words
    return f"{', '.join(head)} {conjunction} {end}" if head else end


def first_of(words: Sequence[str], count: int) -> str:
    """``a, b and 3 more``: the first ``count`` words, and the number of the others."""
    more = f" and {len(words) - count} more" if len(words) > count else ""
    return ", ".join(words[:count]) + more


def significant(number: float, digits: int) -> str:
    """A number with ``digits`` significant digits, without an exponent: ``0.052``, ``5.2``, ``810`` with two."""
    rounded = float(f"{number:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded))) if rounded else 0
    return f"{rounded:.{max(0, decimals)}f}"


def bit_rate(bit_s: float) -> str:
    """A measured rate to three significant digits: ``47.3 kbit/s``; ``Rate`` shows a setting exactly."""
    for factor, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bit_s >= factor:
            return f"{significant(bit_s / factor, 3)} {unit}"
    return f"{significant(bit_s, 3)} bit/s"


def columns(rows: list[tuple[str, ...]], indent: str) -> Iterator[str]:
    """The rows, a line each, every column but the last as wide as its widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        yield (indent + "  ".join((*cells, row[-1]))).rstrip()
