# SPDX-License-Identifier: Apache-2.0
"""Channels are fair to each other, whatever their number; a naive client's are not. Run with -s, figures are printed.

On loopback the clients are what is slow, which is where the trap bites; over a satellite link in virtual time, where
computing takes no time, what is left of unfairness is TCP's own.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from atoll_emulation.uml.kernel import find_virtual_kernel
from atoll_emulation.uml.run import VirtualClock, run_in_uml
from atoll_hosts.binary import find_binary
from tests.lab.channels_guest import FLOW_BYTES, completed
from tests.lab.sandbox import ROOT, Sandbox
from tests.lab.test_traffic import jain, running

FLOWS = 200  # of each channel at least
ENOUGH = 1.4  # on average, for the slowest of two thousand channels to have FLOWS


def by_naive_client(server: str, channels: int, seconds: float) -> list[int]:
    address, port = server.split(":")
    argv = [sys.executable, "-m", "tests.lab.naive_client", address, port, str(channels), str(FLOW_BYTES), str(seconds)]
    return json.loads(subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def by_channels(server: str, channels: int, log: Path) -> list[int]:
    """Flows completed by channel, once all channels together have ENOUGH times FLOWS each."""
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
        while load.next_of("counters")["flows_completed"] < ENOUGH * FLOWS * channels:
            pass
        assert load.stop()["flows_failed"] == 0
    return completed(log, channels, 0, 0)["flows"]


def compare(channels: int, tmp_path: Path) -> None:
    """The naive client first: that it starves channels here shows that the machine is one to show fairness on."""
    config = {"listen": "127.0.0.1:0", "congestion_control": "reno"}
    with running(config, str(find_binary()), "serve") as server:
        naive = by_naive_client(server.ready["listen"], min(channels, 1000), 2.0)
        ours = by_channels(server.ready["listen"], channels, tmp_path / "flows.csv")
    print(f"{channels} channels: Jain's index {jain(ours):.5f}, at least {min(ours)} flows; naive {jain(naive):.5f}")
    assert min(ours) >= FLOWS
    assert jain(ours) >= 0.99
    assert jain(naive) < 0.6
    if channels >= 200:
        assert naive.count(0) > len(naive) / 2, "more than half of its channels never completed a flow"


@pytest.mark.parametrize("channels", [20, 200])
def test_channels_get_equal_shares_where_a_naive_client_starves_most(channels: int, tmp_path: Path) -> None:
    compare(channels, tmp_path)


@pytest.mark.figures
@pytest.mark.timeout(400)
def test_two_thousand_channels_get_equal_shares(tmp_path: Path) -> None:
    """Some 560,000 flows."""
    compare(2000, tmp_path)


@pytest.mark.lab
@pytest.mark.figures
def test_one_process_on_one_core_sustains_four_thousand_channels_on_a_fast_link(tmp_path: Path) -> None:
    """MEO, 320 Mbit/s, flows of 10 kB: far more flows than asked for, the core is not full, no channel is forgotten.

    How many channels complete a flow in each 10 s is printed: 99 % on a quiet machine. It is TCP that decides: so many
    connections lose much on a full link, and some wait out several of its time-outs, which double (RFC 6298).
    """
    with Sandbox(tmp_path, setup="mount -t tmpfs none /run") as sandbox:
        done = sandbox.run(
            "env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.lab.channels_guest", "engine", "4000", "30"
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    shares, cpu_s = found["least_share"], found["client_cpu_s"]
    print(
        f"4000 channels: {found['flows_completed']} flows, least share of an interval {shares:.4f}, CPU {cpu_s:.1f} s"
    )
    assert found["flows_failed"] == 0
    assert found["flows_completed"] >= 4 * 4000 * 3, "four times what a flow of each channel in 10 s makes"
    assert min(found["flows"]) >= 1
    assert cpu_s < 20, "of the 30 s that one core has"


@pytest.mark.virtual
@pytest.mark.timeout(300)
@pytest.mark.parametrize("channels", [20, 200])
def test_channels_get_equal_shares_of_a_fast_link_in_virtual_time(channels: int, tmp_path: Path) -> None:
    """With equal RTTs and flows, each some 0.3 s long; the machine's speed has no part in it."""
    command = [sys.executable, "-m", "tests.lab.channels_guest", "tc", str(channels), "80"]
    kernel = find_virtual_kernel()
    ended = run_in_uml(command, tmp_path, limit_s=250, kernel=kernel, clock=VirtualClock(1), memory_mb=900)
    assert ended.status == 0, ended.console
    flows = json.loads(ended.console)["flows"]
    print(f"{channels} channels: Jain's index {jain(flows):.5f}, at least {min(flows)} flows")
    assert min(flows) >= FLOWS
    assert jain(flows) >= 0.99
