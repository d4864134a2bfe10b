# SPDX-License-Identifier: Apache-2.0
"""Channels on loopback, where the client is what is slow: ours, and those of the naive client (naive_client.py)."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from atoll_hosts.binary import find_binary
from tests.guests.channels_guest import FLOW_BYTES, Trial, completed
from tests.support.sandbox import ROOT
from tests.support.traffic_job import running

FLOWS = 200  # of each channel at least
_ENOUGH = 1.4  # on average, for the slowest of two thousand channels to have FLOWS
_NAIVE_S = 2.0


@dataclass(frozen=True)
class Served:
    """What the channels of a client came to."""

    flows: list[int]
    """Completed by each channel."""
    longest_wait_s: float
    """Of a ready channel for its service."""
    fairness: float | None = None
    """As ours says of itself."""


def on_loopback(channels: int, scratch: Path) -> tuple[Served, Served]:
    """The channels of the naive client, in two seconds, then of ours, until all have FLOWS."""
    config = {"listen": "127.0.0.1:0", "congestion_control": "reno"}
    with running(config, str(find_binary()), "serve") as server:
        address = server.ready["listen"]
        return _naive(address, channels), _ours(address, channels, scratch / "flows.csv")


def _naive(server: str, channels: int) -> Served:
    numbers = (channels, FLOW_BYTES, _NAIVE_S)
    argv = [sys.executable, "-m", "tests.guests.naive_client", *server.split(":"), *map(str, numbers)]
    said = json.loads(subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    return Served(said["completed"], said["longest_wait_s"])


def _ours(server: str, channels: int, log: Path) -> Served:
    config = {
        "seed": 1,
        "channels": list(range(channels)),
        "servers": [server],
        "flow_sizes": {"kind": "steps", "knots": [[10**9, FLOW_BYTES]]},
        "start_at_ns": 0,
        "duration_ns": 0,
        "congestion_control": "reno",
        "flow_log": str(log),
    }
    with running(config, str(find_binary()), "load") as load:
        while load.next_of("counters")["flows_completed"] < _ENOUGH * FLOWS * channels:
            pass
        done = load.stop()
    assert done["flows_failed"] == 0
    return Served(completed(log, Trial(channels, 0), 0)[0], done["longest_wait_ns"] / 1e9, done["fairness"])
