# SPDX-License-Identifier: Apache-2.0
"""Changes that an experiment schedules happen at their instants, under traffic; one that fails is undone and told.

In virtual time the instants and every ping's RTT are exact; once in real time, under load.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime import ON_RUNTIME
from tests.support.sandbox import ATOLL, ROOT, Sandbox, faults
from tests.support.virtual_runs import RESOLUTION_NS, atoll, run_virtually

LAB = ROOT / "emulation" / "labs" / "island.yaml"
MS = 10**6

OUT_AND_BACK = """name: out-and-back
lab: island.yaml
duration: 6 s
chain: [tap-w, sat, tap-i]
changes:
  - {at: 1 s, chain: [tap-w, tap-i]}
  - {at: 4 s, chain: [tap-w, coder-w, sat, coder-i, tap-i]}
links:
  sat:
    to_island: {rate: 16 Mbit/s, delay: 10 ms, queue: 30 kB, trace: later.csv}
    to_world: {rate: 16 Mbit/s, delay: 10 ms, queue: 30 kB}
traffic: {channels: 0}
ping: {interval: 10 ms}
"""
TRACE = "t_s,delay_ms\n0,10\n3,30\n"

UNDER_LOAD = """name: under-load
lab: island.yaml
duration: 7 s
chain: [tap-w, sat, tap-i]
changes:
  - {at: 2 s, chain: [tap-w, coder-w, sat, coder-i, tap-i], latency: {w1: rtt-50}}
  - {at: 4500 ms, branches: {direct: {carries: {island: 10.20.0.0/30}, chain: [tap-w, sat, tap-i]}}}
links:
  sat:
    to_island: {rate: 16 Mbit/s, delay: 50 ms, queue: 100 kB}
    to_world: {rate: 16 Mbit/s, delay: 50 ms, queue: 100 kB}
latency: {w1: rtt-5, w2: rtt-20}
traffic: {channels: 24}
"""

DEAD_END = """name: dead-end
lab: island.yaml
duration: 4 s
chain: [tap-w, sat, tap-i]
changes:
  - {at: 1 s, chain: [tap-w, hole, sat, tap-i]}
  - {at: 3 s, chain: [tap-w, coder-w, sat, tap-i]}
links:
  sat: {to_island: &d {rate: 16 Mbit/s, delay: 10 ms, queue: 30 kB}, to_world: *d}
traffic: {channels: 6}
"""
HOLE = """  hole:
    {kind: program, forwarding: transparent, world: sw-c/30, island: sw-c/31, program: {start: [sleep, infinity]}}

delay_boxes:"""


def written(directory: Path, experiment: str, lab: str = "") -> Path:
    """An experiment beside the demo's lab, or another one."""
    (directory / "island.yaml").write_text(lab or LAB.read_text())
    (directory / "later.csv").write_text(TRACE)
    path = directory / "experiment.yaml"
    path.write_text(experiment)
    return path


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    return [
        event for event in map(json.loads, (run / "events.jsonl").read_text().splitlines()) if event["type"] == kind
    ]


@pytest.mark.virtual
def test_every_ping_sees_the_version_of_its_instant_and_the_link_keeps_its_trace(tmp_path: Path) -> None:
    """Out of the link, and back into it by routers when its trace has gone on: exact, and nothing is lost."""
    summary = run_virtually(tmp_path, written(tmp_path, OUT_AND_BACK), "--backend", "engine")
    assert [change["failure"] for change in summary["changes"]] == [None, None]
    assert all(change["lateness_ms"] < 0.1 for change in summary["changes"])
    assert (summary["ping_lost"], summary["loss_bytes_captures"]) == (0, 0)
    run = Path(summary["run_dir"])
    begins = {event["change"]: event["t_ns"] for event in events(run, "change") if event["state"] == "begin"}
    turned = {event["change"]: event["t_ns"] for event in events(run, "swap") if event.get("stage") == "shift"}
    replies = [json.loads(line) for line in (run / "logs/ping.out").read_text().splitlines()]
    pings = [(line["sent_ns"], line["rtt_ns"]) for line in replies if line["type"] == "reply"]
    stretches = [(0, begins[1], 20 * MS), (turned[1], begins[2], 0), (turned[2], 2**63, 40 * MS)]
    for since, until, rtt_ns in stretches:
        found = [rtt for sent, rtt in pings if since < sent < until]
        assert len(found) > 80
        # A packet of 98 bytes is serialised in 49 us at 16 Mbit/s each way, where it passes the link.
        assert all(rtt_ns <= rtt <= rtt_ns + 98_000 + 2 * RESOLUTION_NS for rtt in found)


@pytest.mark.virtual
def test_a_change_that_fails_is_undone_told_and_the_last_one(tmp_path: Path) -> None:
    """A box that lets nothing through fails its probes: the version before stands to the end, which is all measured."""
    lab = LAB.read_text().replace("delay_boxes:", HOLE)
    done = atoll(tmp_path, "run", "--on", "virtual", "--json", written(tmp_path, DEAD_END, lab))
    assert done.returncode == 3, done.stderr
    summary = json.loads(done.stdout)
    failed, after = summary["changes"]
    assert "swap rolled back; the previous configuration is active" in failed["failure"]
    assert (after["began_s"], after["failure"]) == (None, None)
    assert [reason.split(" failed")[0] for reason in summary["reasons"]] == [
        "change 1 (at 1 s)",
        "change 2 (at 3 s) was not made",
    ]
    assert summary["duration_s"] == 4.0
    assert summary["goodput_mbit_s"] > 0


@pytest.mark.lab
def test_changes_under_load_in_real_time_lose_nothing_but_what_the_link_drops(tmp_path: Path) -> None:
    """Chain and latency together, then a branch: every packet that the link did not drop arrives."""
    with Sandbox(tmp_path) as sandbox:
        done = sandbox.run(ATOLL, "run", written(tmp_path, UNDER_LOAD), *ON_RUNTIME, "--json", limit_s=150)
        assert done.returncode in (0, 3), done.stderr
        assert sandbox.traces() == []
    summary: dict[str, Any] = json.loads(done.stdout)
    assert faults(summary) == []
    assert [change["failure"] for change in summary["changes"]] == [None, None]
    assert summary["changes"][0]["what"] == [
        "chain [tap-w, coder-w, sat, coder-i, tap-i] instead of [tap-w, sat, tap-i]",
        "latency.w1 rtt-50 instead of rtt-5",
    ]
    assert all(change["duration_s"] >= change["drain_s"] > 0 for change in summary["changes"])
    assert 0 <= summary["loss_bytes_link"] - summary["loss_bytes_captures"] <= summary["probed_bytes_max"]
    assert summary["chains"].keys() == {"main", "direct"}
    assert summary["flows_failed"] == 0
