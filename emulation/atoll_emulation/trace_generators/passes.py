# SPDX-License-Identifier: Apache-2.0
"""A link through moving satellites: the satellite in use, delay, rate and hand-overs over time.

The satellite is a bent pipe between gateway and island. It must be high enough above both horizons.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from atoll_core.experiment.experiment import LinkTrace, TraceRow
from atoll_core.units import Duration, Rate
from atoll_emulation.trace_generators.acm import Acm
from atoll_emulation.trace_generators.orbit import (
    LIGHT_KM_S,
    Constellation,
    Floats,
    Satellites,
    Site,
    distance_km,
    elevation_deg,
    positions_km,
)
from atoll_emulation.trace_generators.trace_rows import make_trace

_RESOLUTION_NS = 1000  # of the delays written
_ZERO, _STEP, _DELAY_STEP = Duration(0), Duration(10 * 10**6), Duration(10_000)


@dataclass(frozen=True, slots=True)
class ConstellationService:
    """A constellation and how its operator uses it."""

    constellation: Constellation
    least_elevation_deg: float  # least elevation, at either end
    period: Duration  # between decisions on the satellite in use
    keeps_satellite: bool  # whether a satellite stays in use until it sets, or gives way to any higher one


@dataclass(frozen=True, slots=True)
class Pass:
    """A period of a service, to be made a trace."""

    service: ConstellationService
    gateway: Site
    island: Site
    duration: Duration
    seed: int  # turns the constellation
    start: Duration | None = None  # after the epoch; None: so that a hand-over comes halfway
    gap: Duration = _ZERO  # blocked at a hand-over
    added_delay: Duration = _ZERO  # one way: ground network, processing
    step: Duration = _STEP
    delay_step: Duration = _DELAY_STEP  # least change of the delay that makes a row
    rate: Rate | None = None  # with a satellite in the zenith; it goes down with the longer of the two paths
    zenith_db: float = 13.0  # Es/N0 with a satellite in the zenith


MEO = Pass(
    ConstellationService(
        Constellation(altitude_km=8062, inclination_deg=0.04, planes=1, per_plane=20, phasing=0),
        least_elevation_deg=10,
        period=Duration(10**9),
        keeps_satellite=True,
    ),
    Site(21.67, -158.03),  # Oahu, Hawaii
    Site(-21.20, -159.78),  # Rarotonga, Cook Islands
    duration=Duration(600 * 10**9),
    seed=1,
    gap=Duration(100 * 10**6),
)
"""An equatorial ring, the first generation of O3b: 20 satellites, 288 minutes a revolution, a hand-over every 18 min
from the setting satellite to the one that follows it."""

LEO = Pass(
    ConstellationService(
        Constellation(altitude_km=550, inclination_deg=53, planes=72, per_plane=22, phasing=39),
        least_elevation_deg=25,
        period=Duration(15 * 10**9),
        keeps_satellite=False,
    ),
    Site(-18.14, 178.44),  # Suva, Fiji
    Site(-21.14, -175.20),  # Nuku'alofa, Tonga
    duration=Duration(120 * 10**9),
    seed=1,
    gap=Duration(20 * 10**6),
)
"""A shell as Starlink's first: 1584 satellites, as filed with the FCC (SAT-MOD-20190830-00087); the schedule of 15 s is
what users measure (Mohan et al., "A Multifaceted Look at Starlink Performance", WWW 2024). Passes take minutes, with
hand-overs when the schedule finds a higher satellite. Walker's F is not in the filing: 39 keeps planes apart where they
cross."""


def pass_trace(setup: Pass) -> LinkTrace:
    """The trace of a link through the service. Raises PlanError when there is no satellite at its beginning."""
    generator = random.Random(setup.seed)  # noqa: S311 (the hour of the day, not a secret)
    satellites = setup.service.constellation.satellites(generator.uniform(0, 360), generator.uniform(0, 360))
    period = setup.service.period.ns
    duration_ns = setup.duration.ns
    if setup.start is not None:
        first_period = setup.start.ns // period
        used = _satellites_in_use(setup, satellites, first_period + duration_ns // period + 2)
    else:
        halfway = duration_ns // 2 // period
        revolution = int(setup.service.constellation.period_s * 1e9) // period
        used = _satellites_in_use(setup, satellites, revolution + duration_ns // period + 2)
        hand_overs = (index for index in range(halfway + 1, revolution) if _is_hand_over(used, index))
        first_period = next(hand_overs, halfway) - halfway
    used_in_trace = used[first_period : first_period + duration_ns // period + 1]
    acm = Acm(setup.zenith_db) if setup.rate else None
    return make_trace(_states(setup, satellites, first_period * period, used_in_trace, acm), setup.delay_step)


def _satellites_in_use(setup: Pass, satellites: Satellites, count: int) -> list[int | None]:
    """The satellite in use from each of the first ``count`` decisions since the epoch to the next one."""
    service = setup.service
    instants: Floats = np.arange(count + 1, dtype=np.float64) * service.period.s
    positions = positions_km(satellites, instants)
    lower = np.minimum(elevation_deg(setup.gateway, positions), elevation_deg(setup.island, positions))
    lowest = np.minimum(lower[:, :-1], lower[:, 1:])  # elevation rises and falls once: its least is at the ends
    highest = np.argmax(lowest, axis=0)
    used: list[int | None] = []
    current: int | None = None
    for index in range(count):
        if current is None or not service.keeps_satellite or lowest[current, index] < service.least_elevation_deg:
            best = int(highest[index])
            current = best if lowest[best, index] >= service.least_elevation_deg else None
        used.append(current)
    return used


def _is_hand_over(used: list[int | None], index: int) -> bool:
    return used[index - 1] is not None and used[index] is not None and used[index - 1] != used[index]


def _states(
    setup: Pass, satellites: Satellites, begin_ns: int, used: list[int | None], acm: Acm | None
) -> Iterator[TraceRow]:
    """The link's state at every step from ``begin_ns`` after the epoch on."""
    period = setup.service.period.ns
    previous: int | None = None
    index = 0
    for satellite, decisions in groupby(used):
        from_ns, until_ns = index * period, min((index := index + len(list(decisions))) * period, setup.duration.ns + 1)
        if satellite is None:
            yield TraceRow(Duration(from_ns), blocked=True)
        else:
            open_ns = from_ns + (setup.gap.ns if previous is not None else 0)
            yield from _states_of_satellite(
                setup, satellites, satellite, begin_ns, range(from_ns, until_ns, setup.step.ns), open_ns, acm
            )
        previous = satellite


def _states_of_satellite(
    setup: Pass, satellites: Satellites, satellite: int, begin_ns: int, times_ns: range, open_ns: int, acm: Acm | None
) -> Iterator[TraceRow]:
    """The states while one satellite is in use; blocked until ``open_ns``."""
    positions = positions_km([satellites[satellite]], (np.array(times_ns) + begin_ns) / 1e9)[0]
    up, down = distance_km(setup.gateway, positions), distance_km(setup.island, positions)
    delays_ns = (up + down) / LIGHT_KM_S * 1e9 + setup.added_delay.ns
    for t_ns, delay_ns, longer_km in zip(times_ns, delays_ns, np.maximum(up, down), strict=True):
        delay = Duration(round(float(delay_ns) / _RESOLUTION_NS) * _RESOLUTION_NS)
        rate, is_too_long = _rate(setup, float(longer_km), acm)
        yield TraceRow(Duration(t_ns), rate=rate, delay=delay, blocked=is_too_long or t_ns < open_ns)


def _rate(setup: Pass, longer_km: float, acm: Acm | None) -> tuple[Rate | None, bool]:
    """The rate over a path of this length, and whether it is too long for any mode."""
    if setup.rate is None or acm is None:
        return None, False
    loss_db = 20 * math.log10(longer_km / setup.service.constellation.altitude_km)
    rate = acm.update_rate(setup.zenith_db - loss_db, setup.rate)
    return rate, rate is None
