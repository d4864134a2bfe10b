# SPDX-License-Identifier: Apache-2.0
"""`atoll link calibrate` on a real link; what calibration finds out is test_virtual_calibration's subject."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox import ATOLL, QUICK, Sandbox

pytestmark = [pytest.mark.lab, pytest.mark.figures]


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
            "counted in addition to IP",
            "queue",
            "RTT under load",
        }
        assert all(row["state"] != "skipped" for row in found.values())
        assert found["queue"]["state"] == "ok"
        assert found["delay"]["measured"] >= 9.9
        sandbox.wait_clean()
