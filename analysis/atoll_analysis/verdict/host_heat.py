# SPDX-License-Identifier: Apache-2.0
"""Machines that were too hot, throttled or too busy during a measurement, with remedies.

A processor that is slowed down serves its packets later, and a client receives less than the network delivers. The
agent of each machine looks at its sensors (hosts/crates/agent/src/heat.rs, which names the sources of the limits). A
machine without sensors is unknown, and nothing is said about it (docs/decisions/0079-evidence-about-hosts.md).
"""

from collections.abc import Iterator, Mapping
from typing import TypedDict

from atoll_analysis.verdict.findings import Finding, FindingCode, caveat
from atoll_analysis.verdict.lost_outside import MOST_NAMES, machine_text
from atoll_core.plural import first_of

MOST_BUSY_SHARE = 0.95
"""Largest share of all processors' time that a machine may be busy. At this load a packet waits for a processor twenty
times as long as it needs it (mean of an M/M/1 queue, 1 / (1 - 0.95))."""


class HostHeat(TypedDict):
    """Heat and load of a machine between the boxes' marks `begin` and `end`."""

    temperature_max_c: float | None  # highest temperature of its processors; None: no sensor
    temperature_limit_c: float | None  # temperature from which it is slowed down; None: not known
    looks: int | None  # times that its agent looked at its sensors; None: it has none
    hot_looks: int | None  # looks that found it throttled or at its limit; None: likewise
    low_voltage_looks: int | None  # looks that found its supply voltage too low; None: it does not show that
    # share of all its processors' time that was not idle; None: not known, or it is the machine of an emulated lab
    busy: float | None


def judge_heat(machines: Mapping[str, HostHeat]) -> Iterator[Finding]:
    """Return a finding for each cause that slowed machines down."""
    if hot_machines := [f"{looks}{_temperature_text(machines[name])}" for name, looks in _looks(machines, "hot_looks")]:
        yield caveat(
            FindingCode.HOST_HOT,
            f"HOST_HOT: processors were throttled or at their temperature limit: {first_of(hot_machines, MOST_NAMES)}: "
            "cool the machine, or give it fewer channels (capacity)",
        )
    if low := [looks for _, looks in _looks(machines, "low_voltage_looks")]:
        yield caveat(
            FindingCode.HOST_HOT,
            f"HOST_HOT: processors were slowed down by a supply voltage that is too low: {first_of(low, MOST_NAMES)}: "
            "use a stronger power supply or a shorter cable",
        )
    busy = [
        f"{name} {heat['busy'] * 100:.1f} %"
        for name, heat in machines.items()
        if heat["busy"] is not None and heat["busy"] > MOST_BUSY_SHARE
    ]
    if busy:
        yield caveat(
            FindingCode.HOST_HOT,
            f"HOST_HOT: processors were too busy, bound {MOST_BUSY_SHARE * 100:g} %: {first_of(busy, MOST_NAMES)}: "
            "stop other programs there, or give the machine fewer channels (capacity)",
        )


def _looks(machines: Mapping[str, HostHeat], count: str) -> Iterator[tuple[str, str]]:
    """Yield each machine that has looks of this kind, with their number as text."""
    for name, heat in machines.items():
        if heat.get(count):
            yield name, f"{machine_text(name)} in {heat.get(count)} of {heat['looks']} looks"


def _temperature_text(heat: HostHeat) -> str:
    highest, limit = heat["temperature_max_c"], heat["temperature_limit_c"]
    if highest is None:
        return ""
    return f" ({highest:.0f} °C" + (")" if limit is None else f", limit {limit:.0f} °C)")
