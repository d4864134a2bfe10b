# SPDX-License-Identifier: Apache-2.0
"""A link that follows a trace in a run, on the wire: it stands at the beginning until the load begins, every time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.sandbox import ATOLL, ROOT, Sandbox

pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]

EXPERIMENT = f"""\
name: jump
lab: {ROOT}/emulation/labs/island.yaml
duration: 4 s
chain: [tap-w, sat, tap-i]
links:
  sat:
    to_island:
      rate: 16 Mbit/s
      delay: 40 ms
      queue: 30 kB
      jitter: {{distribution: normal, amount: 1 ms}}
      trace: jump.csv
    to_world: {{rate: 16 Mbit/s, delay: 10 ms, queue: 30 kB, queue_packets: 100, aqm: codel}}
traffic: {{channels: 2}}
ping: {{interval: 20 ms}}
"""
JUMP = "t_s,delay_ms,blocked\n0,10,0\n1,,0\n2,,1\n2.5,110,0\n"  # 10 ms, 40 as configured, blocked, 110
SETTLED_NS = 300 * 10**6  # after a step: what is under way, and how late a busy machine begins the trace


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Two runs on one lab."""
    with Sandbox(tmp_path_factory.mktemp("jump")) as box:
        (box.directory / "jump.csv").write_text(JUMP)
        (box.directory / "jump.yaml").write_text(EXPERIMENT)
        found = []
        for keep in (["--keep"], []):
            done = box.run(ATOLL, "run", "jump.yaml", "--json", *keep)
            assert done.returncode in (0, 3), done.stderr
            found.append(Path(json.loads(done.stdout)["run_dir"]))
        yield [path if path.is_absolute() else box.directory / path for path in found]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("which", [0, 1], ids=["first", "again"])
def test_pings_see_every_row_of_the_trace_and_its_beginning_before(runs: list[Path], which: int) -> None:
    run = runs[which]
    events = lines(run / "events.jsonl")
    (begun,) = [event for event in events if event["type"] == "trace_start"]
    assert begun["boxes"] == ["sat"]
    (base,) = [event["rtt_ns"] for event in events if event["type"] == "base_rtt"]
    assert abs(base - 20e6) < 6e6
    pings = [line for line in lines(run / "logs" / "ping.out") if line["type"] in ("reply", "lost")]

    def between(begin_s: float, end_s: float) -> list[dict[str, Any]]:
        low, high = begun["t_ns"] + begin_s * 1e9 + SETTLED_NS, begun["t_ns"] + end_s * 1e9 - SETTLED_NS / 3
        found = [line for line in pings if low <= line["sent_ns"] < high]
        assert found
        return found

    for begin_s, end_s, rtt_ms in ((0, 1, 20), (1, 2, 50), (2.5, 4, 120)):
        replies = [line["rtt_ns"] for line in between(begin_s, end_s) if line["type"] == "reply"]
        assert abs(min(replies) / 1e6 - rtt_ms) < 6, (begin_s, rtt_ms)  # the least: that of an empty queue
    assert {line["type"] for line in between(2 - 0.2, 2.5 - 0.1)} == {"lost"}
