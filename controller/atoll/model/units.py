# SPDX-License-Identifier: Apache-2.0
"""Physical quantities as types: a rate is not a size, and neither is a number.

Decimal prefixes throughout (1 kB = 1000 bytes), as in the literature on satellite links.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Self

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z/%µ]+)\s*")


@dataclass(frozen=True, slots=True, order=True)
class _Quantity:
    """A whole number of the smallest unit; subclasses name the unit and its multiples."""

    base: int

    UNITS: ClassVar[dict[str, int]]
    EXAMPLE: ClassVar[str]

    @classmethod
    def parse(cls, text: object) -> Self:
        """Read ``"16 Mbit/s"`` and the like.

        Raises ValueError with a message that ends in an example of what would be right.
        """
        found = _NUMBER_AND_UNIT.fullmatch(text) if isinstance(text, str) else None
        if found is None or found.group(2) not in cls.UNITS:
            units = ", ".join(cls.UNITS)
            msg = f"{text!r} is not a {cls.__name__.lower()}; write a number and one of {units}, such as {cls.EXAMPLE!r}"
            raise ValueError(msg)
        exact = Decimal(found.group(1)) * cls.UNITS[found.group(2)]
        if exact != int(exact):
            smallest = next(iter(cls.UNITS))
            msg = f"{text!r} is not a whole number of {smallest}"
            raise ValueError(msg)
        return cls(int(exact))

    def __str__(self) -> str:
        for unit, factor in sorted(self.UNITS.items(), key=lambda item: -item[1]):
            if self.base >= factor:
                shown = f"{Decimal(self.base) / factor:f}"
                return f"{shown.rstrip('0').rstrip('.') if '.' in shown else shown} {unit}"
        return f"{self.base} {next(iter(self.UNITS))}"


class Rate(_Quantity):
    """Bits per second."""

    __slots__ = ()
    UNITS = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9}
    EXAMPLE = "16 Mbit/s"

    @property
    def bit_s(self) -> int:
        """Bits per second."""
        return self.base


class Duration(_Quantity):
    """Nanoseconds."""

    __slots__ = ()
    UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
    EXAMPLE = "250 ms"

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
    UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
    EXAMPLE = "100 kB"

    @property
    def bytes(self) -> int:
        """Bytes."""
        return self.base
