# SPDX-License-Identifier: Apache-2.0
"""In-band control during a measurement: it shares cables with the experiment's packets, and is counted by its entries.

It passes no tap of a switch. Physical taps may capture it; figures leave it out. Interface counters of its hosts
contain it.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

from atoll_core.plural import bit_rate, counted


class ControlPackets(TypedDict):
    """Packets of one direction."""

    packets: int  # packets, with those that were sent again
    bytes: int  # bytes of their frames


class ControlTraffic(TypedDict):
    """Packets of in-band control of all its hosts together, ARP included."""

    hosts: int  # hosts that have in-band control
    seconds: float  # time between the readings of the counters, which a hardware switch updates every 20 s by default
    to_hosts: ControlPackets  # from the machine that runs atoll
    to_daemon: ControlPackets  # from the hosts


def in_band_control(manifest: Mapping[str, Any]) -> ControlTraffic | None:
    """Return the recorded figures; None: no host has in-band control, or nothing was counted."""
    found = manifest.get("in_band_control")
    return None if found is None else ControlTraffic(**found)


def control_notes(traffic: ControlTraffic | None) -> list[str]:
    """Return a note on the packets of in-band control, a sentence."""
    if traffic is None or not traffic["seconds"]:
        return []

    def words(direction: ControlPackets) -> str:
        rate = bit_rate(8 * direction["bytes"] / traffic["seconds"])
        return f"{counted(direction['packets'], 'packet')} ({direction['bytes'] / 1e3:.1f} kB, {rate})"

    hosts = counted(traffic["hosts"], "host")
    to_them, from_them = words(traffic["to_hosts"]), words(traffic["to_daemon"])
    what = f"in-band control of {hosts} during the measurement: {to_them} to them, {from_them} from them"
    return [f"{what}; figures do not contain it"]
