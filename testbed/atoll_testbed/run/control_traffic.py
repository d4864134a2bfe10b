# SPDX-License-Identifier: Apache-2.0
"""The packets of in-band control during a measurement, from the counters of its flow entries.

All of them pass the switch to which the daemon's machine is attached, and match one entry there.
"""

import time
from dataclasses import dataclass
from typing import Any

from atoll_apps.control import is_control, to_hosts
from atoll_controller.fabric.flow_installer import table_of
from atoll_core.errors import LabError
from atoll_testbed.testbed import Testbed


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
        found = await testbed.controller.counters(switch.dpid, await table_of(testbed.controller, switch))
    except LabError:
        return None  # the run decides whether it can continue without it
    entries = [entry for entry in found["entries"] if is_control(entry["cookie"])]

    def total(*, to: bool) -> tuple[int, int]:
        mine = [entry for entry in entries if to_hosts(entry["cookie"]) is to]
        return sum(entry["packets"] for entry in mine), sum(entry["bytes"] for entry in mine)

    return ControlSample(time.monotonic(), len(network.in_band_hosts), total(to=True), total(to=False))


def control_increase(begin: ControlSample | None, end: ControlSample | None) -> dict[str, Any] | None:
    """The increase between two samples, in the form of the manifest; None if a sample is missing."""
    if begin is None or end is None:
        return None

    def rise(before: tuple[int, int], after: tuple[int, int]) -> dict[str, int]:
        # A switch that was rebooted meanwhile counts from zero.
        packets, count = (max(0, later - earlier) for earlier, later in zip(before, after, strict=True))
        return {"packets": packets, "bytes": count}

    return {
        "hosts": end.hosts,
        "seconds": round(end.t_s - begin.t_s, 3),
        "to_hosts": rise(begin.to_hosts, end.to_hosts),
        "to_daemon": rise(begin.to_daemon, end.to_daemon),
    }
