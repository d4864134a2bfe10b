# SPDX-License-Identifier: Apache-2.0
"""A rain fade on a GEO downlink, as rate.

Attenuation follows T. Maseng and P. Bakken, "A stochastic dynamic model of rain attenuation", IEEE Transactions on
Communications 29(5), 1981, the base of Recommendation ITU-R P.1853: ln A is a stationary first-order Gauss-Markov
process. Such a process is reversible in time, so the surroundings of a fade of given depth are made exactly by going
both ways from the instant of the fade; no long simulation has to wait for one.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import LinkTrace, TraceRow
from atoll_core.units import Duration, Rate
from atoll_emulation.trace_generators.acm import Acm
from atoll_emulation.trace_generators.trace_rows import make_trace

_STEP = Duration(10**9)
_RAIN_KELVIN = 275.0  # effective temperature of the medium, ITU-R P.618, 3


@dataclass(frozen=True, slots=True)
class Climate:
    """Rain attenuation in the long term: the decibels that are exceeded in 0.1 % and in 0.01 % of the time."""

    exceeded_0_1_db: float
    exceeded_0_01_db: float

    @property
    def spread(self) -> float:
        """Standard deviation of ln A."""
        rare, rarer = NormalDist().inv_cdf(1 - 1e-3), NormalDist().inv_cdf(1 - 1e-4)
        return math.log(self.exceeded_0_01_db / self.exceeded_0_1_db) / (rarer - rare)

    @property
    def mean(self) -> float:
        """Mean of ln A."""
        return math.log(self.exceeded_0_1_db) - self.spread * NormalDist().inv_cdf(1 - 1e-3)


TROPICAL_KU = Climate(exceeded_0_1_db=7.0, exceeded_0_01_db=20.0)
"""About what ITU-R P.618 gives for 12 GHz at 45 degrees of elevation where it rains 90 mm/h in 0.01 % of the time."""


@dataclass(frozen=True, slots=True)
class RainFade:
    """A fade and the link it strikes."""

    rate: Rate  # in a clear sky
    duration: Duration
    fade_db: float  # attenuation at the instant ``at``; before and after it may be more
    at: Duration
    seed: int
    climate: Climate = TROPICAL_KU
    dynamics: float = 2e-4  # 1/s, how fast the attenuation forgets; P.1853: 2e-4
    step: Duration = _STEP  # P.1853: 1 s
    clear_db: float = 13.0  # Es/N0
    system_kelvin: float = 160.0  # noise temperature of the receiving station in a clear sky


def attenuation_db(fade: RainFade) -> list[float]:
    """Rain attenuation at every step of the duration."""
    mean, spread = fade.climate.mean, fade.climate.spread
    start = (math.log(fade.fade_db) - mean) / spread
    steps, fade_step = fade.duration.ns // fade.step.ns + 1, fade.at.ns // fade.step.ns
    generator = random.Random(fade.seed)  # noqa: S311 (weather, not secrets)
    after = list(_gauss_markov(start, steps - fade_step, fade, generator))
    before = list(_gauss_markov(start, fade_step + 1, fade, generator))[:0:-1]
    return [math.exp(mean + spread * x) for x in (*before, *after)]


def rain_trace(fade: RainFade) -> LinkTrace:
    """The trace of a link during the fade. Raises PlanError when the figures allow none."""
    if not 0 < fade.climate.exceeded_0_1_db < fade.climate.exceeded_0_01_db:
        raise PlanError("--exceeded-0.1 must be above 0 dB and below --exceeded-0.01")
    if fade.at > fade.duration:
        raise PlanError(f"--at {fade.at} is after the end of the trace at {fade.duration}; write an earlier time")
    return make_trace(_states(fade, Acm(fade.clear_db)), Duration(0))


def es_n0_loss_db(attenuation: float, system_kelvin: float) -> float:
    """Return the loss of Es/N0 by rain on a downlink: attenuation and additional noise."""
    rain_noise_kelvin = _RAIN_KELVIN * (1 - 10 ** (-attenuation / 10))
    return attenuation + 10 * math.log10((system_kelvin + rain_noise_kelvin) / system_kelvin)


def _gauss_markov(start: float, count: int, fade: RainFade, generator: random.Random) -> Iterator[float]:
    correlation = math.exp(-fade.dynamics * fade.step.s)
    innovation = math.sqrt(1 - correlation**2)
    x = start
    for _ in range(count):
        yield x
        x = correlation * x + innovation * generator.gauss(0, 1)


def _states(fade: RainFade, acm: Acm) -> Iterator[TraceRow]:
    for index, attenuation in enumerate(attenuation_db(fade)):
        rate = acm.update_rate(fade.clear_db - es_n0_loss_db(attenuation, fade.system_kelvin), fade.rate)
        yield TraceRow(Duration(index * fade.step.ns), rate=rate, blocked=rate is None)
