# SPDX-License-Identifier: Apache-2.0
"""Positions of satellites as seen from the ground: constellations from orbital elements, by SGP4/SDP4.

No ephemeris is downloaded: a Walker constellation is defined by its elements. The model is the one for two-line
elements (Vallado et al., "Revisiting Spacetrack Report #3", AIAA 2006-6753), from the package sgp4.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

LIGHT_KM_S = 299_792.458
EARTH_RADIUS_KM = 6378.137  # WGS 84, equatorial
_FLATTENING = 1 / 298.257223563  # WGS 84
_MU_KM3_S2 = 398_600.4418  # WGS 84
_SECONDS_A_DAY = 86_400.0
_EPOCH_JD = 2_460_676.5  # 2025-01-01 00:00 UTC; traces count seconds from here
_SGP4_JD = 2_433_281.5  # 1949-12-31 00:00 UTC, from where sgp4init counts

Floats = npt.NDArray[np.float64]
Satellites = list[Any]  # of sgp4, which has no types


@dataclass(frozen=True, slots=True)
class Site:
    """A place on the ground, at sea level."""

    latitude_deg: float
    longitude_deg: float

    @property
    def up(self) -> Floats:
        """Unit vector to the zenith, Earth-fixed."""
        latitude, longitude = math.radians(self.latitude_deg), math.radians(self.longitude_deg)
        horizontal = math.cos(latitude)
        return np.array([horizontal * math.cos(longitude), horizontal * math.sin(longitude), math.sin(latitude)])

    @property
    def position_km(self) -> Floats:
        """Earth-fixed position on the ellipsoid."""
        flattening = (1 - _FLATTENING) ** 2
        radius_km = EARTH_RADIUS_KM / math.sqrt(1 - (1 - flattening) * math.sin(math.radians(self.latitude_deg)) ** 2)
        return self.up * np.array([radius_km, radius_km, radius_km * flattening])


@dataclass(frozen=True, slots=True)
class Constellation:
    """Circular orbits in planes evenly around the Earth (Walker delta)."""

    altitude_km: float
    inclination_deg: float
    planes: int
    per_plane: int
    phasing: int  # Walker's F: how far the next plane is ahead, in parts of 360 degrees / satellites

    @property
    def period_s(self) -> float:
        """Time of one revolution."""
        return 2 * math.pi * math.sqrt((EARTH_RADIUS_KM + self.altitude_km) ** 3 / _MU_KM3_S2)

    def satellites(self, node_deg: float, anomaly_deg: float) -> Satellites:
        """Its satellites, turned: ascending node and mean anomaly of the first one at the epoch."""
        spacing = 360 / (self.planes * self.per_plane)
        return [
            _satellite(
                self,
                node_deg + 360 * plane / self.planes,
                anomaly_deg + 360 * slot / self.per_plane + spacing * self.phasing * plane,
            )
            for plane in range(self.planes)
            for slot in range(self.per_plane)
        ]


def positions_km(satellites: Satellites, seconds: Floats) -> Floats:
    """Earth-fixed positions at instants in seconds after the epoch: satellites x instants x 3."""
    from sgp4 import api

    errors, positions, _ = cast(Any, api).SatrecArray(satellites).sgp4(*_julian_date(seconds))
    return _earth_fixed(_checked(errors, positions), seconds)


def distance_km(site: Site, positions: Floats) -> Floats:
    """Slant range from a site to positions (... x 3)."""
    return np.linalg.norm(positions - site.position_km, axis=-1)


def elevation_deg(site: Site, positions: Floats) -> Floats:
    """Elevation of positions (... x 3) above a site's horizon."""
    direction = positions - site.position_km
    return np.degrees(np.arcsin(direction @ site.up / np.linalg.norm(direction, axis=-1)))


def _satellite(constellation: Constellation, node_deg: float, anomaly_deg: float) -> Any:
    from sgp4 import api

    sgp4 = cast(Any, api)
    satellite = sgp4.Satrec()
    satellite.sgp4init(
        sgp4.WGS84,
        "i",  # improved mode
        1,  # catalogue number, of no meaning here
        _EPOCH_JD - _SGP4_JD,
        0.0,  # drag
        0.0,  # derivatives of the mean motion, unused by the model
        0.0,
        0.0,  # eccentricity
        0.0,  # argument of perigee
        math.radians(constellation.inclination_deg),
        math.radians(anomaly_deg % 360),
        2 * math.pi / constellation.period_s * 60,  # mean motion, radians a minute
        math.radians(node_deg % 360),
    )
    return satellite


def _julian_date(seconds: Floats) -> tuple[Floats, Floats]:
    return np.full_like(seconds, _EPOCH_JD), seconds / _SECONDS_A_DAY


def _checked(errors: Any, positions: Any) -> Floats:
    if np.any(errors):
        raise ValueError(f"SGP4 cannot propagate these elements (error {int(np.max(errors))})")
    return positions


def _earth_fixed(positions: Floats, seconds: Floats) -> Floats:
    """From the model's inertial frame (TEME) by sidereal time, polar motion left out (10 m)."""
    angle = _sidereal_rad(seconds)
    cos, sin = np.cos(angle), np.sin(angle)
    x, y, z = positions[..., 0], positions[..., 1], positions[..., 2]
    return np.stack([cos * x + sin * y, cos * y - sin * x, z], axis=-1)


def _sidereal_rad(seconds: Floats) -> Floats:
    """Greenwich mean sidereal time, IAU 1982; UT1 taken for UTC."""
    centuries = (_EPOCH_JD - 2_451_545.0 + seconds / _SECONDS_A_DAY) / 36_525
    seconds_of_day = 67_310.54841 + (876_600 * 3600 + 8_640_184.812866) * centuries + 0.093104 * centuries**2
    return np.remainder(seconds_of_day, _SECONDS_A_DAY) * (2 * math.pi / _SECONDS_A_DAY)
