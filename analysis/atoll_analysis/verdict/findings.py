# SPDX-License-Identifier: Apache-2.0
"""Verdicts, and the findings that decide them."""

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
    """A figure of a run beyond its bound, as text. ``grave``: it makes the run invalid; otherwise it is a caveat."""

    text: str
    grave: bool


def grave(text: str) -> Finding:
    """Make a finding that makes a run invalid."""
    return Finding(text, grave=True)


def caveat(text: str) -> Finding:
    """Make a finding that is a caveat."""
    return Finding(text, grave=False)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """Return the verdict of the gravest finding."""
    found = {finding.grave for finding in findings}
    return Verdict.INVALID if True in found else Verdict.CAVEATS if found else Verdict.VALID
