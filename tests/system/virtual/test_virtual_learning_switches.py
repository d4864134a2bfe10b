# SPDX-License-Identifier: Apache-2.0
"""Hosts behind learning switches, many behind one OpenFlow port: the figures of a run are those without."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox import ROOT
from tests.support.virtual_runs import RESOLUTION_NS, run_virtually

pytestmark = pytest.mark.virtual

DATA = ROOT / "tests" / "data" / "learning-switches"


def attached_directly(directory: Path) -> Path:
    """The same experiment with each host at a port of its own."""
    lab = re.sub(r"(?m)^learning_switches:\n(  lan.*\n)*", "", (DATA / "lab.yaml").read_text())
    directory.mkdir()
    (directory / "lab.yaml").write_text(lab.replace("lan-w/", "sw-w/1").replace("lan-i/", "sw-c/3"))
    (directory / "experiment.yaml").write_text((DATA / "experiment.yaml").read_text())
    return directory / "experiment.yaml"


def counts(part: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    """What was counted of each host: no times, and no losses, which a packet more or less in a full queue decides."""
    return {
        name: {key: n for key, n in one.items() if isinstance(n, int) and not key.startswith("loss")}
        for name, one in part.items()
    }


def test_figures_are_those_of_hosts_with_ports_of_their_own(tmp_path: Path) -> None:
    """Classes and chains are those of each host; the load is the same but for what microseconds do to TCP."""
    shared = run_virtually(tmp_path, DATA / "experiment.yaml")
    direct = run_virtually(tmp_path, attached_directly(tmp_path / "apart"))
    rtts = {host: rtt["measured"] for host, rtt in shared["terrestrial_rtt_ms"].items()}
    assert rtts == pytest.approx({"w1": 20, "w2": 80, "w3": 0}, abs=2 * RESOLUTION_NS / 1e6)
    for part in ("clients", "servers", "chains"):
        found = counts(shared[part])
        assert any(found.values())
        assert found == {host: pytest.approx(own, rel=0.1) for host, own in counts(direct[part]).items()}
    assert shared["lost_outside"] == direct["lost_outside"]
    for figure in ("flows_completed", "throughput_mbit_s", "goodput_mbit_s"):
        assert shared[figure] == pytest.approx(direct[figure], rel=0.1), figure
    assert shared["rtt_max_ms"] == pytest.approx(direct["rtt_max_ms"], rel=0.1)
