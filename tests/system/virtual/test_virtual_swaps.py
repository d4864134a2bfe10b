# SPDX-License-Identifier: Apache-2.0
"""Random chain swaps under traffic in virtual time, on the kernel datapath: there zero is zero.

The switches' data planes follow their barriers by 0 to 3 s, each by another time in each swap.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from atoll_emulation.uml.boot import VirtualClock, run_in_uml
from atoll_emulation.uml.guest_init import OUTPUT
from atoll_emulation.uml.kernel import find_virtual_kernel
from tests.support.swap_proof import SEED, SWAPS
from tests.support.virtual_runs import HANGS_S
from tests.system.swaps.test_swap_traffic import hold

DETOURS = 10
"""Swaps that pass versions in between: half a minute."""

FEW = 10
"""More swaps than these take so long that TCP may fill the link's queue, with or without them."""

_PER_SWAP_S = 10  # of the machine's time

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(HANGS_S + SWAPS * _PER_SWAP_S)]


def test_no_packet_is_lost_doubled_or_led_astray_in_virtual_time(tmp_path: Path) -> None:
    """Not one, anywhere; and whatever a swap takes beyond its drain is not the machine's doing.

    A hundred swaps take a quarter of an hour, in which TCP fills the link's queue once or twice.
    """
    swapped(tmp_path, swaps=SWAPS, may_queue_overflow=SWAPS > FEW)


def test_a_swap_back_waits_until_what_the_swap_before_deleted_is_out_of_the_data_plane(tmp_path: Path) -> None:
    """The middle switch follows 3 s late, the edges at once; a swap begins within a second of the one before."""
    chains = [["tap-w", "r2", "sat", "tap-i"], ["tap-w", "r1", "sat", "tap-i"]]
    swaps = swapped(tmp_path, swaps=4, chains=chains, lagging="sw-c", pause_s=0.5)
    waited = [[text.split()[1] for text in swap["texts"] if "waited" in text] for swap in swaps]
    assert waited == [[], ["install"], ["install"], ["install"]], [swap["texts"] for swap in swaps]


def test_any_chain_becomes_any_other_one_without_spare_legs(tmp_path: Path) -> None:
    """In the lab that comes with atoll, by versions in between, whose packets are counted, too."""
    swaps = swapped(tmp_path, swaps=DETOURS, detours=True, experiment="shipped.yaml", lag_s=0.0)
    assert all(len(swap["passed"]) > 1 for swap in swaps)
    assert all(swap["shifts"] == sorted(swap["shifts"]) for swap in swaps)


def test_latencies_change_between_or_behind_chains_where_they_cannot_before(tmp_path: Path) -> None:
    """Chains and latencies of one swap, in a lab whose routed boxes have no spare legs and whose switches lag."""
    swaps = swapped(
        tmp_path,
        swaps=3,
        detours=True,
        chains=[["sat", "r2", "tap-i", "r1"], ["sat", "r1", "tap-w", "tap-i"], ["r2", "sat", "tap-i"]],
        latencies=[[("w2", "rtt-20")], [("w1", "rtt-20"), ("w2", "rtt-80")], [("w1", "rtt-80"), ("w2", "rtt-20")]],
        experiment="scattered.yaml",
        lag_s=1.0,
    )
    assert [swap["subjects"] for swap in swaps] == [*[["chains", "latency", "chains"]] * 2, ["chains", "latency"]]


@pytest.mark.parametrize("experiment", ["coded.yaml", "multiplexed.yaml"])
def test_chains_latencies_and_settings_of_coders_peps_and_the_link_change_without_a_loss(
    experiment: str, tmp_path: Path
) -> None:
    """Coders hold packets meanwhile. The link loses some, which its captures show; connections through PEPs break."""
    settings = {"boxes": True, "experiment": experiment, "backend": "engine", "lag_s": 0.0, "share": 0.1}
    swaps = swapped(tmp_path, swaps=SWAPS, seed=SEED, may_queue_overflow=True, **settings)
    assert any(any(swap["renewed"]) for swap in swaps) or SWAPS < 50  # programs take most settings while they run
    assert any(swap["link changes"] for swap in swaps)


def swapped(directory: Path, *, may_queue_overflow: bool = False, **options: Any) -> list[dict[str, Any]]:
    """The swaps, after which no packet may be missing, but those that the link's full queue dropped and counted."""
    options = {"backend": "tc", "virtual": True, "lag_s": 3.0, "share": 0.2} | options
    command = [sys.executable, "-m", "tests.guests.swap_guest", str(OUTPUT), json.dumps(options)]
    limit_s = HANGS_S + options["swaps"] * _PER_SWAP_S
    status, console = run_in_uml(
        command, directory, limit_s=limit_s, kernel=find_virtual_kernel(), clock=VirtualClock(1)
    )
    assert status == 0, console
    facts = json.loads((directory / "facts.json").read_text())
    assert facts["datapath"] == "kernel"
    swaps = [version["swap"] for version in facts["versions"][1:]]
    assert [(swap["outcome"], swap["exact"], swap["why"]) for swap in swaps] == [("new", True, "")] * len(swaps)
    verdicts = hold(facts, directory)
    assert sum(verdict.lost for verdict in verdicts.values()) == 0
    assert may_queue_overflow or sum(verdict.in_link for verdict in verdicts.values()) == 0
    return swaps
