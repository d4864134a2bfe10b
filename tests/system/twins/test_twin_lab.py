# SPDX-License-Identifier: Apache-2.0
"""The shipped lab with twins of hardware, as a user has it: `twin` in lab.yaml, and `twin` in `atoll shell`.

`make test-twins` has every kind of hardware. Where one cannot do a plan, it is refused with the remedy.
"""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime import ON_RUNTIME
from tests.support.sandbox import ATOLL, ROOT, Sandbox

DRIVERS = ["procurve-v1", "procurve-v2", "procurve-v3"] if os.environ.get("ATOLL_TWINS") == "all" else ["procurve-v2"]
_HEALED_S = 90.0
_AWAY_S = 20

pytestmark = pytest.mark.lab


def described(directory: Path, driver: str, chain: str) -> Path:
    """The demo on twins of that hardware, with another chain and without latencies on the oldest."""
    twin = "{reboot: 1 s}"
    lab = (ROOT / "emulation/labs/island.yaml").read_text()
    lab = re.sub(r"driver: ovs", f"driver: {driver}, twin: {twin}", lab)
    (directory / "lab.yaml").write_text(lab)
    demo = (ROOT / "examples/geo.yaml").read_text().replace("../emulation/labs/island.yaml", "lab.yaml")
    demo = re.sub(r"^chain: .*$", f"chain: {chain}", demo, flags=re.MULTILINE)
    if driver == "procurve-v1":
        demo = re.sub(r"^latency:\n(  .*\n)+", "", demo, flags=re.MULTILINE)
    path = directory / "geo.yaml"
    path.write_text(demo)
    return path


def switches_of(sandbox: Sandbox) -> dict[str, dict[str, Any]]:
    told = sandbox.run(ATOLL, "switches", "--json")
    assert told.returncode == 0, told.stderr
    return {each["name"]: each for each in json.loads(told.stdout)["switches"]}


def becomes(sandbox: Sandbox, wanted: Callable[[dict[str, Any]], bool], limit_s: float) -> bool:
    """Whether the switch in the middle comes into a state by then."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if wanted(switches_of(sandbox)["sw-c"]):
            return True
        time.sleep(0.5)
    return False


def healed(sandbox: Sandbox, entries: int) -> bool:
    """Whether the switch in the middle comes back, with that number of entries."""
    return becomes(sandbox, lambda now: now["up"] and now["entries"] == entries, _HEALED_S)


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_shipped_lab_on_twins_is_installed_proven_and_repaired(tmp_path: Path, driver: str) -> None:
    """Every path is proven by probes though barriers are early; a rebooted switch gets its entries again."""
    old = driver == "procurve-v1"
    experiment = described(tmp_path, driver, "[sat]" if old else "[tap-w, sat, tap-i]")
    with Sandbox(tmp_path) as sandbox:
        up = sandbox.run(ATOLL, "up", experiment, *ON_RUNTIME, limit_s=100)
        assert up.returncode == 0, up.stderr
        before = switches_of(sandbox)
        plan = json.loads(sandbox.run(ATOLL, "plan", experiment, "--json").stdout)
        assert {each["place"] for each in plan["placement"]["entries"]} == {"hardware"}
        for name, switch in before.items():
            assert switch["entries"] == sum(entry["switch"] == name for entry in plan["plan"]["flows"])
            assert switch["room"] == (2000 if driver == "procurve-v3" else 1500)
        (tmp_path / "script").write_text("twin sw-c reboot\ntwin sw-c sleep\ntwin nobody reboot\n")
        told = sandbox.run("sh", "-c", f"{ATOLL} shell < {tmp_path / 'script'}")
        assert told.stdout.splitlines() == [
            "*** Error: 'sleep' is no command of a twin; write reboot, or disconnect and a number of seconds",
            "*** Error: nobody has no twin (`twin` in lab.yaml); switches that have one: sw-w1, sw-w2, sw-c, sw-i",
        ]
        assert healed(sandbox, before["sw-c"]["entries"])
        (tmp_path / "script").write_text(f"twin sw-c disconnect {_AWAY_S}\n")
        assert sandbox.run("sh", "-c", f"{ATOLL} shell < {tmp_path / 'script'}").stdout == ""
        assert becomes(sandbox, lambda now: not now["up"], _AWAY_S)
        assert healed(sandbox, before["sw-c"]["entries"])
        assert sandbox.run(ATOLL, "down").returncode == 0
        sandbox.wait_clean()


def test_what_the_oldest_hardware_cannot_do_is_refused_before_a_lab_is_there(tmp_path: Path) -> None:
    """With the remedy; a twin changes nothing of that."""
    experiment = described(tmp_path, "procurve-v1", "[tap-w, sat, tap-i]")
    with Sandbox(tmp_path) as sandbox:
        up = sandbox.run(ATOLL, "up", experiment, *ON_RUNTIME)
        assert up.returncode == 2
        assert "sw-c (HP ProCurve, v1 modules) cannot send a frame out of several ports in hardware" in up.stderr
        assert "use a physical tap" in up.stderr
        sandbox.wait_clean()
