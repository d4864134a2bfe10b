# SPDX-License-Identifier: Apache-2.0
"""PEPs in virtual time: the same experiment with PEPs and with plain routers in their place, by `mode` alone."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual
SHORT = ("--duration", "20 s", "--set", "transfer.start=2 s", "--set", "transfer.size=4 MB")
LONG = ("--duration", "45 s", *("--set", "traffic.channels=0"), *("--set", "transfer.size=40 MB"))
OFF = ("--set", "boxes.pep-w.mode=off", "--set", "boxes.pep-i.mode=off")


def judged(directory: Path, project: Path, *words: str) -> dict[str, Any]:
    """A valid run of the example with a PEP on both sides."""
    directory.mkdir(exist_ok=True)
    summary = run_virtually(directory, project / "examples/pep-both.yaml", *SHORT, *words)
    assert summary["verdict"] != "invalid", summary["reasons"]
    return summary


def test_peps_see_every_connection_and_all_of_it_reaches_the_island(tmp_path: Path, project: Path) -> None:
    summary = judged(tmp_path, project)
    for box in ("pep-w", "pep-i"):
        counted = summary["boxes"][box]
        assert counted["connections"] >= summary["flows_completed"] > 0
        assert counted["to_island_bytes"] > 4_000_000
        assert counted["own_resets"] == 0
    assert summary["transfer_complete"]
    assert summary["flows_failed"] == 0


def test_arms_differ_by_mode_alone(tmp_path: Path, project: Path) -> None:
    """Clients accepted early get their first flows a round trip earlier: more of them complete."""
    plain = judged(tmp_path / "off", project, *OFF)
    assert "ended_connections" not in plain
    early = ("--set", "boxes.pep-w.accept=early", "--set", "boxes.pep-i.accept=early")
    split = judged(tmp_path / "early", project, *early)
    assert split["flows_completed"] > plain["flows_completed"]


@pytest.mark.parametrize("between", ["tcp", "multiplexed"])
@pytest.mark.parametrize("clamp", ["true", "false"])
def test_a_narrow_link_between_peps_gets_segments_that_fit(
    tmp_path: Path, project: Path, clamp: str, between: str
) -> None:
    """By the clamp, and without it by the MTUs of the PEPs' routes: 40 MB arrive."""
    lab = (project / "emulation/labs/island-pep.yaml").read_text(encoding="utf-8")
    assert "sat: {kind: link," in lab
    (tmp_path / "lab.yaml").write_text(lab.replace("sat: {kind: link,", "sat: {kind: link, mtu: 1400,"))
    example = (project / "examples/pep-both.yaml").read_text(encoding="utf-8")
    (tmp_path / "narrow.yaml").write_text(example.replace("../emulation/labs/island-pep.yaml", "lab.yaml"))
    given = (
        f"boxes.{box}.{each}" for box in ("pep-w", "pep-i") for each in (f"mss_clamp={clamp}", f"between={between}")
    )
    words = [word for setting in given for word in ("--set", setting)]
    summary = run_virtually(tmp_path, "narrow.yaml", *LONG, "--set", "transfer.start=2 s", *words)
    assert summary["transfer_complete"]
    assert summary["oversize_packets"] == 0
