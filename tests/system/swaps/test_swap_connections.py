# SPDX-License-Identifier: Apache-2.0
"""TCP connections through a program that splits them, when traffic is moved away from it or to it."""

from typing import Any

import pytest

from tests.support.sandbox import found_by

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of the connections, each an echo's."""
    return found_by("tests.guests.connections_guest", tmp_path_factory.mktemp("connections"))


def test_both_ends_learn_of_it_when_the_box_leaves_the_chain(found: dict[str, Any]) -> None:
    """The proxy's two sockets are ended; neither host has sent anything or waits for a time-out."""
    assert found["reset"] == [[["reset", {"r2": 2}]], ["ConnectionResetError", "ConnectionResetError"]]


def test_connections_that_no_stateful_box_ends_live_on(found: dict[str, Any]) -> None:
    """A plain router comes into the chain: nothing to tell, and the echo answers."""
    assert found["unmoved"] == [[], True]


def test_a_connection_that_comes_to_a_proxy_is_reset_when_it_is_used(found: dict[str, Any]) -> None:
    """The proxy knows nothing of it; its kernel answers for it."""
    assert found["come"] == [[], "ConnectionResetError"]


def test_a_swap_that_waits_turns_packets_when_the_last_connection_has_ended(found: dict[str, Any]) -> None:
    """Until then the echo answers, through the old chain; nothing is reset."""
    answer, answered, seconds = found["waited"]
    assert answer == []
    assert answered
    assert seconds > 2.5


def test_a_swap_that_has_waited_long_enough_says_so_and_resets(found: dict[str, Any]) -> None:
    limit, reset = ["limit", {"r2": 2}], ["reset", {"r2": 2}]
    assert found["limit"] == [[limit, reset], ["ConnectionResetError", "ConnectionResetError"]]


def test_a_connection_that_begins_while_a_swap_waits_takes_the_new_way(found: dict[str, Any]) -> None:
    """The box drops its first packets, so that it is empty at last; its host tries again."""
    assert found["new"] == [False, True]
