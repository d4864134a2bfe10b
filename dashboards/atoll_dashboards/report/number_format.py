# SPDX-License-Identifier: Apache-2.0
"""Format figures: three or four digits, a unit, and a dash if not measured."""

import math

from atoll_core.plural import bit_rate

_DIGITS = 3
NOT_MEASURED = "\N{EN DASH}"


def figure(number: float | None, unit: str = "", digits: int = 2) -> str:
    """``12.34 ms``: a number with its unit, thousands set apart by thin spaces."""
    if number is None:
        return NOT_MEASURED
    text = f"{number:,.{digits}f}".replace(",", "\u202f")
    return f"{text}\u00a0{unit}" if unit else text


def decimals(number: float | None, least: int) -> int:
    """The number of digits after the point that show a number to three digits, as :func:`rate` does, or ``least``."""
    return max(least, _DIGITS - 1 - math.floor(math.log10(abs(number)))) if number else least


def count(number: float | None, unit: str = "") -> str:
    """A whole number with its unit."""
    return figure(number, unit, 0)


def octets(number: float | None) -> str:
    """Bytes in the largest decimal unit that keeps a digit before the point: ``100.0 kB``."""
    if number is None:
        return NOT_MEASURED
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(number) >= factor:
            return figure(number / factor, unit)
    return figure(number, "B", 0)


def rate(mbit_s: float | None) -> str:
    """Megabits per second to three digits, in kbit/s where it is less than one: ``47.3 kbit/s``."""
    if mbit_s is None:
        return NOT_MEASURED
    return bit_rate(1e6 * mbit_s).replace(" ", "\u00a0")


def percent(share: float | None, digits: int = 1) -> str:
    """A share of one as per cent."""
    return figure(None if share is None else 100 * share, "%", digits)
