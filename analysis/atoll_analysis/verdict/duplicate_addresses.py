# SPDX-License-Identifier: Apache-2.0
"""Addresses of hosts that captures show with a MAC address of a machine outside the laboratory.

Routed boxes send the packets of all hosts with their own MAC addresses, and a change of the chain changes which MAC
address a tap sees. Therefore MAC addresses of boxes are no evidence. An unknown one is: if an ARP packet claimed the
address for it, or if a capture has IPv4 packets from the address with it and with the host's own
(docs/decisions/0079-evidence-about-hosts.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from atoll_analysis.tables.packet_records import Decoded
from atoll_analysis.verdict.findings import Finding, FindingCode, reason
from atoll_core.lab.network import Network


class DuplicateAddress(TypedDict):
    """An address of a host that another machine uses as well."""

    host: str  # the host to which the laboratory gives the address
    address: str  # the address
    mac: str  # MAC address of the host
    other_mac: str  # MAC address of the other machine
    captures: list[str]  # captures that show it
    arp: bool  # an ARP packet claimed the address for the other machine


def duplicate_addresses(network: Network, decoded: Mapping[str, Decoded]) -> list[DuplicateAddress]:
    """Return the addresses of hosts that captures show with the MAC address of another machine."""
    hosts = {str(host.address): host for host in network.hosts}
    names = {host.name for host in network.hosts}
    box_macs = {
        interface.mac.lower()
        for name, interfaces in network.machines.items()
        if name not in names
        for interface in interfaces
    }
    duplicates: dict[tuple[str, str], DuplicateAddress] = {}
    for capture, decoded_capture in sorted(decoded.items()):
        senders = {(address, mac) for address, mac, _ in decoded_capture.senders}
        for address, other_mac, by_arp in decoded_capture.senders:
            host = hosts.get(address)
            if host is None or other_mac in {(mac := host.interface.mac.lower()), *box_macs}:
                continue
            if by_arp or (address, mac) in senders:
                new_duplicate = DuplicateAddress(
                    host=host.name, address=address, mac=mac, other_mac=other_mac, captures=[], arp=False
                )
                duplicate = duplicates.setdefault((address, other_mac), new_duplicate)
                duplicate["captures"].append(capture)
                duplicate["arp"] |= by_arp
    return list(duplicates.values())


def judge_duplicates(duplicates: Sequence[DuplicateAddress]) -> Iterator[Finding]:
    """Return a finding for each duplicate address; the run measured another machine's traffic as well."""
    for duplicate in duplicates:
        evidence = "ARP" if duplicate["arp"] else "packets"
        captures = ("capture " if len(duplicate["captures"]) == 1 else "captures ") + ", ".join(duplicate["captures"])
        yield reason(
            FindingCode.DUPLICATE_ADDRESS,
            f"DUPLICATE_ADDRESS: another machine has the address {duplicate['address']} of {duplicate['host']}: MAC "
            f"address {duplicate['other_mac']} instead of {duplicate['mac']} (seen in {evidence} of {captures}); give "
            "that machine another address, or disconnect it",
        )
