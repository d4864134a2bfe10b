# SPDX-License-Identifier: Apache-2.0
"""Two MAC addresses for one address in captures: a duplicate, or the work of routed boxes and swaps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.tables.packet_records import Decoded
from atoll_analysis.verdict.duplicate_addresses import duplicate_addresses, judge_duplicates
from atoll_analysis.verdict.verdict import judge
from atoll_core.description.loader import load_lab
from atoll_core.lab.network import Network
from tests.unit.analysis.test_verdict import VALID

FOREIGN = "00:1e:67:aa:bb:cc"


@pytest.fixture(scope="module")
def network(project: Path) -> Network:
    return load_lab(project / "tests/data/rack-lab.yaml")


def findings(network: Network, captures: Mapping[str, list[tuple[str, str, bool]]]) -> list[str]:
    decoded = {name: Decoded(9, 0, truncated=False, senders=tuple(senders)) for name, senders in captures.items()}
    found = list(judge_duplicates(duplicate_addresses(network, decoded)))
    assert all(finding.is_reason for finding in found)
    return [finding.text for finding in found]


def test_an_unknown_mac_address_that_sends_for_a_host_is_named_with_both_and_the_captures(network: Network) -> None:
    client = next(host for host in network.hosts if host.name == "i1")
    both = [("10.20.0.1", mac, False) for mac in (client.interface.mac, FOREIGN)]
    assert findings(network, {"world": both, "island": both}) == [
        (
            f"DUPLICATE_ADDRESS: another machine has the address 10.20.0.1 of i1: MAC address {FOREIGN} instead of "
            f"{client.interface.mac} (seen in packets of captures island, world); give that machine another address, "
            "or disconnect it"
        )
    ]


def test_an_arp_packet_is_enough(network: Network) -> None:
    """Hosts of a lab send none, so that a claim is another machine's."""
    (found,) = findings(network, {"tap-3": [("10.10.0.1", FOREIGN, True)]})
    assert "another machine has the address 10.10.0.1 of w1: " in found
    assert "(seen in ARP of capture tap-3)" in found


def test_routed_boxes_and_a_router_in_front_of_a_tap_are_no_duplicates(network: Network) -> None:
    """A box sends for all hosts; a router outside the lab replaces the MAC address of every packet at a tap."""
    hosts = {host.name: host for host in network.hosts}
    box = next(box for box in network.boxes if box.name == "pep")
    own, other = hosts["i1"].interface.mac, box.island.mac
    swapped = [("10.20.0.1", mac, False) for mac in (own, other.upper().lower())]
    routed = [(str(host.address), FOREIGN, False) for host in network.hosts]
    strangers = [("192.0.2.1", mac, True) for mac in (own, FOREIGN)]
    proxy = [("10.20.0.1", other, True)]
    assert findings(network, {"world": swapped, "island": routed, "link": strangers, "tap-2": proxy}) == []


def test_a_host_with_the_address_of_another_is_a_duplicate(network: Network) -> None:
    hosts = {host.name: host for host in network.hosts}
    both = [("10.20.0.1", hosts[name].interface.mac, False) for name in ("i1", "is")]
    (found,) = findings(network, {"island": both})
    assert hosts["is"].interface.mac in found


def test_it_makes_a_run_invalid() -> None:
    entry = {"host": "i1", "address": "10.20.0.1", "mac": "02:00:00:00:00:01", "other_mac": FOREIGN}
    summary: Any = {**VALID, "duplicate_addresses": [{**entry, "captures": ["world"], "arp": True}]}
    (finding,) = judge(summary)
    assert finding.is_reason
    assert finding.text.startswith("DUPLICATE_ADDRESS: another machine has the address 10.20.0.1 of i1: ")
