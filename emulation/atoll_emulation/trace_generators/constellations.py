# SPDX-License-Identifier: Apache-2.0
"""The constellations of `atoll link-traces`: an equatorial MEO ring as O3b's, a LEO shell as Starlink's first."""

from typing import NamedTuple

from atoll_core.units import Duration
from atoll_emulation.trace_generators.orbit import Constellation, Site
from atoll_emulation.trace_generators.passes import ConstellationService


class UsualPass(NamedTuple):
    """A service with a gateway and an island below it, and how long a hand-over blocks the link."""

    service: ConstellationService
    gateway: Site
    island: Site
    gap: Duration


MEO = UsualPass(
    ConstellationService(
        Constellation(altitude_km=8062, inclination_deg=0.04, planes=1, per_plane=20, phasing=0),
        mask_deg=10,
        period=Duration(10**9),
        keeps=True,
    ),
    Site(21.67, -158.03),  # Oahu, Hawaii
    Site(-21.20, -159.78),  # Rarotonga, Cook Islands
    Duration(100 * 10**6),
)
"""The first generation of O3b: 20 satellites, 288 minutes a revolution, a hand-over every 18 minutes from the setting
satellite to the one that follows it."""

LEO = UsualPass(
    ConstellationService(
        Constellation(altitude_km=550, inclination_deg=53, planes=72, per_plane=22, phasing=39),
        mask_deg=25,
        period=Duration(15 * 10**9),
        keeps=False,
    ),
    Site(-18.14, 178.44),  # Suva, Fiji
    Site(-21.14, -175.20),  # Nuku'alofa, Tonga
    Duration(20 * 10**6),
)
"""1584 satellites, as filed with the FCC (SAT-MOD-20190830-00087); the schedule of 15 s is what users measure (Mohan
et al., "A Multifaceted Look at Starlink Performance", WWW 2024). Passes take minutes, with hand-overs when the schedule
finds a higher satellite. Walker's F is not in the filing: 39 keeps planes apart where they cross."""
