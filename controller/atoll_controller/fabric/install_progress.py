# SPDX-License-Identifier: Apache-2.0
"""Progress of long installations, and the time to go: hardware may take a hundred flow-mods a second. Pure."""

import math
from collections.abc import Callable, Mapping

from atoll_controller.openflow.controller_client import OnProgress
from atoll_core.units import Duration

_EVERY_S = 1.0  # between two lines; an installation that ends before has none


class InstallProgress:
    """Changes that switches have acknowledged, of all that are sent to them.

    ``totals``: the number of changes by the switch's name. ``say``: takes a line such as
    ``sw-w: 640 of 1500 changes, 9 s to go``, for the switch that will take longest. ``clock``: in seconds.
    """

    def __init__(self, totals: Mapping[str, int], say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._totals = totals
        self._done = dict.fromkeys(totals, 0)
        self._begun = dict.fromkeys(totals, 0)  # changes of batches so far
        self._say = say
        self._clock = clock
        self._began_s = self._said_s = clock()

    def batch(self, switch: str, number: int) -> OnProgress:
        """The progress of a switch's next changes, of that number; those before are done."""
        before = self._done[switch] = self._begun[switch]
        self._begun[switch] += number

        def progress(done: int) -> None:
            self._done[switch] = before + min(done, number)
            self._report()

        return progress

    def _report(self) -> None:
        now_s = self._clock()
        if now_s - self._said_s < _EVERY_S:
            return
        left = {name: self._to_go_s(name, now_s) for name, total in self._totals.items() if self._done[name] < total}
        if left:
            self._said_s = now_s
            slowest = max(left, key=lambda name: left[name])
            seconds = max(1, math.ceil(left[slowest]))
            self._say(
                f"{slowest}: {self._done[slowest]} of {self._totals[slowest]} changes of its flow table, "
                f"{Duration.parse(f'{seconds} s')} to go"
            )

    def _to_go_s(self, switch: str, now_s: float) -> float:
        """By the switch's rate so far; 0 for one that has not acknowledged anything."""
        done = self._done[switch]
        return (now_s - self._began_s) * (self._totals[switch] - done) / done if done else 0.0
