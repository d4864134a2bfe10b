# SPDX-License-Identifier: Apache-2.0
"""Proposed transfers are long enough to leave slow start, and short enough to end within the proposed duration."""

from pathlib import Path

import pytest

from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.transfer_size import propose_transfer
from atoll_core.description.loader import load_experiment
from atoll_core.units import Size

MEO = (
    "links.sat.to_island={rate: 320 Mbit/s, delay: 62500 us, queue: 2 MB}",
    "links.sat.to_world={rate: 80 Mbit/s, delay: 62500 us, queue: 2 MB}",
    "tcp.buffer_max=64 MB",
)


def warned_sizes(project: Path, *settings: str) -> list[str]:
    described = load_experiment(project / "examples/geo.yaml", settings)
    return [each.message for each in description_warnings(*described) if "slow start" in each.message]


@pytest.mark.parametrize(("size", "expected"), [("20 MB", 1), ("21 MB", 0), ("40 MB", 0)])
def test_a_transfer_of_20_mb_that_never_leaves_slow_start_at_320_mbit_s_is_warned_of(
    project: Path, size: str, expected: int
) -> None:
    """The product is 5 MB, the queue 2 MB: 28 MB are sent until the sender learns of a drop.

    The bound is three quarters of it, since drops come sooner under load.
    """
    messages = warned_sizes(project, *MEO, f"transfer.size={size}")
    assert len(messages) == expected
    assert all(
        "MB ends in slow start, which sends 28 MB until" in each and "usual is at least 56 MB" in each
        for each in messages
    )


def test_a_limited_sender_and_the_demo_have_no_such_warning(project: Path) -> None:
    assert warned_sizes(project) == []
    assert warned_sizes(project, "transfer={size: 1 MB, write_rate: 2 Mbit/s}") == []


def test_the_proposed_transfer_ends_at_a_quarter_of_the_rate(project: Path) -> None:
    """GEO 16 Mbit/s, 500 ms, 100 kB: 8.8 MB at 4 Mbit/s take 17.6 s, and begin after 10 s."""
    proposed = propose_transfer(*load_experiment(project / "examples/geo.yaml"))
    assert proposed is not None
    assert (proposed.slow_start, proposed.size, proposed.duration.s) == (Size(4_400_000), Size(8_800_000), 28)


def test_the_terrestrial_latency_of_the_sender_counts(project: Path) -> None:
    """The special server has 140 ms: (500 + 140) ms x 16 Mbit/s + 100 kB = 1.38 MB."""
    proposed = propose_transfer(*load_experiment(project / "examples/geo.yaml", ["latency.ws=rtt-140"]))
    assert proposed is not None
    assert proposed.slow_start == Size(5_600_000)


def test_the_start_of_the_last_named_transfer_counts(project: Path) -> None:
    transfers = "transfers={a: {size: 1 MB, start: 2 s}, b: {size: 1 MB, start: 10 s}}"
    proposed = propose_transfer(*load_experiment(project / "examples/geo.yaml", ["transfer=null", transfers]))
    assert proposed is not None
    assert proposed.duration.s == 28
