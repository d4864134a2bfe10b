# SPDX-License-Identifier: Apache-2.0
"""A link that follows a trace in a run, on the wire: it stands at the beginning until the load begins, every time."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_emulation.uml.guest_init import OUTPUT
from tests.support.sandbox import ROOT
from tests.support.virtual_runs import said_inside

pytestmark = pytest.mark.virtual

EXPERIMENT = f"""\
name: jump
lab: {ROOT}/emulation/labs/island.yaml
duration: 4 s
chain: [tap-w, sat, tap-i]
links:
  sat:
    to_island: {{rate: 16 Mbit/s, delay: 40 ms, queue: 30 kB, trace: jump.csv}}
    to_world: {{rate: 16 Mbit/s, delay: 10 ms, queue: 30 kB, queue_packets: 100, aqm: codel}}
traffic: {{channels: 2}}
ping: {{interval: 20 ms}}
"""
JUMP = "t_s,delay_ms,blocked\n0,10,0\n1,,0\n2,,1\n2.5,110,0\n"  # 10 ms, 40 as configured, blocked, 110
BACK_NS = 10_000_000
STEPS = ((0, 1, 10_000_000), (1, 2, 40_000_000), (2.5, 4, 110_000_000))  # from, to (s), delay (ns)
SERIALISATION_NS = 2 * 8 * 84 * 10**9 // 16_000_000  # of a ping's IP packet, there and back
QUEUE_NS = 8 * 30_000 * 10**9 // 16_000_000
RESOLUTION_NS = 20_000  # engine and pings wake up several times on the way, each time some readings of the clock late


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs on one lab."""
    output = tmp_path_factory.mktemp("jump")
    (output / "jump.csv").write_text(JUMP)
    (output / "jump.yaml").write_text(EXPERIMENT)
    said = said_inside("tests.guests.jump_guest", output, OUTPUT / "jump.yaml", OUTPUT)
    return [output / name for name in said["runs"]]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("which", [0, 1], ids=["first", "again"])
def test_pings_see_every_row_of_the_trace_and_its_beginning_before(runs: list[Path], which: int) -> None:
    """Each packet has the delay of the moment it left the queue at: no ping of a step is off, at either of its ends."""
    events = lines(runs[which] / "events.jsonl")
    (begun,) = [event for event in events if event["type"] == "trace_start"]
    assert begun["boxes"] == ["sat"]
    (base,) = [event["rtt_ns"] for event in events if event["type"] == "base_rtt"]
    assert 0 <= base - (STEPS[0][2] + BACK_NS + SERIALISATION_NS) <= RESOLUTION_NS
    pings = [line for line in lines(runs[which] / "logs" / "ping.out") if line["type"] in ("reply", "lost")]

    def between(begin_s: float, end_s: float) -> list[dict[str, Any]]:
        found = [line for line in pings if begin_s * 1e9 <= line["sent_ns"] - begun["t_ns"] < end_s * 1e9]
        assert len(found) >= 20
        return found

    for begin_s, end_s, delay_ns in STEPS:
        beyond = [
            line["rtt_ns"] - delay_ns - BACK_NS - SERIALISATION_NS
            for line in between(begin_s, end_s - 0.1)
            if line["type"] == "reply"
        ]
        assert 0 <= min(beyond) <= RESOLUTION_NS, (begin_s, min(beyond))
        assert max(beyond) <= QUEUE_NS + RESOLUTION_NS, (begin_s, max(beyond))
    assert {line["type"] for line in between(2, 2.5)} == {"lost"}
