# SPDX-License-Identifier: Apache-2.0
"""Conclusions from differences and equivalences of configurations, with p-values corrected for the number of tests.

Of many comparisons some differ by chance. A study may name its primary figure before its runs: its comparisons are a
family of their own, and all other figures together are another one (Holm's method within each). Difference and
equivalence of a comparison cannot both be false, and have a family each.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from atoll_core.holm import holm
from atoll_studies.results.results import ConfigurationFigure, Results
from atoll_studies.statistics.estimates import LEVEL, Paired
from atoll_studies.statistics.sign_tests import difference_p, equivalence_p

ERROR = round(1 - LEVEL, 9)
"""Probability of a false conclusion in a family, at most."""


class Conclusion(StrEnum):
    """The result of both tests of a comparison."""

    DIFFERENT = "different"
    EQUIVALENT = "equivalent"
    SMALL = "different, but by less than the margin"
    OPEN = "not decided"


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of a configuration compared with its baseline; the p-values are corrected."""

    configuration: int
    figure: str
    paired: Paired
    is_primary: bool
    difference_p: float
    equivalence_p: float | None  # None: there is no margin

    @property
    def conclusion(self) -> Conclusion:
        """Whether the configuration differs, is equivalent, or neither is shown."""
        is_equivalent = self.equivalence_p is not None and self.equivalence_p <= ERROR
        if self.difference_p <= ERROR:
            return Conclusion.SMALL if is_equivalent else Conclusion.DIFFERENT
        return Conclusion.EQUIVALENT if is_equivalent else Conclusion.OPEN


def compared_figures(results: Results) -> list[ComparedFigure]:
    """All figures of the study's families that are compared with a baseline, the primary figure first.

    Of figures that chose the runs, that of ``stop`` and all of a search, there is no test: it would not hold.
    """
    if results.search:
        return []
    untested = results.stop and results.stop.figure
    primary = [results.primary.figure] if results.primary else []
    others = [figure for figure in dict.fromkeys((*results.family, *results.shown)) if figure not in primary]
    return [
        each
        for names, is_primary in ((primary, True), (others, False))
        for each in _family(results, [name for name in names if name != untested], is_primary=is_primary)
    ]


def rests_on_others(compared: Iterable[ComparedFigure]) -> list[str]:
    """The figures that conclusions rest on, if none is drawn from the primary figure and others differ."""
    concluded = [each for each in compared if each.conclusion is not Conclusion.OPEN]
    return [] if any(each.is_primary for each in concluded) else [*dict.fromkeys(each.figure for each in concluded)]


def _family(results: Results, names: Iterable[str], *, is_primary: bool) -> Iterator[ComparedFigure]:
    """The comparisons of some figures, corrected for their number."""
    pairs = [
        (row, row.difference)
        for name in names
        for number in range(len(results.configurations))
        if (row := results.figure_of(number, name)) and row.difference
    ]
    differences = holm([difference_p(paired) for _, paired in pairs])
    margins = holm([p for row, _ in pairs if (p := _equivalence_p(results, row, is_primary=is_primary)) is not None])
    for index, ((row, paired), p) in enumerate(zip(pairs, differences, strict=True)):
        yield ComparedFigure(row.configuration, row.figure, paired, is_primary, p, margins[index] if margins else None)


def _equivalence_p(results: Results, row: ConfigurationFigure, *, is_primary: bool) -> float | None:
    margin = results.primary.margin if results.primary and is_primary else None
    if margin is None or row.baseline is None:
        return None
    baseline, own = (results.values(number, row.figure) for number in (row.baseline, row.configuration))
    return equivalence_p(baseline, own, margin)
