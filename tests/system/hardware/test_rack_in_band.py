# SPDX-License-Identifier: Apache-2.0
"""Hosts with one interface: their agents are reached through the switches of the experiment, which runs there, too."""

import json
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from atoll_apps.control import PRIORITY
from atoll_hosts.binary import find_binary
from tests.support.rack import CONTROLLER, Rack, rack_of
from tests.support.runtime import ON_RUNTIME
from tests.support.sandbox import ATOLL, ROOT

pytestmark = pytest.mark.lab

EXPERIMENT = ROOT / "tests" / "data" / "rack-in-band.yaml"
LAB = ROOT / "tests" / "data" / "rack-in-band-lab.yaml"
IN_BAND = ("wh", "i1", "i2")


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A rack before first contact."""
    with rack_of(LAB, tmp_path_factory.mktemp("rack-in-band")) as rack:
        yield rack


@pytest.fixture(scope="module")
def met(rack: Rack) -> Rack:
    """The rack after first contact, for which the switches need the entries of in-band control."""
    before = rack.run("ping", "-c", "1", "-W", "1", rack.in_band["i1"])
    assert before.returncode == 1, "the switches forward nothing without entries"
    opened = atoll(rack, "switches", "control", LAB)
    assert opened.stdout == "in-band control of 3 hosts: 13 changes of flow entries\n"
    assert atoll(rack, "switches", "control", LAB).stdout == "in-band control of 3 hosts: all flow entries were there\n"
    rack.prepare()
    return rack


def atoll(rack: Rack, *words: str | Path):
    done = rack.run(ATOLL, *words, "--inventory", rack.inventory)
    assert done.returncode in (0, 3), done.stderr
    return done


def senders_in(captures: Path, point: str) -> set[IPv4Address]:
    """The addresses whose packets or ARP a capture has."""
    (file,) = captures.glob(f"{point}.pcap*")
    command = [find_binary(), "pcap", "records", file, captures / "records.bin"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {IPv4Address(each["address"]) for each in json.loads(done.stdout.splitlines()[-1])["senders"]}


def by_hand(rack: Rack, *words: str) -> str:
    """The output of a command of Open vSwitch."""
    done = rack.run("env", "OVS_RUNDIR=/run/sw", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def entries(rack: Rack, switch: str) -> int:
    """The number of entries of in-band control on a switch; those of the last experiment may still be there, too."""
    return by_hand(rack, "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", switch).count(f"priority={PRIORITY}")


def agents(rack: Rack) -> dict[str, set[int]]:
    return {name: set(rack.jobs(name)) for name in IN_BAND}


def test_a_run_on_hosts_with_one_interface_is_checked_and_their_control_counted(met: Rack) -> None:
    """Control survives the settings of the experiment on its only interface."""
    runs = met.directory / "runs"
    before = met.states()
    done = atoll(met, "run", EXPERIMENT, "--runs", runs, "--on", "hardware")
    (made,) = (runs / "in-band").iterdir()
    manifest = json.loads((made / "manifest.json").read_text())
    assert manifest["outcome"] == "completed", done.stderr
    summary = json.loads((made / "summary.json").read_text())
    assert summary["flows_completed"] > 0
    control = summary["in_band_control"]
    assert control["hosts"] == len(IN_BAND)
    # Heartbeats every 8 s, and the last words of jobs that end with the measurement: a few packets for each host.
    assert 0 < control["to_hosts"]["packets"] < 20 * len(IN_BAND)
    assert 0 < control["to_daemon"]["packets"] < 20 * len(IN_BAND)
    assert any(note.startswith("in-band control of 3 hosts") for note in summary["notes"])
    network = IPv4Network("192.168.10.0/24")
    for tap in ("world", "island"):
        senders = senders_in(made / "captures", tap)
        assert IPv4Address("10.20.0.1") in senders
        assert not any(each in network for each in senders), "no capture has a packet of control"
    assert met.states() == before


def test_agents_stay_connected_when_a_switch_restarts_before_the_first_apply(met: Rack) -> None:
    assert atoll(met, "up", LAB, "--on", "hardware").returncode == 0
    try:
        connected = agents(met)
        before = entries(met, "sw-w")
        assert before > 0
        by_hand(met, "ovs-vsctl", "del-controller", "sw-w")
        by_hand(met, "ovs-ofctl", "-O", "OpenFlow13", "del-flows", "sw-w")
        assert entries(met, "sw-w") == 0
        by_hand(met, "ovs-vsctl", "set-controller", "sw-w", f"tcp:{CONTROLLER}:6653")
        until = time.monotonic() + 90.0
        while entries(met, "sw-w") < before and time.monotonic() < until:
            time.sleep(0.2)
        assert entries(met, "sw-w") == before
        assert atoll(met, "apply", EXPERIMENT).returncode == 0
        assert agents(met) == connected
    finally:
        atoll(met, "down")


def test_connections_of_agents_survive_an_apply_and_a_swap(met: Rack) -> None:
    assert atoll(met, "up", LAB, "--on", "hardware", *ON_RUNTIME).returncode == 0
    try:
        connected = agents(met)
        assert all(connected.values())
        assert atoll(met, "apply", EXPERIMENT).returncode == 0
        other = met.directory / "without-pep.yaml"
        text = EXPERIMENT.read_text().replace("lab: rack-in-band-lab.yaml", f"lab: {LAB}")
        other.write_text(text.replace("chain: [pep, tap-w, sat, tap-i]", "chain: [tap-w, sat, tap-i]"))
        swapped = atoll(met, "apply", other)
        assert "swapped" in swapped.stdout
        assert "in-band control" not in swapped.stdout, "a swap does not touch its entries"
        assert agents(met) == connected
    finally:
        atoll(met, "down")
