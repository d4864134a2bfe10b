# SPDX-License-Identifier: Apache-2.0
"""Published figures of a study's set-up."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from atoll_analysis.figures.run_figures import unit_and_digits
from atoll_core.errors import shown

_VALUE = re.compile(r"(above|below|) *([0-9]+(?:\.[0-9]+)?) *(.*)")


@dataclass(frozen=True, slots=True)
class Published:
    """A published value of a figure of the configurations with these levels."""

    figure: str
    bound: str  # "above" or "below" the value; empty: it was the value
    value: float  # in the figure's unit; of a ratio without
    of: Mapping[str, str]  # levels by factor
    relative_to: Mapping[str, str]  # empty: the value is no ratio
    source: str


def parse_value(text: str, figure: str, *, is_ratio: bool) -> tuple[str, float]:
    """The bound and the number of a value such as ``above 120 s``. Raises ValueError with what would be right."""
    unit = "" if is_ratio else unit_and_digits(figure)[0]
    parts = _VALUE.fullmatch(text.strip())
    if not parts or parts[3] != unit:
        example, what = f"41 {unit}".strip(), "ratio" if is_ratio else "value"
        raise ValueError(f"{shown(text)} is no {what} of {figure}; write {example}, or above {example}")
    return parts[1], float(parts[2])
