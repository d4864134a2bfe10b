# SPDX-License-Identifier: Apache-2.0
"""Random chain swaps under traffic in virtual time, on the kernel datapath: there zero is zero."""

import json
import sys
from pathlib import Path

import pytest

from atoll_emulation.uml.guest import OUTPUT
from atoll_emulation.uml.kernel import find_virtual_kernel
from atoll_emulation.uml.run import VirtualClock, run_in_uml
from tests.lab.swap_proof import SWAPS
from tests.lab.test_swap_traffic import hold
from tests.lab.virtual_runs import HANGS_S

_PER_SWAP_S = 5  # of the machine's time

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(HANGS_S + SWAPS * _PER_SWAP_S)]


def test_no_packet_is_lost_doubled_or_led_astray_in_virtual_time(tmp_path: Path) -> None:
    """Not one, anywhere; and whatever a swap takes beyond its drain is not the machine's doing."""
    options = {"swaps": SWAPS, "backend": "tc", "virtual": True}
    command = [sys.executable, "-m", "tests.lab.swap_guest", str(OUTPUT), json.dumps(options)]
    limit_s = HANGS_S + SWAPS * _PER_SWAP_S
    ended = run_in_uml(command, tmp_path, limit_s=limit_s, kernel=find_virtual_kernel(), clock=VirtualClock(1))
    assert ended.status == 0, ended.console
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["datapath"] == "kernel"
    swaps = [version["swap"] for version in facts["versions"][1:]]
    assert [(swap["outcome"], swap["exact"], swap["why"]) for swap in swaps] == [("new", True, "")] * SWAPS
    verdicts = hold(facts, tmp_path)
    assert sum(verdict.lost + verdict.in_link for verdict in verdicts.values()) == 0
