# SPDX-License-Identifier: Apache-2.0
"""Settings of boxes that stay in the chain, changed under traffic in virtual time."""

from typing import Any

import pytest

from tests.support.virtual_runs import HANGS_S, said_inside

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(HANGS_S + 60)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of pings and connections."""
    return said_inside("tests.guests.box_settings_guest", tmp_path_factory.mktemp("settings"))


def test_settings_of_a_machine_change_along_with_a_latency_without_a_loss(found: dict[str, Any]) -> None:
    assert (found["pings"]["sent"], found["pings"]["received"]) == (1800, 1800)


@pytest.mark.parametrize("backend", ["engine", "tc"])
def test_a_link_changes_all_settings_without_a_loss(found: dict[str, Any], backend: str) -> None:
    """Alone, and along with a chain: it does not begin again, as the dry run says. On tc those that tc can change."""
    link = found[f"link on {backend}"]
    assert (link["sent"], link["received"]) == (1800, 1800)
    sat = [line for line in link["said"] if " sat: " in line]
    assert sat == ["modify box     sat: its program takes the other settings while it runs"] * 2


@pytest.mark.parametrize("backend", ["engine", "tc"])
def test_a_swap_for_which_a_link_would_have_to_begin_again_is_refused(found: dict[str, Any], backend: str) -> None:
    (refusal,) = [line for line in found[f"link on {backend}"]["refused"] if line.startswith("sat: ")]
    assert "(another backend)" in refusal
    assert "--immediate" in refusal


def test_time_limits_of_a_pep_change_while_its_connections_go_on(found: dict[str, Any]) -> None:
    """Nothing is waited for and nothing is reset."""
    assert (found["limits"], found["it goes on"]) == ([], True)


def test_a_swap_that_restarts_a_pep_waits_for_its_connections(found: dict[str, Any]) -> None:
    assert (found["while it waits"], found["wait"]) == (True, [])
    assert 4 < found["waited_s"] < 20


def test_connections_that_begin_while_a_swap_waits_take_the_new_way(found: dict[str, Any]) -> None:
    """The PEP admits none of them, so that it is empty at last; their hosts try again."""
    assert not found["new one begins"]
    assert (found["left"], found["new one"]) == ([], True)


def test_a_program_that_does_not_start_leaves_the_old_one_running(found: dict[str, Any]) -> None:
    assert found["refused"].startswith("swap rolled back; the previous configuration is active: ")
    assert found["old one again"]
