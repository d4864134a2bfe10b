# SPDX-License-Identifier: Apache-2.0
"""The controller on twins of hardware switches, in virtual time: exact times, and packets that are lost or not.

`make test-twins` has every kind of hardware, and a hundred swaps.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.guests.twin_guest import AFTER, BEFORE, CROWDED, MANY, REBOOT_S, REBOOTED, SLOW
from tests.support.swap_proof import SWAPS
from tests.support.virtual_runs import HANGS_S, said_inside
from tests.system.virtual.test_virtual_swaps import swapped

DRIVERS = ["procurve-v2", "procurve-v3"] if os.environ.get("ATOLL_TWINS") == "all" else ["procurve-v2"]
_SHIFTED = 3  # stages: install, probe, shift
_FEW = 3  # swaps of `make test-virtual`

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(HANGS_S + 10 * SWAPS)]


@pytest.fixture(scope="module", params=DRIVERS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the controller made of a lab of twins."""
    return said_inside("tests.guests.twin_guest", tmp_path_factory.mktemp("twins"), request.param)


def test_the_plan_is_installed_in_hardware_and_verified_by_probes(found: dict[str, Any]) -> None:
    """Barriers are early, counters are frozen, and the data plane follows up to 3 s later: probes wait for it."""
    installed = found["installed"]
    assert (installed["exact"], installed["forwards"], installed["tables"]) == (True, True, [100])
    assert 0.25 < installed["took_s"] < 10


def test_counters_are_those_of_twenty_seconds_ago(found: dict[str, Any]) -> None:
    frozen = found["frozen"]
    assert frozen["began"] == frozen["soon"] < frozen["later"]


def test_a_full_table_at_a_hundred_flow_mods_a_second_is_installed_with_the_time_to_go(found: dict[str, Any]) -> None:
    """At the rate of the switch: no window of flow-mods is longer than the controller waits."""
    many = found["many"]
    assert (many["exact"], many["back"]) == (True, True)
    assert many["added"] > 1400
    assert many["added"] / 100 <= many["took_s"] < many["added"] / 100 + 1
    progress = [
        re.fullmatch(rf"{SLOW}: (\d+) of (\d+) changes of its flow table, (\d+) s to go", line)
        for line in many["lines"]
    ]
    assert len(progress) > 10
    for line in progress:
        assert line is not None, many["lines"]
        done, total, to_go_s = map(int, line.groups())
        assert total == many["added"] <= MANY
        assert to_go_s == pytest.approx((total - done) / 100, abs=1.1)


def test_a_table_that_is_full_before_its_size_leads_back(found: dict[str, Any]) -> None:
    """The error names the entry and the remedy; the switches have exactly the old entries."""
    full = found["full"]
    assert full["why"].startswith(f"{CROWDED}: switch 1 refused 'entry ")
    assert "OFPFMFC_TABLE_FULL (the table is full: combine prefixes" in full["why"]
    assert (full["exact"], full["forwards"]) == (True, True)


def test_a_reboot_at_any_stage_ends_in_exactly_the_old_or_the_new_plan(found: dict[str, Any]) -> None:
    """In the tables that the switch tells, and in those that it forwards by; before a swap, in it and after."""
    reboots = found["reboots"]
    assert len(reboots) == len(REBOOTED) * (AFTER - BEFORE + 1)
    for each in reboots:
        assert (each["exact"], each["forwards"], each["rebooted"]) == (True, True, 1), each
        assert each["outcome"] == ("old" if each["why"] else "new"), each
        assert each["outcome"] == "new" or each["passed"] < _SHIFTED, each
    for switch in REBOOTED:
        lost = [note for note in found["notes"] if note.startswith(f"{switch} lost its control channel")]
        back = [note for note in found["notes"] if note.startswith(f"{switch} connected again after ")]
        assert len(lost) + len(back) > 0, found["notes"]
        away_s = [float(away[1]) for note in back if (away := re.search(r"after ([0-9.]+) s", note))]
        assert all(away <= REBOOT_S + 1 for away in away_s), away_s


def test_entries_in_software_carry_a_hundred_packets_a_second(found: dict[str, Any]) -> None:
    """All of a switch's together: a packet that passes several of them counts for each."""
    software = found["software"]
    assert software["sent"] == pytest.approx(6000, abs=10)
    assert software["passed"] == pytest.approx(1000, abs=20)


def test_swaps_under_traffic_lose_nothing_on_hardware_that_follows_late(tmp_path: Path) -> None:
    """No packet is lost, doubled, led astray or missed by a tap, though barriers come 0.25 to 3 s early.

    A hundred swaps take a quarter of an hour, in which TCP fills the link's queue once or twice.
    """
    few = SWAPS < _FEW * 3
    swapped(tmp_path, may_queue_overflow=not few, swaps=_FEW if few else SWAPS, twin="procurve-v2", lag_s=0.0)
