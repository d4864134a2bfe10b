# SPDX-License-Identifier: Apache-2.0
"""Populations of runs with known medians and means, from which made-up studies are drawn."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.special import ndtri

from atoll_core.experiment.flow_sizes import FlowSizes, published
from atoll_studies.statistics.flow_sample import ControlVariate

_LARGE = 2_000_000  # draws for a mean or median that has no closed form


@dataclass(frozen=True, slots=True)
class Population:
    """Figures of runs, independent of each other."""

    name: str
    draw: Callable[[Any, int], Any]  # (generator, number)
    quantile: Callable[[float], float]
    mean: float


def _lognormal(sigma: float) -> Population:
    return Population(
        f"lognormal, sigma {sigma:g}",
        lambda random, n: random.lognormal(0, sigma, n),
        lambda share: math.exp(sigma * float(ndtri(share))),
        math.exp(sigma**2 / 2),
    )


def _pareto(index: float) -> Population:
    return Population(
        f"Pareto, index {index:g}",
        lambda random, n: random.pareto(index, n),
        lambda share: (1 - share) ** (-1 / index) - 1,
        1 / (index - 1),
    )


_NORMAL = Population(
    "normal, deviation 10 %",
    lambda random, n: random.normal(10, 1, n),
    lambda share: 10 + float(ndtri(share)),
    10,
)
_EXPONENTIAL = Population(
    "exponential", lambda random, n: random.exponential(1, n), lambda share: -math.log(1 - share), 1
)

POPULATIONS = (_NORMAL, _EXPONENTIAL, _lognormal(0.5), _lognormal(1), _pareto(2.5))
"""For coverage."""

STOPPED = (
    (_NORMAL, 0.1, 60),
    (_NORMAL, 0.05, 120),
    (_lognormal(0.3), 0.1, 200),
    (_lognormal(1), 0.3, 200),
    (_pareto(1.1), 0.3, 300),
)
"""For sequential stopping: population, half width, and repetitions at most."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Figures of two configurations with shared seeds."""

    name: str
    draw: Callable[[Any, int], tuple[Any, Any]]
    difference: float  # its median


def _loaded(sigma: float) -> Callable[[Any, int], tuple[Any, Any]]:
    """A load that seeds share, of which the second configuration carries a tenth more; both have noise of their own."""

    def draw(random: Any, n: int) -> tuple[Any, Any]:
        load = random.lognormal(0, sigma, n)
        return load + random.normal(0, 0.05, n), 1.1 * load + random.normal(0, 0.05, n)

    return draw


def _unrelated(random: Any, n: int) -> tuple[Any, Any]:
    return random.normal(10, 1, n), random.normal(10.5, 1, n)


_PAIRS = (
    ("shared load, lognormal, sigma 0.5", _loaded(0.5)),
    ("shared load, lognormal, sigma 1", _loaded(1.0)),
    ("nothing shared, normal", _unrelated),
)
PAIRS = len(_PAIRS)


def pairs(number: int) -> Pairs:
    """Shared loads of two spreads, and pairs that share nothing."""
    name, draw = _PAIRS[number]
    first, second = draw(np.random.default_rng(0), _LARGE)
    return Pairs(name, draw, float(np.median(second - first)))


@dataclass(frozen=True, slots=True)
class Controls:
    """Figures with a control variate of known expectation."""

    name: str
    draw: Callable[[Any, int], tuple[Any, Any]]  # figures, controls
    expectation: float
    mean: float


_CORRELATIONS = (0.8, 0.5, 0.0)
_LARGEST_MB = (1, 3, 60)
CONTROLS = len(_CORRELATIONS) + len(_LARGEST_MB)


def controls(number: int) -> Controls:
    """Normal figures with and without correlation, and goodput of channels with published flow sizes."""
    if number < len(_CORRELATIONS):
        rho = _CORRELATIONS[number]
        return Controls(f"normal, correlation {rho}", _correlated(rho), 0.0, 5.0)
    megabytes = _LARGEST_MB[number - len(_CORRELATIONS)]
    draw = _filled(published(), ControlVariate(20, megabytes * 10**6))
    mean = float(np.mean([draw(np.random.default_rng(seed), 2000)[0].mean() for seed in range(30)]))
    expectation = published().capped_mean(megabytes * 10**6)
    return Controls(f"400 flows of 20 channels, largest {megabytes} MB", draw, expectation, mean)


def _correlated(rho: float) -> Callable[[Any, int], tuple[Any, Any]]:
    def draw(random: Any, n: int) -> tuple[Any, Any]:
        control = random.normal(0, 1, n)
        return 5 + rho * control + np.sqrt(1 - rho**2) * random.normal(0, 1, n), control

    return draw


def _filled(sizes: FlowSizes, control: ControlVariate) -> Callable[[Any, int], tuple[Any, Any]]:
    """A link that flows fill: goodput approaches 14 Mbit/s as they bring more bytes, of which a giant brings 20 MB."""
    knots = np.array([knot[0] for knot in sizes.knots]) / 1e9
    logarithms: Any = np.log(np.array([knot[1] for knot in sizes.knots], float))

    def draw(random: Any, n: int) -> tuple[Any, Any]:
        drawn: Any = np.exp(cast("Any", np.interp(random.random((n, 20 * control.flows)), knots, logarithms)))
        brought = np.minimum(drawn, 20e6).sum(1)
        goodput = 14 * (1 - np.exp(-brought / 20e6)) + random.normal(0, 0.4, n)
        return goodput, np.minimum(drawn, control.largest_bytes).mean(1)

    return draw
