# SPDX-License-Identifier: Apache-2.0
"""What an environment holds for other people's programs."""

from atoll.model.secrets import SECRETS, without_secrets
from atoll_dashboards.influx_settings import InfluxSettings, influx_settings


def test_tokens_are_left_out_and_nothing_else() -> None:
    """Where the database is may be known."""
    plain = {"PATH": "/bin", "ATOLL_INFLUX_URL": "http://db:8086"}
    assert without_secrets({**plain, **dict.fromkeys(SECRETS, "secret")}) == plain


def test_the_token_of_the_database_is_among_them() -> None:
    """Under the name that its settings are read by."""
    held = {"HOME": "/nowhere", "ATOLL_INFLUX_URL": "http://db:8086", **dict.fromkeys(SECRETS, "secret")}
    assert influx_settings(held) == InfluxSettings("http://db:8086", "secret")
