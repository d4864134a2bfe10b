# SPDX-License-Identifier: Apache-2.0
"""Whether two processes of a user's would write to the same database, found without a token on its way between them."""

import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import astuple
from hashlib import sha256

from atoll_core.errors import UsageError
from atoll_dashboards.influx.influx_settings import InfluxSettings, influx_settings


def settings_mark(environment: Mapping[str, str] | None = None, salt: str | None = None) -> str:
    """A mark of the user's settings, ``SALT.HMAC`` in hexadecimal: with one salt, equal for equal settings.

    No settings, and those that cannot be used, have marks as well.
    """
    salt = salt or secrets.token_hex(16)
    try:
        settings = influx_settings(environment)
        said = json.dumps(astuple(settings) if settings else None)
    except UsageError as error:
        said = str(error)
    return f"{salt}.{hmac.new(salt.encode(), said.encode(errors='surrogateescape'), sha256).hexdigest()}"


def other_database(mark: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The message to a client whose mark differs from ours: where points go, and the remedy."""
    salt, _, _ = mark.partition(".")
    if hmac.compare_digest(mark.encode(errors="replace"), settings_mark(environment, salt).encode()):
        return None
    return (
        f"metrics go to {_place(environment)}, according to the settings with which the lab was brought up. This shell "
        "has other settings: to use them, run `atoll down` and `atoll up` here. `atoll metrics load RUN` always uses "
        "the settings of its own shell"
    )


def _place(environment: Mapping[str, str] | None) -> InfluxSettings | str:
    try:
        return influx_settings(environment) or "no database"
    except UsageError:  # which the run tells
        return "no database"
