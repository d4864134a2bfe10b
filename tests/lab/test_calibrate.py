# SPDX-License-Identifier: Apache-2.0
"""Calibration of real links: one that is as configured, and one that is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.sandbox import ATOLL, ROOT, Sandbox

pytestmark = [pytest.mark.lab, pytest.mark.figures, pytest.mark.timeout(120)]

QUICK = ROOT / "tests" / "data" / "quick.yaml"
PYTHON = ROOT / ".venv" / "bin" / "python"
NARROW = ROOT / "tests" / "lab" / "narrow_link.py"


def figures(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


def test_a_link_is_what_its_experiment_says(tmp_path: Path) -> None:
    """Every figure is measured; a busy machine may blur those of time, never what the queue holds."""
    with Sandbox(tmp_path) as sandbox:
        done = sandbox.run(
            ATOLL, "link", "calibrate", QUICK, "--json", "--direction", "to_island", "--seconds", "1", limit_s=100
        )
        assert done.returncode in (0, 1), done.stderr
        said = json.loads(done.stdout)
        assert said["ok"] == (done.returncode == 0)
        found = figures(said["rows"])
        assert set(found) == {
            "delay",
            "jitter (interquartile)",
            "rate of IP packets",
            "counted beside IP",
            "queue",
            "RTT under load",
        }
        assert all(row["state"] != "skipped" for row in found.values())
        assert found["queue"]["state"] == "ok"
        assert found["delay"]["measured"] >= 9.9
        assert abs(found["rate of IP packets"]["measured"] - 16) < 1.6
        assert abs(found["counted beside IP"]["measured"]) < 14
        sandbox.wait_clean()


def test_a_link_with_other_settings_is_found_out(tmp_path: Path) -> None:
    """The lab holds a link of 8 Mbit/s and 20 kB, 20 ms away, and is calibrated against one of 16, 30 and 10."""
    with Sandbox(tmp_path) as sandbox:
        done = sandbox.run(PYTHON, NARROW, QUICK, limit_s=100)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        full, brief = figures(said["full"]), figures(said["brief"])
        for name in ("delay", "rate of IP packets", "queue", "RTT under load"):
            assert full[name]["state"] == "off", full[name]
        assert abs(full["rate of IP packets"]["measured"] - 8) < 0.8
        assert 18.5 <= full["queue"]["measured"] <= 20
        assert brief["rate of IP packets"]["state"] == "off"
        assert brief["queue"]["state"] == "off"
        sandbox.wait_clean()
