# SPDX-License-Identifier: Apache-2.0
"""Whether a real machine can take part: what a laboratory of real machines gets wrong, told before anything is set."""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from atoll_core.errors import shown
from atoll_core.lab.inventory import InventoryMachine
from atoll_core.lab.network import Network
from atoll_hosts.clock_offset import ClockOffset

CLOCK_LIMIT_NS = 20_000_000
"""Instants of different machines stand side by side in a run; all hosts start within 50 ms of each other."""

_LEAST_FREE_BYTES = 1 << 30

_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")  # it goes into other machines' neighbour tables


def unready(machine: InventoryMachine, facts: Mapping[str, Any], clock: ClockOffset, reached_at: str) -> list[str]:
    """What keeps a machine from taking part, a line each, with the remedy.

    ``facts``: what its agent describes. ``reached_at``: the address there of the SSH connection.
    """
    name, found = machine.name, list[str]()
    if facts["missing_tools"]:
        tools = ", ".join(facts["missing_tools"])
        found.append(f"{name}: no {tools}; install iproute2, ethtool, nftables and coreutils there")
    if not facts["may_configure"]:
        found.append(f"{name}: user {facts['user']} may not configure interfaces; let root in, or say 'sudo: true'")
    if not facts["may_capture"]:
        found.append(f"{name}: user {facts['user']} may not capture; let root in, or say 'sudo: true'")
    if facts["free_bytes"] < _LEAST_FREE_BYTES:
        room = f"{facts['free_bytes'] / 1e9:.1f} GB"
        found.append(f"{name}: {room} free in /var/tmp, where captures wait; make room for 1 GB at least")
    found += clock_off(name, clock)
    there: Mapping[str, Any] = facts["interfaces"]
    for interface in machine.interfaces if "ip" not in facts["missing_tools"] else ():
        held = there.get(interface.name)
        if held is None:
            known = ", ".join(other for other in there if other != "lo")
            found.append(f"{name}: no interface {interface.name}; there are: {known}")
        elif not _MAC.fullmatch(held["mac"]):
            found.append(f"{name}: {interface.name} has an invalid MAC address: {shown(held['mac'])}")
        elif interface.mac is not None and interface.mac != held["mac"].lower():
            found.append(
                f"{name}: {interface.name} has MAC address {held['mac']}, the inventory says {interface.mac}; "
                "is it the right machine and the right port?"
            )
        elif any(address.partition("/")[0] == reached_at for address in held["addresses"]):
            found.append(
                f"{name}: {interface.name} is the interface by which it is reached ({reached_at}); the experiment "
                "network is another one, name its interface"
            )
    return found


def misplaced(what: str, address: IPv4Address | IPv6Address, network: Network) -> list[str]:
    """A line if an address of the management network lies in an experiment network, whose routes would cut it off."""
    for prefix in (network.world, network.island):
        if address in prefix:
            return [f"{what}, {address}, lies in the experiment network {prefix}; keep the management network apart"]
    return []


def without_carrier(machine: InventoryMachine, facts: Mapping[str, Any]) -> list[str]:
    """Interfaces that are up and have no carrier, a line each, with the remedy. ``facts``: what its agent describes."""
    there: Mapping[str, Any] = facts["interfaces"]
    return [
        f"{machine.name}: {interface.name} has no carrier; is its cable plugged in at both ends, the switch's port on?"
        for interface in machine.interfaces
        if interface.name in there and not there[interface.name]["carrier"]
    ]


def clock_off(name: str, clock: ClockOffset) -> list[str]:
    """A line if a machine's clock certainly is too far off."""
    if abs(clock.offset_ns) - clock.bound_ns <= CLOCK_LIMIT_NS:
        return []
    remedy = f"at most {CLOCK_LIMIT_NS / 1e6:g} ms is fine; run chrony on both machines"
    return [f"{name}: its clock is off by {clock}; {remedy}"]
