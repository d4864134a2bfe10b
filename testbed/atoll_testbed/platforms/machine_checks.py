# SPDX-License-Identifier: Apache-2.0
"""Check the prerequisites of real machines before anything is configured."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from atoll_core.errors import shown
from atoll_core.lab.inventory import InventoryMachine, NamedInterface
from atoll_core.lab.network import Network
from atoll_hosts.machine import ClockOffset

CLOCK_LIMIT_NS = 20_000_000
"""A run combines times of different machines; all hosts start within 50 ms of each other."""

_MIN_FREE_BYTES = 1 << 30

_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")  # it goes into other machines' neighbour tables


def missing_prerequisites(
    machine: InventoryMachine, facts: Mapping[str, Any], clock: ClockOffset, ssh_address: str, network: Network
) -> Iterator[str]:
    """A line with a remedy for each prerequisite that a machine does not meet.

    ``facts``: its agent's description. ``ssh_address``: the address of the SSH connection on that machine.
    """
    name, user = machine.name, facts["user"]
    if facts["missing_tools"]:
        tools = ", ".join(facts["missing_tools"])
        yield f"{name}: no {tools}; install iproute2, ethtool, nftables and coreutils there"
    if not facts["may_configure"]:
        yield f"{name}: user {user} may not configure interfaces; log in as root, or write 'sudo: true'"
    if not facts["may_capture"]:
        yield f"{name}: user {user} may not capture; log in as root, or write 'sudo: true'"
    if facts["free_bytes"] < _MIN_FREE_BYTES:
        free = f"{facts['free_bytes'] / 1e9:.1f} GB"
        yield f"{name}: only {free} free in /var/tmp, where captures are stored; at least 1 GB is needed"
    yield from clock_lines(name, clock)
    if "ip" not in facts["missing_tools"]:
        for interface in machine.interfaces:
            yield from _wrong_interface(name, interface, facts["interfaces"], ssh_address, network)


def _wrong_interface(
    name: str, interface: NamedInterface, interfaces: Mapping[str, Any], ssh_address: str, network: Network
) -> Iterator[str]:
    control = {host.name: host.control for host in network.in_band_hosts}.get(name)
    actual = interfaces.get(interface.name)
    if actual is None:
        names = ", ".join(name_there for name_there in interfaces if name_there != "lo")
        yield f"{name}: no interface {interface.name}; there are: {names}"
    elif not _MAC.fullmatch(actual["mac"]):
        yield f"{name}: {interface.name} has an invalid MAC address: {shown(actual['mac'])}"
    elif interface.mac is not None and interface.mac != actual["mac"].lower():
        yield (
            f"{name}: {interface.name} has MAC address {actual['mac']}, the inventory says {interface.mac}; "
            "is it the right machine and the right port?"
        )
    elif control is not None:
        if str(control) not in {address.partition("/")[0] for address in actual["addresses"]}:
            yield f"{name}: {interface.name} does not have its control address {control}; give it that address there"
        elif ssh_address and ssh_address != str(control):
            yield f"{name}: it is reached at {ssh_address}, not at its control address {control}; name that under ssh"
    elif any(address.partition("/")[0] == ssh_address for address in actual["addresses"]):
        remedy = "name the interface of the experiment network"
        if name in {host.name for host in network.hosts}:
            remedy += ", or, if it is the only one, add 'control' to the lab and to this host (in-band control)"
        yield f"{name}: {interface.name} is the interface of the management network ({ssh_address}); {remedy}"


def address_conflict(subject: str, address: IPv4Address | IPv6Address, network: Network) -> list[str]:
    """A line if a management address is in an experiment network, whose routes would make it unreachable."""
    for prefix in (network.world, network.island):
        if address in prefix:
            return [f"{subject}, {address}, is in the experiment network {prefix}; use a separate management network"]
    return []


def carrier_lines(machine: InventoryMachine, facts: Mapping[str, Any]) -> list[str]:
    """A line with a remedy for each interface that is up without a carrier. ``facts``: its agent's description."""
    interfaces = facts["interfaces"]
    return [
        f"{machine.name}: {interface.name} has no carrier; check the cable at both ends, and enable the switch's port"
        for interface in machine.interfaces
        if interface.name in interfaces and not interfaces[interface.name]["carrier"]
    ]


def clock_lines(name: str, clock: ClockOffset) -> list[str]:
    """A line if a machine's clock offset is certainly too large."""
    if abs(clock.offset_ns) - clock.bound_ns <= CLOCK_LIMIT_NS:
        return []
    remedy = f"at most {CLOCK_LIMIT_NS / 1e6:g} ms is allowed; run chrony on both machines"
    return [f"{name}: its clock is off by {clock}; {remedy}"]
