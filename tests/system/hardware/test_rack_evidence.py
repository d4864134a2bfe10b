# SPDX-License-Identifier: Apache-2.0
"""What agents of a rack notice of their machines and networks while they measure, and where they write meanwhile."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.rack import EXPERIMENT, LAB, Rack, rack_of
from tests.support.sandbox import ATOLL, wait_for_line

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A rack after first contact."""
    with rack_of(LAB, tmp_path_factory.mktemp("rack-evidence")) as rack:
        rack.prepare()
        yield rack


def test_a_machine_that_is_throttled_while_it_measures_is_named(rack: Rack) -> None:
    """A client with the sensors of a Raspberry Pi whose firmware throttles it; of the others nothing is known."""
    sensors = """
    mount -t tmpfs tmpfs /sys/class/thermal
    mkdir /sys/class/thermal/thermal_zone0 /sys/class/thermal/cooling_device0
    cd /sys/class/thermal
    echo cpu-thermal >thermal_zone0/type; echo 83000 >thermal_zone0/temp
    echo passive >thermal_zone0/trip_point_0_type; echo 80000 >thermal_zone0/trip_point_0_temp
    echo cpufreq-cpu0 >cooling_device0/type; echo 1 >cooling_device0/cur_state
    """
    runs = rack.directory / "hot"
    assert rack.on("i1", "sh", "-ec", sensors).returncode == 0
    try:
        words = ["run", EXPERIMENT, "--duration", "2 s", "--runs", runs, "--on", "hardware"]
        done = rack.run(ATOLL, *words, "--inventory", rack.inventory)
        assert done.returncode in (0, 3), done.stderr
    finally:
        rack.on("i1", "umount", "/sys/class/thermal")
    (made,) = (runs / "rack").iterdir()
    summary = json.loads((made / "summary.json").read_text())
    looks = _looks(summary)
    hot = [text for text in summary["caveats"] if "temperature limit: " in text]
    assert hot == [f"HOST_HOT: processors were throttled or at their temperature limit: i1 in {looks}: {COOL}"]
    assert {heat["looks"] for name, heat in summary["host_heat"].items() if name != "i1"} == {None}
    assert "HOST_HOT" in (made / "report.html").read_text()


COOL = "cool the machine, or give it fewer channels (capacity)"


def _looks(summary: dict[str, Any]) -> str:
    heat = summary["host_heat"]["i1"]
    assert heat["hot_looks"] == heat["looks"] > 0
    return f"{heat['hot_looks']} of {heat['looks']} looks (83 °C, limit 80 °C)"


def test_another_machine_with_an_address_of_the_lab_is_named_before_the_load(rack: Rack) -> None:
    """A client and a forgotten management controller behind one ordinary switch; both answer for the address."""
    learning_switch = """
    ip netns add lan; ip netns add rogue
    mac=$(ip -n i1 -br link show exp0 | awk '{print $3}')
    ip -n i1 link set exp0 netns lan name p0 address 02:00:00:00:ff:01
    ip -n i1 link add exp0 address $mac type veth peer name p1 netns lan
    ip -n rogue link add eth0 address 00:1e:67:aa:bb:cc type veth peer name p2 netns lan
    ip -n lan link add sw type bridge
    for port in p0 p1 p2; do ip -n lan link set $port master sw up; ip netns exec lan ethtool -K $port tx off; done
    ip -n lan link set sw up; ip -n rogue link set eth0 up; ip netns exec rogue ethtool -K eth0 tx off
    """
    built = rack.sandbox.run("sh", "-ec", learning_switch)
    assert built.returncode == 0, built.stderr
    words = ["run", EXPERIMENT, "--duration", "2 s", "--runs", rack.directory / "twice", "--on", "hardware"]

    def run() -> subprocess.CompletedProcess[str]:
        return rack.run(ATOLL, *words, "--inventory", rack.inventory)

    alone = run()
    assert alone.returncode in (0, 3), alone.stderr
    assert "DUPLICATE_ADDRESS" not in alone.stdout + alone.stderr
    rack.sandbox.run("ip", "-n", "rogue", "address", "add", "10.20.0.1/16", "dev", "eth0")
    twice = run()
    rack.sandbox.run("ip", "-n", "rogue", "address", "flush", "dev", "eth0")
    assert twice.returncode == 1, twice.stdout
    (said,) = (line for line in twice.stderr.splitlines() if "DUPLICATE_ADDRESS" in line)
    assert "10.20.0.1 has two MAC addresses on the network of i1 (exp0): its own " in said
    assert said.endswith(", and 00:1e:67:aa:bb:cc: give the other machine another address, or disconnect it")


def test_a_client_writes_nothing_to_its_disk_while_it_measures(rack: Rack) -> None:
    """Its jobs have no file open for writing but in memory, none is new on its disk; afterwards all is collected.

    A capture host writes to its disk.
    """
    runs = rack.directory / "memory"
    rack.on("i1", "touch", "/run/before")
    words = ["run", EXPERIMENT, "--duration", "6 s", "--runs", runs, "--on", "hardware"]
    process = rack.start(ATOLL, *words, "--inventory", rack.inventory)
    wait_for_line(process, "measure:")
    files = rack.on("i1", "sh", "-c", "find /dev/shm/atoll-0 -type f").stdout.split()
    assert [file.rpartition("/")[2] for file in files] == ["flows-i1.csv"]
    written = """
    for info in /proc/[0-9]*/fdinfo/*; do
      grep -q '^flags:.*[12]$' "$info" 2>/dev/null || continue
      fd=$(echo "$info" | sed s/fdinfo/fd/); [ -f "$fd" ] && readlink "$fd"
    done | sort -u
    """
    opened = rack.on("i1", "sh", "-c", written).stdout.split()
    assert files[0] in opened
    assert [file for file in opened if not file.startswith(("/dev/shm/", "/run/", "/tmp/", "/proc/", "/sys/"))] == []
    new = rack.on("i1", "sh", "-c", "find /var/tmp /root /home -newer /run/before -type f").stdout
    assert new == ""
    assert "world.pcap" in rack.on("cap", "sh", "-c", "find /var/tmp/atoll-0 -type f").stdout
    _, errors = process.communicate(timeout=110)
    assert process.returncode in (0, 3), errors
    assert rack.on("i1", "sh", "-c", "ls /dev/shm").stdout == ""
    (made,) = (runs / "rack").iterdir()
    assert (made / "logs" / "flows-i1.csv").stat().st_size > 0
