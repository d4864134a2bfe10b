# SPDX-License-Identifier: Apache-2.0
"""Published figures of a set-up, compared with our runs (docs/reproduction.md).

A published value is as a rule that of a single run. It agrees if it could be a run of ours: inside the central 90 %,
jointly over all published figures of the set-up (Bonferroni).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from atoll_studies.published import Published
from atoll_studies.results.results import Results
from atoll_studies.statistics.estimates import Limits

OUTSIDE = 0.1
"""Probability that a published figure is outside of the central ranges if the set-up is the same."""


class PublishedAgreement(StrEnum):
    """What the runs say about a published figure."""

    AGREES = "agrees"
    DIRECTION_ONLY = "direction only"  # a ratio on the same side of 1 as that of most runs
    DIFFERS = "does not agree"
    UNKNOWN = "cannot know"  # too few runs, or too many of them did not measure it


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published figure and our runs of one configuration."""

    published: Published
    configuration: int
    runs: int
    median: Limits | None
    low: Limits | None  # ends of the central range that the published value may be in
    high: Limits | None
    quantile: float | None  # share of our runs below the published value; None: not known
    agreement: PublishedAgreement


def comparisons(results: Results) -> Iterator[Comparison]:
    """Each published figure with the runs of each configuration that it is of."""
    for number, levels in enumerate(results.configurations):
        own_figures = [
            published
            for published in results.published
            if published.of.items() <= levels.items()
            and not (published.relative_to and published.relative_to.items() <= levels.items())
        ]
        tail = OUTSIDE / len(own_figures) if own_figures else 0.0
        for published in own_figures:
            yield _compare(results, number, published, tail)


def _compare(results: Results, configuration: int, published: Published, tail: float) -> Comparison:
    """``tail``: share of the runs outside of the central range."""
    values = list(_values(results, configuration, published))
    least, most = sorted(value.least for value in values), sorted(value.most for value in values)

    def limits_at(share: float) -> Limits | None:
        index = round(share * (len(values) - 1))
        return Limits(least[index], most[index]) if values else None

    low, high = {"": (tail / 2, 1 - tail / 2), "above": (0, 1 - tail), "below": (tail, 1)}[published.bound]
    quantiles = {_share_below(ends, published.value) for ends in (least, most)} if values else set[float]()
    is_inside = {low <= quantile <= high for quantile in quantiles}
    median = limits_at(0.5)
    # Of fewer runs than two outside of the range, on average, none may be there by chance.
    if len(is_inside) != 1 or median is None or len(values) * tail < 2:
        agreement = PublishedAgreement.UNKNOWN
    elif is_inside == {True}:
        agreement = PublishedAgreement.AGREES
    elif published.relative_to and all((end - 1) * (published.value - 1) > 0 for end in median):
        agreement = PublishedAgreement.DIRECTION_ONLY
    else:
        agreement = PublishedAgreement.DIFFERS
    return Comparison(
        published=published,
        configuration=configuration,
        runs=len(values),
        median=median,
        low=limits_at(tail / 2),
        high=limits_at(1 - tail / 2),
        quantile=quantiles.pop() if len(quantiles) == 1 else None,
        agreement=agreement,
    )


def _share_below(values: list[float], value: float) -> float:
    """The share of values below this one; of equal ones half."""
    return (sum(item < value for item in values) + sum(item == value for item in values) / 2) / len(values)


def _values(results: Results, configuration: int, published: Published) -> Iterator[Limits]:
    """The figure of each run, or its ratio to that of the run with the same seed; none without such runs."""
    by_seed = results.values(configuration, published.figure)
    if not published.relative_to:
        yield from by_seed.values()
        return
    levels = {**results.configurations[configuration], **published.relative_to}
    if levels not in results.configurations:  # a search did not take it
        return
    reference_values = results.values(results.configurations.index(levels), published.figure)
    for seed in by_seed.keys() & reference_values.keys():
        own, other = by_seed[seed], reference_values[seed]
        if other.least > 0 and math.isfinite(own.least):
            yield Limits(own.least / other.most, own.most / other.least)
