# SPDX-License-Identifier: Apache-2.0
"""Heat and load of the machines of a run, from samples of their agents at its start and end. Pure."""

from collections.abc import Mapping
from typing import Any

from atoll_core.metrics.metrics_schema import EMULATION
from atoll_testbed.run.kernel_drops import DropSample, rise


def heat_between(begin: Mapping[str, DropSample], end: Mapping[str, DropSample]) -> dict[str, dict[str, Any]]:
    """Heat and load by machine, in the form of the manifest; machines of which nothing is known are left out."""
    found = {
        name: _heat(begin[name].sample["machine"], after.sample["machine"], emulated=name == EMULATION)
        for name, after in end.items()
        if after.unknown is None and begin[name].unknown is None
    }
    return {name: heat for name, heat in found.items() if any(each is not None for each in heat.values())}


def _heat(before: Mapping[str, Any], after: Mapping[str, Any], *, emulated: bool) -> dict[str, Any]:
    looks = rise(before, after, "heat_looks")
    return {
        "temperature_max_c": after.get("temperature_max_c"),
        "temperature_limit_c": after.get("temperature_limit_c"),
        "looks": looks,
        "hot_looks": rise(before, after, "hot_looks"),
        "low_voltage_looks": rise(before, after, "low_voltage_looks"),
        # Links and delay boxes of an emulated lab measure their own lateness, which says more.
        "busy": None if emulated else _busy(before, after),
    }


def _busy(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    busy, idle = rise(before, after, "busy_ns"), rise(before, after, "idle_ns")
    return round(busy / (busy + idle), 4) if busy is not None and idle is not None and busy + idle > 0 else None
