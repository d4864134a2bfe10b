# SPDX-License-Identifier: Apache-2.0
"""The words of a verdict, and the findings that decide it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Whether the results of a run can be trusted."""

    VALID = "valid"
    CAVEATS = "valid with caveats"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure of a run beyond a bound, in words; ``grave``: it makes the run invalid, otherwise it is a caveat."""

    text: str
    grave: bool


def grave(text: str) -> Finding:
    """A reason for which a run is invalid."""
    return Finding(text, grave=True)


def caveat(text: str) -> Finding:
    """A figure that the results must be read with."""
    return Finding(text, grave=False)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """The verdict by the gravest finding."""
    found = {finding.grave for finding in findings}
    return Verdict.INVALID if True in found else Verdict.CAVEATS if found else Verdict.VALID
