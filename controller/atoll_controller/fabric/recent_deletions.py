# SPDX-License-Identifier: Apache-2.0
"""Recently deleted entries, by which a switch may still forward.

A data plane may be seconds behind the barriers of its switch. An entry that is added again within that time cannot be
proven: probes pass by the old one, and packets are lost between the two. docs/swaps.md describes this for users.
"""

import time
from collections.abc import Callable, Iterable

from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry, Match, UnmanagedEntry
from atoll_switches.capability_profile import profile


class Deletions:
    """Deleted entries of switches with a lagging data plane (``Profile.lag_s``). ``clock``: in seconds."""

    def __init__(self, network: Network, clock: Callable[[], float] = time.monotonic) -> None:
        self._lags_s = {switch.name: profile(switch.driver).lag_s for switch in network.switches}
        self._clock = clock
        self._gone_s: dict[tuple[str, Match], float] = {}  # when the data plane has certainly removed the entry

    def remember(self, entries: Iterable[FlowEntry | UnmanagedEntry]) -> None:
        """Note entries that were deleted; drop entries forward no probe and are ignored."""
        now = self._clock()
        self._gone_s = {key: gone_s for key, gone_s in self._gone_s.items() if gone_s > now}
        for entry in entries:
            if isinstance(entry, FlowEntry) and entry.actions and self._lags_s[entry.switch]:
                self._gone_s[entry.switch, entry.match] = now + self._lags_s[entry.switch]

    def wait_s(self, entries: Iterable[FlowEntry]) -> float:
        """The time until no switch forwards by a deleted version of these entries."""
        gone_s = (self._gone_s.get((entry.switch, entry.match), 0.0) for entry in entries)
        return max(0.0, max(gone_s, default=0.0) - self._clock())
