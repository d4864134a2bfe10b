# SPDX-License-Identifier: Apache-2.0
"""A shell and the daemon of its lab learn that they have different databases, and no token is told."""

import pytest

from atoll_dashboards.influx.influx_settings import database_mismatch, settings_digest

HELD = {
    "HOME": "/nowhere",
    "ATOLL_INFLUX_URL": "http://db:8086",
    "ATOLL_INFLUX_TOKEN": "the-secret",
    "ATOLL_INFLUX_ORG": "lab",
    "ATOLL_INFLUX_BUCKET": "b",
}
NONE = {"HOME": "/nowhere"}


def test_equal_settings_have_nothing_to_tell() -> None:
    """Wherever they are from: white space around a token is no difference; nor are two that have none."""
    assert database_mismatch(settings_digest(HELD), HELD) is None
    assert database_mismatch(settings_digest({**HELD, "ATOLL_INFLUX_TOKEN": "the-secret\r"}), HELD) is None
    assert database_mismatch(settings_digest(NONE), NONE) is None


@pytest.mark.parametrize(
    "shell",
    [
        {**HELD, "ATOLL_INFLUX_TOKEN": "wrong"},
        {**HELD, "ATOLL_INFLUX_TOKEN": "un\nusable"},
        {**HELD, "ATOLL_INFLUX_URL": "http://other:8086"},
        {**HELD, "ATOLL_INFLUX_ORG": "other"},
        {**HELD, "ATOLL_INFLUX_BUCKET": "other"},
        NONE,
    ],
)
def test_whatever_differs_is_told_in_a_line_with_the_database_that_is_used(shell: dict[str, str]) -> None:
    answer = database_mismatch(settings_digest(shell), HELD)
    assert answer is not None
    assert answer.startswith(
        "metrics go to bucket 'b' of http://db:8086, according to the settings with which the lab was brought up"
    )
    assert "\n" not in answer
    assert "the-secret" not in answer
    back = database_mismatch(settings_digest(HELD), shell)
    assert back is not None
    assert "the-secret" not in back + settings_digest(HELD)


def test_a_daemon_without_a_database_says_so() -> None:
    answer = database_mismatch(settings_digest(HELD), NONE)
    assert answer is not None
    assert answer.startswith("metrics go to no database, according to the settings")


def test_a_mark_tells_nothing_twice() -> None:
    """Each has a salt of its own: two of them do not say that they are of one token."""
    assert settings_digest(HELD) != settings_digest(HELD)


@pytest.mark.parametrize("mark", ["", ".", "nonsense", "ä.ö"])
def test_a_mark_that_is_none_is_that_of_others(mark: str) -> None:
    assert database_mismatch(mark, HELD)
