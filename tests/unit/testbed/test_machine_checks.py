# SPDX-License-Identifier: Apache-2.0
"""What keeps a real machine from taking part is told before anything is set, with the remedy."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from atoll_core.description.loader import load_lab
from atoll_core.lab.inventory import InventoryMachine, NamedInterface, SshAccess
from atoll_hosts.machine import ClockOffset
from atoll_testbed.platforms.machine_checks import (
    CLOCK_LIMIT_NS,
    address_conflict,
    carrier_lines,
    missing_prerequisites,
)

LAB = Path(__file__).parents[2] / "data" / "rack-lab.yaml"
IN_BAND_LAB = LAB.with_name("rack-in-band-lab.yaml")
MAC = "02:00:00:00:00:01"
RIGHT: dict[str, Any] = {
    "user": 0,
    "may_configure": True,
    "may_capture": True,
    "missing_tools": [],
    "free_bytes": 20 << 30,
    "interfaces": {
        "lo": {"mac": "00:00:00:00:00:00", "addresses": ["127.0.0.1/8"]},
        "eth0": {"mac": "02:00:00:00:00:00", "addresses": ["10.0.0.1/24"]},
        "eth1": {"mac": MAC, "addresses": []},
    },
}


def answer(interface: str = "eth1", mac: str | None = None, offset_ns: int = 0, bound_ns: int = 100_000, **facts: Any):
    machine = InventoryMachine("w1", SshAccess("10.0.0.1"), (NamedInterface("interface", interface, mac),))
    clock = ClockOffset(offset_ns, bound_ns, 2 * bound_ns)
    return list(missing_prerequisites(machine, RIGHT | facts, clock, "10.0.0.1", load_lab(LAB)))


def test_an_address_of_the_management_network_is_not_the_experiments(project: Path) -> None:
    network = load_lab(project / "tests" / "data" / "rack-lab.yaml")
    assert address_conflict("the controller's address", ip_address("192.168.100.1"), network) == []
    assert address_conflict("the controller's address", ip_address("fe80::1"), network) == []
    inside = network.island.network_address + 7
    (line,) = address_conflict("w1: its management address", inside, network)
    assert line.startswith(f"w1: its management address, {inside}, is in the experiment network {network.island}")


def test_interfaces_without_a_carrier_are_named() -> None:
    machine = InventoryMachine("w1", SshAccess("10.0.0.1"), (NamedInterface("interface", "eth1"),))
    there = {"interfaces": {"eth0": {"carrier": False}, "eth1": {"carrier": False}}}
    (line,) = carrier_lines(machine, there)
    assert line.startswith("w1: eth1 has no carrier")
    assert carrier_lines(machine, {"interfaces": {"eth1": {"carrier": True}}}) == []
    assert carrier_lines(machine, {"interfaces": {}}) == [], "that it is gone is another complaint"


def test_a_machine_in_order_is_ready() -> None:
    assert answer() == []
    assert answer(mac=MAC) == []


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ({"interface": "eno1"}, "w1: no interface eno1; there are: eth0, eth1"),
        ({"interface": "eth0"}, "w1: eth0 is the interface of the management network (10.0.0.1)"),
        ({"mac": "02:00:00:00:00:09"}, f"w1: eth1 has MAC address {MAC}, the inventory says 02:00:00:00:00:09"),
        ({"missing_tools": ["nft"]}, "w1: no nft; install"),
        ({"missing_tools": ["ip"], "interfaces": {}}, "w1: no ip; install"),
        ({"may_configure": False, "user": 1000}, "w1: user 1000 may not configure interfaces"),
        ({"may_capture": False, "user": 1000}, "w1: user 1000 may not capture"),
        ({"free_bytes": 1 << 20}, "w1: only 0.0 GB free in /var/tmp"),
        ({"offset_ns": -3_600_000_000_000}, "w1: its clock is off by -3600000.00 ms"),
    ],
)
def test_what_is_wrong_is_named(lacks: dict[str, Any], words: str) -> None:
    (line,) = answer(**lacks)
    assert line.startswith(words)


def in_band(addresses: list[str], reached_at: str) -> list[str]:
    """What is wrong with a client whose only interface has these addresses."""
    machine = InventoryMachine("i1", SshAccess(reached_at), (NamedInterface("interface", "eth0"),))
    facts = RIGHT | {"interfaces": {"eth0": {"mac": MAC, "addresses": addresses}}}
    return list(missing_prerequisites(machine, facts, ClockOffset(0, 0, 0), reached_at, load_lab(IN_BAND_LAB)))


def test_the_only_interface_of_a_host_carries_its_control_if_the_lab_says_so() -> None:
    address = "192.168.10.31"
    assert in_band([f"{address}/24"], address) == []
    assert in_band([f"{address}/24"], "") == [], "behind a jump host it is unknown how it was reached"
    assert in_band([], address) == [f"i1: eth0 does not have its control address {address}; give it that address there"]
    assert in_band([f"{address}/24"], "10.0.0.1") == [
        f"i1: it is reached at 10.0.0.1, not at its control address {address}; name that under ssh"
    ]


def test_a_host_without_in_band_control_is_told_how_to_have_it() -> None:
    (line,) = answer("eth0")
    assert line.endswith(
        "; name the interface of the experiment network, or, if it is the only one, add 'control' to the lab and to "
        "this host (in-band control)"
    )


def test_a_clock_is_wrong_only_if_the_measurement_proves_it() -> None:
    assert answer(offset_ns=CLOCK_LIMIT_NS + 5_000_000, bound_ns=6_000_000) == []
    assert answer(offset_ns=CLOCK_LIMIT_NS + 5_000_000, bound_ns=4_000_000)
