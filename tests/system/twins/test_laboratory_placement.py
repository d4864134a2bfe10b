# SPDX-License-Identifier: Apache-2.0
"""The whole laboratory on ProCurve switches: where its flow entries lie on each generation of modules."""

import json
import subprocess

import pytest

from tests.support.sandbox import ATOLL, ROOT

LABORATORY = ROOT / "examples" / "laboratory-procurve.yaml"


def plan(driver: str) -> tuple[int, dict[str, dict[str, list[str]]]]:
    """The exit code of ``atoll plan --driver``, and of every switch the reasons of its entries, by place."""
    argv = [str(ATOLL), "plan", str(LABORATORY), "--driver", driver, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    found: dict[str, dict[str, list[str]]] = {}
    for entry in json.loads(done.stdout)["placement"]["entries"]:
        found.setdefault(entry["switch"], {}).setdefault(entry["place"], []).append(entry["why"])
    return done.returncode, found


@pytest.mark.parametrize("driver", ["procurve-v2", "procurve-v3"])
def test_every_entry_lies_in_hardware_on_modules_that_write_vlan_tags(driver: str) -> None:
    """367 entries, 214 of them on the switch of the island, whose clients are behind three of its ports."""
    code, found = plan(driver)
    assert code == 0
    assert {switch: {place: len(why) for place, why in places.items()} for switch, places in found.items()} == {
        "sw-w1": {"hardware": 24},
        "sw-w2": {"hardware": 24},
        "sw-c": {"hardware": 105},
        "sw-i": {"hardware": 214},
    }


def test_v1_modules_say_which_entries_they_carry_in_software() -> None:
    """On a switch of world servers one entry for each server: the one that pushes the tag of its latency class."""
    code, found = plan("procurve-v1")
    assert code != 0
    servers = {"sw-w1": [*(f"w{n}" for n in range(1, 12)), "ws"], "sw-w2": [*(f"w{n}" for n in range(12, 23)), "wh"]}
    for switch, names in servers.items():
        assert [why.split(" -> ")[0] for why in found[switch]["software"]] == names
        assert all("class rtt-" in why for why in found[switch]["software"])
        assert len(found[switch]["hardware"]) == 12
    assert set(found["sw-i"]) == {"hardware"}


def test_the_configuration_of_each_procurve_has_the_tags_that_its_ports_carry() -> None:
    """A switch of world servers has a tag for each latency class of its servers, on the trunk to the chain."""
    words = ["--controller", "192.168.100.1"]
    argv = {name: [str(ATOLL), "switches", "config", name, str(LABORATORY), *words] for name in ("sw-w1", "sw-c")}
    found = {
        name: subprocess.run(each, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
        for name, each in argv.items()
    }
    tags = [line for line in found["sw-w1"] if line.startswith("vlan ")]
    assert tags == ["vlan 2", *(f"vlan {number}" for number in range(101, 112)), "vlan 123"]
    assert found["sw-w1"].count("   tagged 48") == len(tags) - 1
    assert "   untagged 1-11,40,48" in found["sw-w1"]
    assert "   controller-id 1 ip 192.168.100.1 port 6653 controller-interface vlan 1" in found["sw-c"]
    assert len([line for line in found["sw-c"] if line.startswith("vlan ")]) == 1 + 23
