# SPDX-License-Identifier: Apache-2.0
"""What an environment holds for other people's programs, and which secrets can be sent at all."""

from pathlib import Path

import pytest

from atoll_cli.commands.metrics import install
from atoll_core.errors import UsageError
from atoll_core.secret_variables import SECRETS, header_safe, without_secrets
from atoll_dashboards.influx.influx_settings import InfluxSettings, influx_settings


def test_tokens_are_left_out_and_nothing_else() -> None:
    """Where the database is may be known."""
    plain = {"PATH": "/bin", "ATOLL_INFLUX_URL": "http://db:8086"}
    assert without_secrets({**plain, **dict.fromkeys(SECRETS, "secret")}) == plain


def test_the_token_of_the_database_is_among_them() -> None:
    """Under the name that its settings are read by."""
    held = {"HOME": "/nowhere", "ATOLL_INFLUX_URL": "http://db:8086", **dict.fromkeys(SECRETS, "secret")}
    assert influx_settings(held) == InfluxSettings("http://db:8086", "secret")


@pytest.mark.parametrize(
    ("secret", "sent"),
    [
        ("plain-token==", "plain-token=="),
        ("token\r\n", "token"),  # of a file from Windows
        (" \ttoken ", "token"),
        ("user:pass word", "user:pass word"),
        ("tök:€", "tök:€"),  # InfluxDB 1.8's and Grafana's passwords may be of any letters
        ("", ""),
    ],
)
def test_white_space_around_a_secret_is_no_part_of_it(secret: str, sent: str) -> None:
    assert header_safe(secret, "x") == sent


@pytest.mark.parametrize(
    ("secret", "wrong"),
    [
        ("sec\nret", "character 4 of it is a line break or another control character"),
        ("sec\x00ret", "character 4 of it is a line break or another control character"),
        ("user:sec\rret", "character 9 of it is a line break or another control character"),
        ("sec€ret", "character 4 of it is not in ASCII, as those of tokens are"),
        ("secrét", "character 5 of it is not in ASCII, as those of tokens are"),
        ("user:sec\udcffret", "character 9 of it is not text in UTF-8"),
    ],
)
def test_what_no_request_can_hold_is_refused_without_being_shown(
    secret: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When settings are read, whoever reads them: of the database from its file or the environment, and Grafana's."""
    plain = {"HOME": str(tmp_path), "ATOLL_INFLUX_URL": "http://db:8086"}
    with pytest.raises(UsageError, match=f"^ATOLL_INFLUX_TOKEN: {wrong}; copy it again$"):
        influx_settings({**plain, "ATOLL_INFLUX_TOKEN": secret})
    with pytest.raises(UsageError, match=f"^--token: {wrong}; copy it again$"):
        install(token=secret)
    if "\x00" not in secret:  # of which no environment can hold any
        monkeypatch.setenv("ATOLL_GRAFANA_TOKEN", secret)
        with pytest.raises(UsageError, match=f"^ATOLL_GRAFANA_TOKEN: {wrong}; copy it again$"):
            install()


def test_a_token_in_a_file_is_named_by_it(tmp_path: Path) -> None:
    """Whatever its editor puts before the text, and around a text of several lines."""
    file = tmp_path / "influx.toml"
    environment = {"ATOLL_INFLUX": str(file)}
    file.write_text('\ufeffurl = "http://db:8086"\r\ntoken = """\r\nsecret\r\n"""\r\n')
    assert influx_settings(environment) == InfluxSettings("http://db:8086", "secret")
    file.write_text('url = "http://db:8086"\ntoken = """\nsec\nret"""\n')
    with pytest.raises(UsageError, match=f"^{file}: token: character 4 of it is a line break"):
        influx_settings(environment)


@pytest.mark.parametrize("url", ["http://user:secret@db:8086", "user:secret@db:8086"])
def test_a_password_in_a_url_is_not_shown(url: str, tmp_path: Path) -> None:
    """It would not be sent either."""
    with pytest.raises(
        UsageError, match=r"URL is wanted without user and password; their place is the token$"
    ) as answer:
        influx_settings({"HOME": str(tmp_path), "ATOLL_INFLUX_URL": url})
    assert "secret" not in str(answer.value)
    with pytest.raises(UsageError, match=r"^--influx: the database's URL is wanted without user") as answer:
        install(token="x", influx=url)
    assert "secret" not in str(answer.value)
