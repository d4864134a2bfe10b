# SPDX-License-Identifier: Apache-2.0
"""Runs in which something goes wrong while they measure: the verdict, or the run's error, says what it was."""

from typing import Any

import pytest

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_emulation.uml.guest_init import OUTPUT
from atoll_hosts.binary import find_binary
from tests.support.virtual_runs import said_inside

pytestmark = pytest.mark.virtual


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By disturbance: the error of the run if it failed, what it took, and its summary."""
    output = tmp_path_factory.mktemp("disturbed")
    said = said_inside("tests.guests.disturbed_guest", output, OUTPUT)
    return {
        name: {**answer, "summary": analyse(RunDir.open(output / answer["run"]), find_binary())}
        for name, answer in said.items()
    }


def judged(run: dict[str, Any]) -> tuple[str, list[str]]:
    """The verdict, and what it is for: reasons if the run is invalid, else caveats."""
    assert run["error"] is None
    summary = run["summary"]
    return summary["verdict"], summary["reasons"] or summary["caveats"]


def codes(run: dict[str, Any]) -> list[str]:
    """The codes of the reasons for which a run is invalid."""
    assert run["error"] is None
    return run["summary"]["reason_codes"]


def test_a_run_that_nothing_disturbs_is_valid(runs: dict[str, Any]) -> None:
    assert judged(runs["nothing"]) == ("valid", [])
    assert runs["nothing"]["summary"]["clocks"]["step_ms"] == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(("name", "step"), [("clock ahead", "+20.000 s"), ("clock back", "-20.000 s")])
def test_a_clock_that_is_set_neither_shortens_nor_lengthens_a_run_and_makes_it_invalid(
    runs: dict[str, Any], name: str, step: str
) -> None:
    run = runs[name]
    verdict, reasons = judged(run)
    assert verdict == "invalid"
    assert f"the clock was set by {step} during the measurement, bound 5 ms" in reasons
    assert run["took_s"] == pytest.approx(runs["nothing"]["took_s"], abs=1.0)
    assert run["summary"]["duration_s"] == 40.0


def test_a_clock_that_is_set_by_little_is_a_caveat(runs: dict[str, Any]) -> None:
    assert judged(runs["clock a little"]) == (
        "valid with caveats",
        ["the clock was set by +2.00 ms during the measurement, bound 5 ms"],
    )


def test_clients_that_fall_silent_are_named(runs: dict[str, Any]) -> None:
    _, reasons = judged(runs["clients frozen"])
    assert codes(runs["clients frozen"]).count("HOST_SILENT") == 5, reasons
    assert len([each for each in reasons if "no TCP payload reached" in each]) == 5, reasons


def test_a_server_that_falls_silent_is_named(runs: dict[str, Any]) -> None:
    _, reasons = judged(runs["server frozen"])
    assert "HOST_SILENT" in codes(runs["server frozen"])
    assert any("no TCP payload came from" in each for each in reasons), reasons


@pytest.mark.parametrize(("name", "job"), [("client ended", "load-i"), ("capture ended", "capture-")])
def test_a_job_that_ends_too_early_with_exit_status_0_fails_the_run(runs: dict[str, Any], name: str, job: str) -> None:
    assert runs[name]["error"].startswith(job)
    assert "ended too early" in runs[name]["error"]


def test_pings_that_were_not_sent_make_a_run_invalid(runs: dict[str, Any]) -> None:
    _, reasons = judged(runs["pinger frozen"])
    assert "PINGS_UNSENT" in codes(runs["pinger frozen"])
    assert any("of 400 planned pings were sent; at least 90 % must be" in each for each in reasons), reasons


def test_pings_that_were_all_lost_make_a_run_invalid(runs: dict[str, Any]) -> None:
    assert "PINGS_LOST" in codes(runs["pings unanswered"])


def test_a_second_owner_of_an_address_is_named_with_both_mac_addresses(runs: dict[str, Any]) -> None:
    """One datagram is enough. The other runs show that boxes of the chain are no second owners."""
    _, reasons = judged(runs["address used twice"])
    assert "DUPLICATE_ADDRESS" in codes(runs["address used twice"])
    (found,) = (each for each in reasons if each.startswith("DUPLICATE_ADDRESS"))
    assert "another machine has the address 10.20.0.1 of i1: MAC address 00:1e:67:aa:bb:cc instead of 02:" in found
    assert "(seen in packets of captures " in found
    duplicates = [run["summary"].get("duplicate_addresses") for run in runs.values()]
    assert len([each for each in duplicates if each]) == 1


def test_a_transfer_that_never_was_makes_a_run_invalid(runs: dict[str, Any]) -> None:
    assert {"TRANSFER_NO_RESULT", "TRANSFER_NO_BYTE"} & {*codes(runs["transfer frozen"])}
