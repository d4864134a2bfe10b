# SPDX-License-Identifier: Apache-2.0
"""TCP connections through two PEPs that multiplex them, when traffic is moved away from the PEPs and back."""

from typing import Any

import pytest

from tests.support.sandbox import found_by

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of the connections, each an echo's."""
    return found_by("tests.guests.pep_swap_guest", tmp_path_factory.mktemp("peps"))


def test_both_ends_learn_of_it_when_the_peps_leave_the_chain(found: dict[str, Any]) -> None:
    """The first PEP ends its connection with a host and that between the PEPs, which ends the other one."""
    answer, _ = found["reset"]
    assert answer[0] == ["reset", {"pep-w": 1}]
    assert found["fates"] == ["ConnectionResetError", "ConnectionResetError"]


def test_a_swap_that_waits_does_not_wait_for_the_connection_between_the_peps(found: dict[str, Any]) -> None:
    answer, seconds = found["wait:20 s"]
    assert (answer, found["echoes"]) == ([], True)
    assert 2.5 < seconds < 20


def test_connections_begin_again_when_the_peps_are_back(found: dict[str, Any]) -> None:
    assert found["back"]
