# SPDX-License-Identifier: Apache-2.0
"""A ping's times are the kernel's: when the packet left, when the answer came, whoever was busy meanwhile."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from atoll_hosts.binary import find_binary

pytestmark = pytest.mark.lab

GUEST = Path(__file__).parents[2] / "guests" / "ping_stamps_guest.py"
ONE_PACKET_NS = 112_000_000  # what the guest's queue takes for one of its packets


@pytest.fixture(scope="module")
def said() -> tuple[dict[str, Any], dict[str, Any]]:
    """The whistle that was queued, and the one that stood still."""
    options = ["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv = ["unshare", *options, sys.executable, str(GUEST), str(find_binary())]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    queued, still = map(json.loads, done.stdout.splitlines())
    return queued, still


def test_an_answer_comes_when_the_kernel_has_it_not_when_the_program_looks(
    said: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """The program was stopped from before the answer was sent until 0.3 s after: its time is that of the sending."""
    _, still = said
    received_ns = still["sent_ns"] + still["rtt_ns"]
    assert received_ns <= still["answered_ns"] < still["awake_ns"]


def test_a_ping_leaves_when_the_device_gets_it_not_when_the_program_sends_it(
    said: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """Most of a second in the queue of its own machine is no part of the round trip, which a bare cable makes."""
    queued, _ = said
    assert queued["sent_ns"] - queued["asked_ns"] > 3 * ONE_PACKET_NS
    assert 0 < queued["rtt_ns"] < ONE_PACKET_NS
