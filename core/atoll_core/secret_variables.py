# SPDX-License-Identifier: Apache-2.0
"""Environment variables that hold secrets of the user: kept from child processes, checked before they are sent."""

import unicodedata
from collections.abc import Mapping

from atoll_core.errors import UsageError

TOKEN_VARIABLE = "ATOLL_TOKEN"  # noqa: S105 - the name of it
"""The token of the API over TCP."""

INFLUX_TOKEN_VARIABLE = "ATOLL_INFLUX_TOKEN"  # noqa: S105 - the name of it
"""The credentials of the metrics database."""

GRAFANA_TOKEN_VARIABLE = "ATOLL_GRAFANA_TOKEN"  # noqa: S105 - the name of it
"""The credentials of the Grafana server on which dashboards are installed."""

SECRETS = frozenset({TOKEN_VARIABLE, INFLUX_TOKEN_VARIABLE, GRAFANA_TOKEN_VARIABLE})


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without secrets, for the lab, its agents and its controller, and all that they start."""
    return {name: text for name, text in environment.items() if name not in SECRETS}


def header_safe(secret: str, source: str) -> str:
    """A token, or ``user:password``, ready for the header of a request: white space around it is removed.

    ``source`` is its source. Raises UsageError, which does not show the secret: for line breaks and other control
    characters (RFC 9110, section 5.5), for bytes that are not text, and for a token that is not ASCII. A user and a
    password may have any letters.
    """
    secret = secret.strip()
    for number, letter in enumerate(secret, start=1):
        match unicodedata.category(letter):
            case "Cc":
                problem = "is a line break or another control character"
            case "Cs":  # Python's replacement of a byte of the environment that is not UTF-8
                problem = "is not text in UTF-8"
            case _ if not letter.isascii() and ":" not in secret:
                problem = "is not in ASCII, as those of tokens are"
            case _:
                continue
        raise UsageError(f"{source}: character {number} of it {problem}; copy it again")
    return secret
