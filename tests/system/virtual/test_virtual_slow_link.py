# SPDX-License-Identifier: Apache-2.0
"""Links of 64 kbit/s, where a ping takes 10.5 ms of them: the configuration test of all pairs of hosts; deep queues."""

import json
from pathlib import Path

import pytest

from tests.support.sandbox import QUICK
from tests.support.virtual_runs import RESOLUTION_NS, atoll, run_virtually

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


def test_pings_behind_a_deep_queue_are_answered_after_the_end_and_none_counts_as_lost(
    project: Path, tmp_path: Path
) -> None:
    """At 64 kbit/s a queue of 300 kB holds half a minute of load; those under way at the end are waited for."""
    settings = ("links.sat.to_island={rate: 64 kbit/s, delay: 250 ms, queue: 300 kB}", "transfer=")
    words = [word for setting in settings for word in ("--set", setting)]
    summary = run_virtually(tmp_path, "--duration", "40 s", *words, project / "examples/geo.yaml")
    assert (summary["ping_sent"], summary["ping_lost"]) == (400, 0)
    link = summary["links"]["sat"]
    most_ms = 8e3 * link["queue_bytes"] / link["rate_bit_s"]
    assert 10_000 < summary["sojourn_max_ms"] <= link["sojourn"]["max_ms"] + 100 <= most_ms
