# SPDX-License-Identifier: Apache-2.0
"""Adaptive coding and modulation: which DVB-S2 mode a modem uses at which signal-to-noise ratio, and at what rate."""

from dataclasses import dataclass

from atoll_core.errors import PlanError
from atoll_core.units import Rate


@dataclass(frozen=True, slots=True)
class Mode:
    """A modulation and code rate; normal FECFRAME without pilots."""

    name: str
    efficiency: float  # bits a symbol
    es_n0_db: float  # at which one packet in 10^7 is lost, ideal demodulator


MODES = (
    Mode("QPSK 1/4", 0.490243, -2.35),
    Mode("QPSK 1/3", 0.656448, -1.24),
    Mode("QPSK 2/5", 0.789412, -0.30),
    Mode("QPSK 1/2", 0.988858, 1.00),
    Mode("QPSK 3/5", 1.188304, 2.23),
    Mode("QPSK 2/3", 1.322253, 3.10),
    Mode("QPSK 3/4", 1.487473, 4.03),
    Mode("QPSK 4/5", 1.587196, 4.68),
    Mode("QPSK 5/6", 1.654663, 5.18),
    Mode("8PSK 3/5", 1.779991, 5.50),
    Mode("8PSK 2/3", 1.980636, 6.62),
    Mode("8PSK 3/4", 2.228124, 7.91),
    Mode("16APSK 2/3", 2.637201, 8.97),
    Mode("16APSK 3/4", 2.966728, 10.21),
    Mode("16APSK 4/5", 3.165623, 11.03),
    Mode("16APSK 5/6", 3.300184, 11.61),
    Mode("32APSK 3/4", 3.703295, 12.73),
    Mode("32APSK 4/5", 3.951571, 13.64),
    Mode("32APSK 5/6", 4.119540, 14.28),
    Mode("32APSK 8/9", 4.397854, 15.69),
    Mode("32APSK 9/10", 4.453027, 16.05),
)
"""ETSI EN 302 307-1, table 13, without the modes that another one beats in both figures; ascending."""

_LEAST_RATE_BIT_S = 1000  # bit/s, the least that a link accepts
_MARGIN_DB = 1.0  # for the losses of a real demodulator, and for the time until a change takes effect
_HYSTERESIS_DB = 0.5  # more before going up, so that small variation does not make modes flutter


class Acm:
    """The mode in use as Es/N0 varies: down at once, up again with a margin only.

    In a clear sky it is the most efficient mode that it would go up to; none is more efficient than that.
    """

    def __init__(self, clear_db: float) -> None:
        """``clear_db``: Es/N0 in a clear sky. Raises PlanError when not even that suffices for any mode."""
        clear_mode = _best_mode(clear_db - _HYSTERESIS_DB)
        if clear_mode is None:
            least = MODES[0].es_n0_db + _MARGIN_DB + _HYSTERESIS_DB
            raise PlanError(f"Es/N0 of {clear_db:g} dB is too low for the most robust mode, which needs {least:g} dB")
        self.clear_mode = clear_mode
        self._mode: Mode | None = clear_mode

    def update(self, es_n0_db: float) -> float:
        """Choose the mode for this Es/N0; the rate as a share of that in a clear sky, 0 when no mode gets through."""
        usable, reachable = _best_mode(es_n0_db), _best_mode(es_n0_db - _HYSTERESIS_DB)
        if _efficiency(usable) < _efficiency(self._mode):
            self._mode = usable
        elif _efficiency(reachable) > _efficiency(self._mode):
            self._mode = reachable
        return min(1.0, _efficiency(self._mode) / self.clear_mode.efficiency)

    def update_rate(self, es_n0_db: float, clear_rate: Rate) -> Rate | None:
        """Choose the mode for this Es/N0; its rate, None when no mode gets through."""
        share = self.update(es_n0_db)
        return Rate(max(_LEAST_RATE_BIT_S, round(share * clear_rate.bit_s))) if share else None


def _best_mode(es_n0_db: float) -> Mode | None:
    return next((mode for mode in reversed(MODES) if mode.es_n0_db + _MARGIN_DB <= es_n0_db), None)


def _efficiency(mode: Mode | None) -> float:
    return mode.efficiency if mode else 0.0
