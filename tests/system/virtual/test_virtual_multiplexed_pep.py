# SPDX-License-Identifier: Apache-2.0
"""Two PEPs that multiplex connections over an idle GEO link, next to plain routers, by their settings alone.

The link has 16 Mbit/s and an RTT of 500 ms. The servers of short flows are 5 ms away, that of the long one 0 ms.
"""

import csv
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual
BOXES = ("pep-w", "pep-i")
RATE_BYTES_S, RTT_S = 16e6 / 8, 0.5


def example(directory: Path, project: Path) -> Path:
    """The example with all servers at 5 ms."""
    text = (project / "examples/pep-multiplexed.yaml").read_text(encoding="utf-8")
    text = text.replace("../emulation", str(project / "emulation"))
    for rtt in (20, 50, 90, 140, 200):
        text = text.replace(f"rtt-{rtt}", "rtt-5")
    path = directory / "idle.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def settings(**given: str) -> list[str]:
    """The same settings for both PEPs."""
    return [word for box in BOXES for key, value in given.items() for word in ("--set", f"boxes.{box}.{key}={value}")]


FAST_OPEN = [
    *settings(accept="early", between="tcp"),
    *("--set", "boxes.pep-i.world_fast_open=true"),
    *("--set", "boxes.pep-w.island_fast_open=true"),
]
ARMS = {
    "off": settings(mode="off", between="tcp"),
    "after": settings(accept="after"),
    "early": settings(accept="early"),
}


def completion_s(directory: Path, project: Path, arm: list[str], size: str) -> float:
    """The median time of flows one after the other, from connecting to the last byte."""
    words = ("--set", "traffic.channels=1", "--set", f"traffic.flow_sizes={size}", "--set", "transfer=null")
    summary = ran(directory, project, *arm, *words, "--duration", "30 s")
    assert summary["flows_failed"] == 0
    (found,) = [each for each in summary["flow_classes"] if each["completed"]]
    return float(found["completion_s"]["p50"])


def ran(directory: Path, project: Path, *words: str) -> dict[str, Any]:
    summary = run_virtually(directory, example(directory, project), *words)
    assert summary["verdict"] != "invalid", summary["reasons"]
    return summary


@pytest.mark.parametrize(("size", "early", "after"), [("100 B", 0.55, 1.02), ("100 kB", 0.35, 0.6)])
def test_short_flows_take_fewer_round_trips(
    tmp_path: Path, project: Path, size: str, early: float, after: float
) -> None:
    """A request leaves with the first frame, and the answer comes at the link's rate."""
    took = {arm: completion_s(tmp_path, project, words, size) for arm, words in ARMS.items()}
    assert took["early"] <= early * took["off"], took
    assert took["after"] <= after * took["off"], took


@pytest.mark.parametrize(("size", "fast_open"), [("100 B", 1.0), ("100 kB", 0.68)])
def test_a_request_may_leave_with_the_first_segment(tmp_path: Path, project: Path, size: str, fast_open: float) -> None:
    """With fast open between PEPs that split connections one by one: a round trip of the link less to the first byte.

    To the last one, too, where they take longer than the handshake, before which Linux sends no FIN.
    """
    arms = {"early": settings(accept="early", between="tcp"), "fast open": FAST_OPEN}
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for arm, words in arms.items():
        directory = tmp_path / arm
        directory.mkdir()
        last[arm] = completion_s(directory, project, words, size)
        (log,) = directory.glob("runs/*/*/logs/flows-i1.csv")
        flows = csv.DictReader(log.read_text(encoding="utf-8").splitlines())
        took = [int(each["first_byte_ns"]) - int(each["start_ns"]) for each in flows if each["first_byte_ns"]]
        first[arm] = statistics.median(took) / 1e9
    assert first["early"] - first["fast open"] > 0.98 * RTT_S, first
    assert last["fast open"] <= fast_open * last["early"], last


def test_a_long_flow_takes_the_time_of_its_bytes(tmp_path: Path, project: Path) -> None:
    """And nothing is lost at the queue.

    The calibration before a run overflows the queue while the connection of the PEPs is up, which makes its window
    small: it is renewed before the transfer.
    """
    words = ("--set", "traffic.channels=0", "--set", "transfer.size=40 MB", "--set", "transfer.start=2 s")
    summary = ran(tmp_path, project, *ARMS["early"], *words, "--duration", "40 s")
    wire_bytes = 40e6 * 1500 / 1448
    assert summary["transfer_s"] <= 1.03 * (wire_bytes / RATE_BYTES_S + RTT_S)
    assert summary["boxes"]["pep-w"]["multiplexed_connections"] == summary["boxes"]["pep-w"]["connections"]
    assert summary["loss_bytes_link"] == 0
