# SPDX-License-Identifier: Apache-2.0
"""Links of the kernel's take any rate from 1 kbit/s to 100 Gbit/s, and keep to it, packet by packet."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from atoll_core.plan.tc_settings import VIRTUAL_SLACK, bucket_bytes
from tests.guests.rates_guest import Setting, delay_boxes, impairments, settings
from tests.support.virtual_runs import run_virtually, said_inside

pytestmark = pytest.mark.virtual

SETTINGS = settings()
LATE_NS = 1000  # a timer, its clock of 256 ns
IDS = [f"{each.direction.rate}, {each.direction.queue}" for each in SETTINGS]


def due_ns(setting: Setting) -> list[Fraction]:
    """How long after the train was sent each packet is to arrive: once the bucket has its bytes, and the delay.

    The kernel keeps rates in whole bytes per second.
    """
    bucket = bucket_bytes(setting.direction.rate, VIRTUAL_SLACK)
    bytes_s = setting.direction.rate.bit_s // 8
    ends = [sum(setting.train[: count + 1]) for count in range(len(setting.train))]
    return [setting.direction.delay.ns + max(Fraction(0), Fraction((end - bucket) * 10**9, bytes_s)) for end in ends]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that rates_guest measures, in one kernel."""
    return said_inside("tests.guests.rates_guest", tmp_path_factory.mktemp("rates"))


def passage(found: dict[str, Any], number: int) -> dict[str, Any]:
    measured = found["links"][number]
    assert "refused" not in measured, measured["refused"]
    return measured


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=IDS)
def test_any_rate_is_accepted_and_no_packet_is_refused(found: dict[str, Any], number: int) -> None:
    """Full-size packets and the smallest pass a bucket that holds one, and a queue that holds no more."""
    measured = passage(found, number)
    assert None not in measured["arrived"]
    assert (measured["mark"]["in_packets"], measured["mark"]["dropped_packets"]) == (len(measured["sent"]), 0)


@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=IDS)
def test_every_packet_of_a_train_leaves_by_the_rate(found: dict[str, Any], number: int) -> None:
    measured, setting = passage(found, number), SETTINGS[number]
    began = measured["sent"][0]
    late = [arrived - began - due for arrived, due in zip(measured["arrived"], due_ns(setting), strict=True)]
    assert min(late) >= -LATE_NS, float(min(late))
    assert max(late) <= LATE_NS + measured["sent"][-1] - began, float(max(late))


def test_losses_and_jitter_of_any_amount_are_read_back(found: dict[str, Any]) -> None:
    assert found["impairments"] == [None] * len(impairments())


def test_delay_boxes_on_trunks_of_any_rate_are_read_back(found: dict[str, Any]) -> None:
    assert found["delay_boxes"] == [None] * len(delay_boxes())


def test_a_whole_run_at_an_odd_rate_is_valid(project: Path, tmp_path: Path) -> None:
    """With losses at the receiver: captures and the kernel's counters agree to the byte."""
    settings = (
        "links.sat.to_island.rate=133 Mbit/s",
        "links.sat.to_island.loss=0.1 %",
        "tcp.buffer_max=20 MB",
        "transfer.size=1 MB",
    )
    words = [word for setting in settings for word in ("--set", setting)]
    summary = run_virtually(tmp_path, "--duration", "20 s", *words, project / "examples/geo.yaml")
    link = summary["links"]["sat"]
    assert link["losses"]["random"]["packets"] > 0
    assert summary["loss_bytes_captures"] == summary["loss_bytes_link"] == link["loss_bytes"]
    assert 0 < link["sojourn"]["mean_ms"] < link["sojourn"]["max_ms"] <= 8e3 * link["queue_bytes"] / link["rate_bit_s"]
