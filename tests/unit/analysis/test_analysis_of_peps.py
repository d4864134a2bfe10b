# SPDX-License-Identifier: Apache-2.0
"""Runs through a box that ends connections: its own count of them, and what iperf3's sender can know."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.verdict.findings import FindingCode
from atoll_core.codec import to_json
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import ChainBox, Interface
from atoll_core.lab.pep import PEP
from atoll_core.lab.port_ref import PortRef
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import simulate

HOPS = ["tap-w", "pep-w", "sat", "tap-i"]


BYPASSED = {FindingCode.BOX_BYPASSED, FindingCode.BOX_PARTLY_BYPASSED}


def with_pep(
    tmp_path: Path, connections: int, hops: list[str] = HOPS, kind: BoxKind = PEP, **experiment: Any
) -> RunDir:
    """A simulated run in whose chain is a PEP, or a box of another kind, that has counted so many connections."""
    run = simulate(tmp_path)
    manifest = run.manifest()
    world, island = (
        Interface(f"pep-w-{side}", f"02:00:00:00:01:0{port}", PortRef("s1", 90 + port))
        for port, side in enumerate(("w", "i"))
    )
    manifest["network"]["boxes"].append(to_json(ChainBox("pep-w", kind, world, island)))
    manifest["experiment"]["chain"]["hops"] = hops
    manifest["experiment"] |= experiment
    run.path.joinpath("manifest.json").write_text(json.dumps(manifest))
    with (run.path / "link.jsonl").open("a") as file:
        for name, count in (("begin", 7), ("end", connections)):
            mark = {"box": "pep-w", "type": "mark", "mark": name, "id": 1, "t_ns": 9, "connections": count}
            file.write(json.dumps(mark) + "\n")
    return run


def test_connections_of_clients_are_compared_with_those_of_the_box(tmp_path: Path) -> None:
    summary = analyse(with_pep(tmp_path, 0), find_binary())
    transfer = 1
    completed = summary["flows_completed"] + transfer
    assert summary["ended_connections"] == {"pep-w": {"kind": "pep", "counted": 0, "completed": completed}}
    assert FindingCode.BOX_BYPASSED in summary["reason_codes"]


def test_a_finding_about_bypassed_boxes_names_their_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = replace(PEP, name="tcp-accelerator")
    monkeypatch.setitem(BoxKind.registered, accelerator.name, accelerator)
    summary = analyse(with_pep(tmp_path, 0, kind=accelerator), find_binary())
    assert any(reason.startswith("TCP_ACCELERATOR_BYPASSED: pep-w saw no connection") for reason in summary["reasons"])


def test_a_box_that_saw_them_all_is_no_finding(tmp_path: Path) -> None:
    summary = analyse(with_pep(tmp_path, 10_000), find_binary())
    assert BYPASSED.isdisjoint([*summary["reason_codes"], *summary["caveat_codes"]])
    assert summary["boxes"]["pep-w"] == {"connections": 10_000}


def test_connections_of_chains_without_the_box_are_not_its(tmp_path: Path) -> None:
    summary = analyse(with_pep(tmp_path, 0, ["tap-w", "sat", "tap-i"]), find_binary())
    assert summary["ended_connections"]["pep-w"]["completed"] == 0
    assert BYPASSED.isdisjoint([*summary["reason_codes"], *summary["caveat_codes"]])


@pytest.mark.parametrize(("tool", "mode", "notes"), [("iperf3", "on", 1), ("iperf3", "off", 0), ("atoll", "on", 0)])
def test_what_iperf3s_sender_reports_is_the_peps(tmp_path: Path, tool: str, mode: str, notes: int) -> None:
    transfer = {"size": 10_000, "start": 0, "tool": tool, "port": 5002}
    boxes = [{"box": "pep-w", "settings": [["mode", mode]]}]
    summary = analyse(with_pep(tmp_path, 10_000, transfer=transfer, boxes=boxes), find_binary())
    found = [note for note in summary["notes"] if note.startswith("iperf3's sender counts bytes that pep-w accepted")]
    assert len(found) == notes
