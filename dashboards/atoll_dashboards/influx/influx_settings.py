# SPDX-License-Identifier: Apache-2.0
"""Settings of the user's InfluxDB, from a file and the environment, never from the run directory.

The file is ``influx.toml`` below ``~/.config/atoll`` (``XDG_CONFIG_HOME``), or the one that ``ATOLL_INFLUX`` names:

    url = "http://db.example:8086"
    token = "..."        # InfluxDB 1.8: "user:password"; white space around it is no part of it
    org = "laboratory"   # InfluxDB 1.8 has none
    bucket = "atoll"     # InfluxDB 1.8: "database" or "database/retention-policy"

``ATOLL_INFLUX_URL``, ``_TOKEN``, ``_ORG`` and ``_BUCKET`` override the file.
"""

import hmac
import json
import os
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from atoll_core.errors import UsageError
from atoll_core.secret_variables import INFLUX_TOKEN_VARIABLE, header_safe

FILE_VARIABLE = "ATOLL_INFLUX"


@dataclass(frozen=True, slots=True)
class InfluxSettings:
    """A database and its credentials."""

    url: str
    token: str = field(default="", repr=False)
    org: str = "-"
    bucket: str = "atoll"

    def __str__(self) -> str:
        return f"bucket {self.bucket!r} of {self.url}"


def influx_settings(environment: Mapping[str, str] | None = None) -> InfluxSettings | None:
    """The user's settings, or None if there are none. Raises UsageError when they cannot be used."""
    environment = os.environ if environment is None else environment
    file = settings_file(environment)
    values = _read(file, must_exist=FILE_VARIABLE in environment)
    keys = [key.name for key in fields(InfluxSettings)]
    if unknown := sorted(set(values) - set(keys)):
        raise UsageError(f"{file}: unknown key {unknown[0]!r}; known are {', '.join(keys)}")
    for key in keys:
        if not isinstance(values.get(key, ""), str):
            raise UsageError(f"{file}: {key}: must be a text in quotes")
        if text := environment.get(f"{FILE_VARIABLE}_{key.upper()}"):
            values[key] = text
    if not values:
        return None
    where = f"{file} or {FILE_VARIABLE}_URL"
    require_url(str(values.get("url", "")), where, "the database's", "http://127.0.0.1:8086")
    if "token" in values:
        source = INFLUX_TOKEN_VARIABLE if environment.get(INFLUX_TOKEN_VARIABLE) else f"{file}: token"
        values["token"] = header_safe(values["token"], source)
    return InfluxSettings(**values)


def settings_digest(environment: Mapping[str, str] | None = None, salt: str | None = None) -> str:
    """A mark of the user's settings, ``SALT.HMAC`` in hexadecimal: with one salt, equal for equal settings.

    Two processes compare their databases by it without sending the token. No settings, and those that cannot be used,
    have marks as well.
    """
    salt = salt or secrets.token_hex(16)
    try:
        settings = influx_settings(environment)
        text = json.dumps(astuple(settings) if settings else None)
    except UsageError as error:
        text = str(error)
    return f"{salt}.{hmac.new(salt.encode(), text.encode(errors='surrogateescape'), sha256).hexdigest()}"


def database_mismatch(digest: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The message to a client whose mark differs from ours: the database of the points, and the remedy."""
    salt, _, _ = digest.partition(".")
    if hmac.compare_digest(digest.encode(errors="replace"), settings_digest(environment, salt).encode()):
        return None
    try:
        database = influx_settings(environment)
    except UsageError:  # the run reports it
        database = None
    return (
        f"metrics go to {database or 'no database'}, according to the settings with which the lab was brought up. This "
        "shell has other settings: to use them, run `atoll down` and `atoll up` here. `atoll metrics load RUN` always "
        "uses the settings of its own shell"
    )


def require_url(text: str, source: str, owner: str, example: str) -> None:
    """Raise UsageError unless the URL names a server and holds no password, which would be shown.

    ``source`` and ``owner``: the setting's place and name, for the message.
    """
    if "@" in text:
        raise UsageError(f"{source}: {owner} URL is wanted without user and password; their place is the token")
    if not _is_url(text):
        raise UsageError(f"{source}: {owner} URL is wanted, such as {example}; it says {text!r}")


def _is_url(text: str) -> bool:
    """Return whether a URL names a server. Line breaks are refused here, because urlsplit ignores them."""
    try:
        address = urlsplit(text)
    except ValueError:  # an IPv6 address without its closing bracket
        return False
    return text.isprintable() and address.scheme in ("http", "https") and bool(address.hostname)


def settings_file(environment: Mapping[str, str]) -> Path:
    """Return the settings file's path."""
    if path := environment.get(FILE_VARIABLE):
        return Path(path)
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home()) / ".config"
    return Path(home) / "atoll" / "influx.toml"


def _read(file: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors put a mark before what is UTF-8
    except FileNotFoundError:
        if must_exist:
            raise UsageError(f"{FILE_VARIABLE}: there is no file {file}") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: cannot be read: {error}") from None
