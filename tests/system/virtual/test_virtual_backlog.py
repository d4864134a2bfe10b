# SPDX-License-Identifier: Apache-2.0
"""Packets that a kernel drops before any box sees them: counted, and named where captures and link disagree."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_emulation.uml.guest_init import OUTPUT
from atoll_testbed.run.postprocess import compress_and_analyse
from tests.support.sandbox import ROOT
from tests.support.virtual_runs import said_inside

pytestmark = pytest.mark.virtual

EXPERIMENT = f"""\
name: backlog
lab: {ROOT}/emulation/labs/island.yaml
duration: 3 s
chain: [tap-w, sat, tap-i]
links:
  sat:
    to_island: {{rate: 16 Mbit/s, delay: 10 ms, queue: 30 kB}}
    to_world: {{rate: 16 Mbit/s, delay: 10 ms, queue: 30 kB}}
traffic: {{channels: 4}}
"""


async def analysed(output: Path, limit: int) -> tuple[RunDir, dict[str, Any], int]:
    """A run in which so many packets may wait, its summary, and what its own loopback interface lost."""
    (output / "backlog.yaml").write_text(EXPERIMENT)
    said = said_inside("tests.guests.backlog_guest", output, OUTPUT / "backlog.yaml", OUTPUT, str(limit))
    run_dir = RunDir.open(output / said["run"])
    return run_dir, await compress_and_analyse(run_dir), said["loopback_dropped"]


async def test_a_backlog_that_is_overrun_is_named_as_the_cause(tmp_path: Path) -> None:
    """With room for the first that waits alone, bursts lose packets on every cable, those of the taps too."""
    run_dir, summary, loopback = await analysed(tmp_path, 0)
    (counted,) = summary["lost_outside"]["machines"].values()
    assert counted["dropped_packets"] > 10
    assert 0 < counted["on_cables_packets"] == counted["dropped_packets"] - loopback, "the machine has no other program"
    assert summary["lost_outside"]["machines"].keys() == {EMULATION}
    sentence = f"the lab's machine dropped {counted['dropped_packets']} packets that waited for a processor ("
    limit = "; net.core.netdev_max_backlog is 1000000: "  # again, when the measurement ends
    assert summary["loss_bytes_captures"] != summary["loss_bytes_link"]
    (reason,) = [reason for reason in summary["reasons"] if reason.startswith("captures show a loss of ")]
    assert f"; likely cause: {sentence}" in reason
    assert limit in reason
    assert sentence in (run_dir.path / "report.html").read_text().replace("&#39;", "'")


async def test_a_kernel_with_room_for_all_drops_nothing(tmp_path: Path) -> None:
    """The same experiment: valid, and nothing is said of any kernel."""
    run_dir, summary, _ = await analysed(tmp_path, 1_000_000)
    assert summary["reasons"] == []
    assert summary["lost_outside"] == {"machines": {}, "hosts": {}, "ports": {}, "uncounted": {}, "beside": []}
    counted = json.loads((run_dir.path / "manifest.json").read_text())["lost_outside"]["machines"][EMULATION]
    assert counted == {"backlog_dropped_packets": 0, "on_cables_packets": 0, "backlog_limit_packets": 1_000_000}
