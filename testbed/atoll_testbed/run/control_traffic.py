# SPDX-License-Identifier: Apache-2.0
"""The packets of in-band control during a measurement, from the counters of its flow entries.

All of them pass the switch to which the daemon's machine is attached, and match one entry there.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from atoll_apps.control import is_control, is_to_hosts
from atoll_controller.fabric.flow_installer import table_of
from atoll_core.errors import LabError
from atoll_testbed.testbed import Testbed

_END_TIMEOUT_S = 3.0  # for the reading at the end, as the load is stopped after it


@dataclass(frozen=True, slots=True)
class ControlSample:
    """Counters of in-band control at a time (``time.monotonic``); ``hosts``: that have it."""

    t_s: float
    hosts: int
    to_hosts: tuple[int, int]  # packets, bytes of frames
    to_daemon: tuple[int, int]


async def sample_control(testbed: Testbed) -> ControlSample | None:
    """Read the counters. None if no host has in-band control, or the switch does not answer."""
    network = testbed.network
    if network.control is None or not network.in_band_hosts:
        return None
    switch = network.switch(network.control.port.switch)
    try:
        counters = await testbed.controller.counters(switch.dpid, await table_of(testbed.controller, switch))
    except LabError:
        return None  # the run decides whether it can continue without it

    def total(*, to_host: bool) -> tuple[int, int]:
        cookies = ((entry, entry["cookie"]) for entry in counters["entries"])
        entries = [entry for entry, cookie in cookies if is_control(cookie) and is_to_hosts(cookie) is to_host]
        return sum(entry["packets"] for entry in entries), sum(entry["bytes"] for entry in entries)

    return ControlSample(time.monotonic(), len(network.in_band_hosts), total(to_host=True), total(to_host=False))


class ControlCount:
    """Counts in-band control from :meth:`begin` to :meth:`end`. ``close`` it in any case.

    A switch that does not answer holds up nothing else, but the end by 3 s.
    """

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._first: asyncio.Task[ControlSample | None] | None = None

    def begin(self) -> None:
        """Read the counters for the first time, in the background. Later calls do nothing."""
        if self._first is None:
            self._first = asyncio.create_task(sample_control(self._testbed))

    async def end(self) -> dict[str, Any] | None:
        """The increase, as :func:`control_increase`; None if a reading is missing by now or takes too long."""
        if self._first is None or not self._first.done() or (first := self._first.result()) is None:
            return None
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                return control_increase(first, await sample_control(self._testbed))
        except TimeoutError:
            return None

    def close(self) -> None:
        """Give up a reading that has not ended."""
        if self._first is not None:
            self._first.cancel()


def control_increase(begin: ControlSample | None, end: ControlSample | None) -> dict[str, Any] | None:
    """The increase between two samples, in the form of the manifest; None if a sample is missing."""
    if begin is None or end is None:
        return None

    def increase(before: tuple[int, int], after: tuple[int, int]) -> dict[str, int]:
        # A switch that was rebooted meanwhile counts from zero.
        packets, count = (max(0, later - earlier) for earlier, later in zip(before, after, strict=True))
        return {"packets": packets, "bytes": count}

    return {
        "hosts": end.hosts,
        "seconds": round(end.t_s - begin.t_s, 3),
        "to_hosts": increase(begin.to_hosts, end.to_hosts),
        "to_daemon": increase(begin.to_daemon, end.to_daemon),
    }
