# SPDX-License-Identifier: Apache-2.0
"""benchmarks/link measures what it says: the quick form, end to end. Behaviour, no timing: that is the benchmark's."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.lab

ONLY = ("throughput/1514-byte frames, 1000 + 100 Mbit/s", "delay/16 Mbit/s", "rate/8 Mbit/s", "classes",
        "joint/30 kB at 8 Mbit/s")  # fmt: skip


@pytest.fixture(scope="module")
def quick(project: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The program's output and its file."""
    path = tmp_path_factory.mktemp("bench") / "results.json"
    only = [word for name in ONLY for word in ("--only", name)]
    argv = [project / "benchmarks/link/run", "--quick", "--json", path, *only]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    return {"said": done.stdout, "progress": done.stderr, **json.loads(path.read_text())}


def figures(quick: dict[str, Any], scenario: str, box: str = "engine") -> dict[str, float]:
    """Those of the one repeat."""
    (result,) = [result for result in quick["results"] if (result["scenario"], result["box"]) == (scenario, box)]
    assert result["failed"] == []
    return {name: values[0] for name, values in result["figures"].items()}


def test_every_packet_comes_out_and_none_before_its_time(quick: dict[str, Any]) -> None:
    """Stamps before and behind the engine, held against the ideal link."""
    delay = figures(quick, "delay")
    assert delay["lost_packets"] == 0
    assert delay["early_us"] < 100
    assert delay["p50_us"] < 50_000


def test_the_engines_account_agrees_with_the_stamps(quick: dict[str, Any]) -> None:
    """What was measured from outside is the lateness that the engine admits, but for the way to the stamp.

    Of half of the packets: a busy machine may stop the engine between the clock and the socket.
    """
    delay = figures(quick, "delay")
    assert delay["p50_us"] <= delay["box_lateness_max_us"] + 500


@pytest.mark.parametrize("box", ["engine", "tbf"])
def test_a_link_that_is_offered_more_passes_its_rate(quick: dict[str, Any], box: str) -> None:
    """8 Mbit/s of 8.4; a sender that a busy machine holds up offers less."""
    assert 6.4 < figures(quick, "rate", box)["mean_mbit_s"] < 8.4


def test_the_schedule_never_exceeds_the_rate(quick: dict[str, Any]) -> None:
    """However late departures were."""
    rate = figures(quick, "rate")
    assert rate["scheduled_windows_over_rate"] == 0
    assert rate["window_beyond_packets"] == 0


def test_ping_meets_the_full_queue(quick: dict[str, Any]) -> None:
    """30 kB at 8 Mbit/s are 30 ms on top of 40."""
    joint = figures(quick, "joint")
    assert joint["base_ms"] > 39.9
    assert joint["udp_top_ms"] > 25


def test_classes_and_both_directions_pass_what_they_are_given(quick: dict[str, Any]) -> None:
    """Unless the engine declares that it was overloaded."""
    classes = figures(quick, "classes")
    assert classes["lost_packets"] == 0 or classes["box_overloaded"]
    both = figures(quick, "throughput")
    assert both["forward_mbit_s"] > 0 < both["back_mbit_s"]
    assert both["lost_packets"] == 0 or both["box_overloaded"] or both["box_dropped_packets"]


def test_results_are_told_with_the_machine_and_what_was_promised(quick: dict[str, Any]) -> None:
    """A table a scenario; each promise by name; progress apart from results."""
    assert {"cpu", "cores", "kernel", "date", "governor"} <= set(quick["machine"])
    assert {promise["figure"] for promise in quick["promises"]} >= {"mean_us", "error_percent", "udp_beyond_ms"}
    assert "\n## joint" in quick["said"]
    assert "[1/" in quick["progress"]
