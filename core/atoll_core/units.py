# SPDX-License-Identifier: Apache-2.0
"""Physical quantities as types: a rate is not a size, and neither is a number.

Decimal prefixes throughout (1 kB = 1000 bytes), as in the literature on satellite links. A quantity is a whole
number of its smallest unit and fits a signed 64-bit integer, as in the programs on the hosts.
"""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Self

from atoll_core.errors import shown

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+)(?:\.([0-9]+))?\s*([A-Za-z/]+)\s*")
_DECIMAL_COMMA = re.compile(r"[0-9],[0-9]")
_SYNONYMS = (
    {
        f"{prefix}{bits}": f"{usual}bit/s"
        for prefix, usual in (("", ""), ("k", "k"), ("m", "M"), ("g", "G"))
        for bits in ("bit", "bps", "bits", "bits/s", "bit/sec", "b/s")
    }
    | {"usec": "us", "msec": "ms", "sec": "s", "second": "s", "seconds": "s", "minute": "min", "minutes": "min"}
    | {"hour": "h", "hours": "h", "byte": "B", "bytes": "B"}
)
_MAX_CHARACTERS = 60  # characters; int() of thousands of digits would be slow
_MAX_BASE = 2**63 - 1
_DECIMALS_FACTOR = 10**9  # __str__ chooses a unit in which at most nine decimals are exact


@dataclass(frozen=True, slots=True, order=True)
class _Quantity:
    """A whole number of the smallest unit; subclasses name the unit and its multiples.

    Quantities of one type compare, equal ones hash alike; quantities of different types are never equal and
    comparing them with ``<`` is a TypeError.
    """

    base: int
    text: str = field(default="", compare=False, repr=False)  # as written in a description; "": in none

    UNITS: ClassVar[dict[str, int]]
    EXAMPLE: ClassVar[str]

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read ``"16 Mbit/s"`` and the like: a decimal number and a unit, with or without a space between.

        Raises ValueError; the message has the remedy.
        """
        parts = _NUMBER_AND_UNIT.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_CHARACTERS else None
        if parts is None or parts[3] not in cls.UNITS:
            raise ValueError(f"{shown(text)} is not a {cls.__name__.lower()}; {cls._remedy(text)}")
        decimals = parts[2] or ""
        base, remainder = divmod(int(parts[1] + decimals) * cls.UNITS[parts[3]], 10 ** len(decimals))
        if remainder:
            raise ValueError(f"{shown(text)} is not a whole number of {next(iter(cls.UNITS))}; write fewer decimals")
        if base > _MAX_BASE:
            raise ValueError(f"{shown(text)} is too large; write less than {cls(_MAX_BASE)}")
        return cls(base, " ".join(str(text).split()))

    @classmethod
    def _remedy(cls, text: object) -> str:
        """The remedy for text that is not a quantity of this type."""
        if isinstance(text, str) and len(text) <= _MAX_CHARACTERS:
            if _DECIMAL_COMMA.search(text):
                return f"decimals follow a point, as in {cls.EXAMPLE.replace(' ', '.5 ')!r}"
            if text.lstrip().startswith("-"):
                return f"it is never negative; write one such as {cls.EXAMPLE!r}"
            if (parts := _NUMBER_AND_UNIT.fullmatch(text)) and (unit := cls._intended_unit(parts[3])):
                return f"did you mean {text.strip().removesuffix(parts[3]).rstrip()} {unit}?"
        return f"write a number and one of {', '.join(cls.UNITS)}, such as {cls.EXAMPLE!r}"

    @classmethod
    def _intended_unit(cls, written: str) -> str | None:
        """The unit of which ``written`` is a synonym or another spelling; None if there is not exactly one."""
        standard = _SYNONYMS.get(written, _SYNONYMS.get(written.lower(), written))
        units = [unit for unit in cls.UNITS if unit.lower() == standard.lower()]
        mixes_bytes_and_bits = "B" in written and "bit" not in written.lower() and "B" not in "".join(units)
        return units[0] if len(units) == 1 and not mixes_bytes_and_bits else None

    def __str__(self) -> str:
        """As written, else the number in the largest unit that shows it exactly; ``parse`` reads it back."""
        if self.text:
            return self.text
        for unit, factor in sorted(self.UNITS.items(), key=lambda item: -item[1]):
            if self.base >= factor and self.base * _DECIMALS_FACTOR % factor == 0:
                text = f"{Decimal(self.base) / factor:f}"
                return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
        return f"{self.base} {next(iter(self.UNITS))}"


class Rate(_Quantity):
    """Bits per second."""

    __slots__ = ()
    UNITS: ClassVar[dict[str, int]] = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9}
    EXAMPLE: ClassVar[str] = "16 Mbit/s"

    @property
    def bit_s(self) -> int:
        """Bits per second."""
        return self.base


class Duration(_Quantity):
    """Nanoseconds."""

    __slots__ = ()
    UNITS: ClassVar[dict[str, int]] = {
        "ns": 1,
        "us": 10**3,
        "ms": 10**6,
        "s": 10**9,
        "min": 60 * 10**9,
        "h": 3600 * 10**9,
    }
    EXAMPLE: ClassVar[str] = "250 ms"

    @property
    def ns(self) -> int:
        """Nanoseconds."""
        return self.base

    @property
    def ms(self) -> float:
        """Milliseconds."""
        return self.base / 1e6

    @property
    def s(self) -> float:
        """Seconds."""
        return self.base / 1e9


class Size(_Quantity):
    """Bytes; 1 kB is 1000 bytes."""

    __slots__ = ()
    UNITS: ClassVar[dict[str, int]] = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
    EXAMPLE: ClassVar[str] = "100 kB"

    @property
    def bytes(self) -> int:
        """Bytes."""
        return self.base
