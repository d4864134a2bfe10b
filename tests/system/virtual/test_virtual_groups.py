# SPDX-License-Identifier: Apache-2.0
"""Groups of clients in virtual time: each has its own load on its own chain, and draws what it draws alone."""

import csv
from pathlib import Path

import pytest

from tests.support.result_schema import assert_as_documented
from tests.support.sandbox import ROOT
from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual
EXAMPLE = ROOT / "examples" / "coder-groups.yaml"
Flows = dict[tuple[int, int], tuple[str, str]]


def flows(run: Path, clients: tuple[str, ...]) -> Flows:
    """Size and server of the flows of some clients, by channel and number."""
    logs = [run / "logs" / f"flows-{client}.csv" for client in clients]
    rows = [row for log in logs for row in csv.DictReader(log.open(newline=""))]
    return {(int(row["channel"]), int(row["flow"])): (row["size_bytes"], row["server"]) for row in rows}


def test_a_coded_group_has_another_load_than_the_plain_one(tmp_path: Path) -> None:
    """The example for ten seconds, and again with the other group's load changed during the run."""
    summary = run_virtually(tmp_path, EXAMPLE, "--duration", "10 s")
    run = Path(summary["run_dir"])
    assert summary["verdict"] == "valid", summary["reasons"] + summary["caveats"]
    assert_as_documented(run)
    assert summary["channels"] == 50
    assert summary["placement"] == {"i1": 14, "i2": 13, "i3": 13, "i4": 4, "i5": 3, "i6": 3}
    groups = summary["groups"]
    assert {name: group["channels"] for name, group in groups.items()} == {"coded": 10, "plain": 40}
    chains = {"coded": "main", "plain": "plain"}
    for name, group in groups.items():
        carried = summary["chains"][chains[name]]
        assert group["flows_completed"] == carried["flows_completed"] > 10
        assert group["goodput_mbit_s"] == pytest.approx(carried["goodput_mbit_s"], rel=1e-6)
    coded, plain = flows(run, ("i4", "i5", "i6")), flows(run, ("i1", "i2", "i3"))
    assert {channel for channel, _ in coded} == set(range(400_000, 400_010))
    assert {channel for channel, _ in plain} == set(range(100_000, 100_040))

    change = "changes=[{at: 5 s, traffic: {groups: {plain: {channels: 4, flow_sizes: 20 kB}}}}]"
    other = run_virtually(tmp_path, EXAMPLE, "--duration", "10 s", "--set", change)
    assert other["verdict"] == "valid", other["reasons"] + other["caveats"]
    again = flows(Path(other["run_dir"]), ("i4", "i5", "i6"))
    both = coded.keys() & again.keys()
    assert len(both) > 50
    assert all(coded[flow] == again[flow] for flow in both)
    late = flows(Path(other["run_dir"]), ("i1", "i2", "i3"))
    assert {size for size, _ in late.values()} > {"20000"}
