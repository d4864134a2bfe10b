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
    """474 entries, 212 of them on the switch of the chain."""
    code, found = plan(driver)
    assert code == 0
    assert {switch: {place: len(why) for place, why in places.items()} for switch, places in found.items()} == {
        "sw-w1": {"hardware": 24},
        "sw-w2": {"hardware": 24},
        "sw-c": {"hardware": 212},
        "sw-i1": {"hardware": 108},
        "sw-i2": {"hardware": 106},
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
    assert set(found["sw-i1"]) == set(found["sw-i2"]) == {"hardware"}
