# SPDX-License-Identifier: Apache-2.0
"""What agents of a rack notice of their machines and networks while they measure, and where they write meanwhile."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.rack import EXPERIMENT, LAB, Rack, rack_of
from tests.support.sandbox import ATOLL

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]


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
