# SPDX-License-Identifier: Apache-2.0
"""An equatorial MEO ring as O3b's: a pass with hand-over from the setting satellite to the one that follows it."""

from atoll_core.units import Duration
from atoll_emulation.trace_generators.orbit import Constellation, Site
from atoll_emulation.trace_generators.passes import ConstellationService

RING = ConstellationService(
    Constellation(altitude_km=8062, inclination_deg=0.04, planes=1, per_plane=20, phasing=0),
    mask_deg=10,
    period=Duration(10**9),
    keeps=True,
)
"""The first generation of O3b: 20 satellites, 288 minutes a revolution, a hand-over every 18 minutes."""

GATEWAY = Site(21.67, -158.03)  # Oahu, Hawaii
ISLAND = Site(-21.20, -159.78)  # Rarotonga, Cook Islands
GAP = Duration(100 * 10**6)
