# SPDX-License-Identifier: Apache-2.0
"""The traffic jobs at size: a thousand channels against three servers, and pings in a namespace of a plain user's."""

import csv
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from atoll_hosts.binary import find_binary
from tests.support.traffic_job import jain, running

CHANNELS = 1000
SEED = 5


@pytest.fixture
def servers() -> Iterator[list[str]]:
    """Addresses of three world servers on loopback."""
    config = {"listen": "127.0.0.1:0", "congestion_control": "reno"}
    argv = (str(find_binary()), "serve")
    with running(config, *argv) as first, running(config, *argv) as second, running(config, *argv) as third:
        yield [server.ready["listen"] for server in (first, second, third)]


def test_a_thousand_channels_all_fetch_what_their_seed_draws(servers: list[str], tmp_path: Path) -> None:
    """Every channel is served, none is starved, and the flow log is what `atoll-host flows` says it must be."""
    binary, log = str(find_binary()), tmp_path / "flows.csv"
    config = {
        "seed": SEED,
        "channels": list(range(CHANNELS)),
        "servers": servers,
        "flow_sizes": "published",
        "start_at_ns": 0,
        "duration_ns": 0,
        "congestion_control": "reno",
        "flow_log": str(log),
    }
    with running(config, binary, "load") as load:
        while load.next_of("counters")["flows_completed"] < 5 * CHANNELS:
            pass
        done = load.stop()
    with log.open(newline="") as lines:
        rows = list(csv.DictReader(lines))

    first_bytes = {int(row["channel"]) for row in rows if row["flow"] == "0" and row["first_byte_ns"]}
    assert first_bytes == set(range(CHANNELS))
    assert done["channels_served"] == CHANNELS
    assert done["fairness"] > 0.9
    # The loop's own figure aside: flows begun. A loop that starved channels above 20 would give 0.02; heavy tails,
    # which keep a few channels busy with one flow, cost a little.
    assert jain(list(Counter(row["channel"] for row in rows).values())) > 0.5

    assert {row["outcome"] for row in rows} == {"completed", "cut"}
    assert all(row["received_bytes"] == row["size_bytes"] for row in rows if row["outcome"] == "completed")
    assert sum(int(row["received_bytes"]) for row in rows) == done["received_bytes"]
    assert sum(row["outcome"] == "completed" for row in rows) == done["flows_completed"]
    for channel in range(0, CHANNELS, 97):
        logged = {
            int(row["flow"]): (servers.index(row["server"]), int(row["size_bytes"]))
            for row in rows
            if int(row["channel"]) == channel
        }
        assert logged == drawn(binary, channel, len(logged), len(servers))


def test_a_quiet_server_says_nothing_before_its_last_words() -> None:
    config = {"listen": "127.0.0.1:0", "congestion_control": "reno", "quiet": True}
    with running(config, str(find_binary()), "serve") as server:
        time.sleep(2.5)  # counters are due every second
        assert server.stop(("counters", "done"))["type"] == "done"


def drawn(binary: str, channel: int, count: int, servers: int) -> dict[int, tuple[int, int]]:
    """The first flows of a channel as the tool prints them: server index and size."""
    options = {"seed": SEED, "channel": channel, "count": count, "servers": servers}
    argv = [f"--{name}={option}" for name, option in options.items()]
    text = subprocess.run([binary, "flows", *argv], capture_output=True, text=True, check=True).stdout
    rows = csv.DictReader(text.splitlines())
    return {int(row["flow"]): (int(row["server_index"]), int(row["size_bytes"])) for row in rows}


NAMESPACE = """
ip link set lo up
ip link add v0 type veth peer name v1
ip addr add 10.99.0.1/24 dev v0
ip link set v0 up && ip link set v1 up
ip neigh replace 10.99.0.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent
exec "$0" ping
"""


@pytest.mark.lab
def test_pings_are_answered_or_lost_in_a_namespace_of_our_own() -> None:
    """As root of a user namespace: loopback answers every ping, an absent host none; without a route none is sent."""
    config = {
        "targets": [
            {"name": "here", "address": "127.0.0.1"},
            {"name": "nobody", "address": "10.99.0.2"},
            {"name": "nowhere", "address": "192.0.2.1"},
        ],
        "interval_ns": 20_000_000,
        "count": 5,
        "timeout_ns": 2_000_000_000,
        "size_bytes": 56,
        "identifier": os.getpid() & 0xFFFF,
        "payload": "atoll ping",
        # Linux switches time stamps on by a worker, which a busy machine runs later (net/core/dev.c, netstamp_clear).
        "start_at_ns": time.time_ns() + 500_000_000,
    }
    unshare = ["unshare", "--user", "--map-root-user", "--net", "--kill-child", "--fork", "--", "sh", "-e", "-c"]
    messages: list[dict[str, Any]] = []
    with running(config, *unshare, NAMESPACE, str(find_binary())) as job:
        while not messages or messages[-1]["type"] != "done":
            messages.append(job.next_of("reply", "lost", "done"))
    replies = [message for message in messages if message["type"] == "reply"]
    lost = [message for message in messages if message["type"] == "lost"]
    assert [(reply["target"], reply["seq"]) for reply in replies] == [("here", seq) for seq in range(5)]
    assert {(ping["target"], ping["seq"]) for ping in lost} == {
        (name, n) for name in ("nobody", "nowhere") for n in range(5)
    }
    assert all(0 < reply["rtt_ns"] < config["timeout_ns"] for reply in replies)
    sent = [reply["sent_ns"] for reply in replies]
    assert all(earlier < later for earlier, later in pairwise(sent))
    here, nobody, nowhere = (messages[-1]["targets"][name] for name in ("here", "nobody", "nowhere"))
    assert (here["unsent"], nobody["unsent"], nowhere["unsent"]) == (0, 0, 5)
    assert (here["unstamped"], nowhere["sent"], nowhere["received"]) == (0, 5, 0)
    assert (here["sent"], here["received"], nobody["sent"], nobody["received"]) == (5, 5, 5, 0)
    assert here["rtt_min_ns"] <= here["rtt_median_ns"] <= here["rtt_max_ns"]
    assert nobody["rtt_median_ns"] is None
