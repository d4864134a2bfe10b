# SPDX-License-Identifier: Apache-2.0
"""A LEO shell as Starlink's first: passes of minutes, with hand-overs when the schedule finds a higher satellite."""

from atoll_core.units import Duration
from atoll_emulation.trace_generators.orbit import Constellation, Site
from atoll_emulation.trace_generators.passes import ConstellationService

SHELL = ConstellationService(
    Constellation(altitude_km=550, inclination_deg=53, planes=72, per_plane=22, phasing=39),
    mask_deg=25,
    period=Duration(15 * 10**9),
    keeps=False,
)
"""1584 satellites, as filed with the FCC (SAT-MOD-20190830-00087); the schedule of 15 s is what users measure (Mohan
et al., "A Multifaceted Look at Starlink Performance", WWW 2024). Walker's F is not in the filing: 39 keeps planes
apart where they cross."""

GATEWAY = Site(-18.14, 178.44)  # Suva, Fiji
ISLAND = Site(-21.14, -175.20)  # Nuku'alofa, Tonga
GAP = Duration(20 * 10**6)
