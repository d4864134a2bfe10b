# SPDX-License-Identifier: Apache-2.0
"""A link of 64 kbit/s on the engine, where a ping takes 10.5 ms of it: the configuration test of all pairs of hosts."""

import json
from pathlib import Path

import pytest

from tests.lab.sandbox import QUICK
from tests.lab.virtual_runs import RESOLUTION_NS, atoll

pytestmark = pytest.mark.virtual

PING_NS = 8 * 84 * 10**9 // 64_000


@pytest.mark.parametrize(("to_island", "queue"), [(64_000, "6 kB"), (256_000, "24 kB")])
def test_every_pair_of_hosts_passes_on_a_link_of_64_kbit_s(to_island: int, queue: str, tmp_path: Path) -> None:
    settings = [
        f"links.sat.to_island={{rate: {to_island} bit/s, delay: 10 ms, queue: {queue}}}",
        "links.sat.to_world={rate: 64 kbit/s, delay: 10 ms, queue: 6 kB}",
        "traffic.channels=1",
        "ping.interval=1 s",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    done = atoll(
        tmp_path, "run", QUICK, "--on", "virtual", "--backend", "engine", "--full-matrix", "--no-analysis", *words
    )
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("runs/quick/*/events.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    checks = [event for event in events if event["type"] == "check"]
    pairs = {(event["src"], event["dst"]) for event in checks}
    assert len(pairs) == len({src for src, _ in pairs}) * len({dst for _, dst in pairs}) == len(checks)
    assert {event["received"] for event in checks} == {10}
    serialised_ns = PING_NS + PING_NS * 64_000 // to_island
    beyond = [event["rtt_min_ns"] - event["expected_ns"] - serialised_ns for event in checks]
    assert 0 <= min(beyond) <= max(beyond) <= RESOLUTION_NS
    rows = {(row["direction"], row["name"]): row for row in events if row["type"] == "calibration"}
    assert {row["state"] for row in rows.values()} == {"ok"}, rows
    assert rows["to_world", "rate of IP packets"]["measured"] == pytest.approx(0.064, rel=0.02)
    assert rows["to_island", "rate of IP packets"]["measured"] == pytest.approx(to_island / 1e6, rel=0.02)
