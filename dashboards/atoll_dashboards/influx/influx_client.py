# SPDX-License-Identifier: Apache-2.0
"""InfluxDB, 1.8 or 2: lines go in, and it is said plainly why not. The only module that loads influxdb_client.

DatabaseError
├── AwayError     nobody there, or nothing to be done about it at the moment: trying again may help
├── RefusedError  it does not take anything from us as we are set up (token, bucket, organisation)
└── UnfitError    it took some of these lines, or none; the others may be fit
"""

import contextlib
import json
import re
from types import TracebackType
from typing import Any, Self, cast

from atoll_core.errors import AtollError
from atoll_dashboards.influx.influx_settings import InfluxSettings

_CONNECT_S = 3
_ANSWER_S = 30  # a database that is compacting
_LONGEST_SHOWN = 300
_STORED = 204
_PLAIN = "text/plain; charset=utf-8"
_DROPPED = re.compile(r" dropped=(\d+)(?: for database: [^=]*)?$")
_AGED = re.compile(r"dropped \d+ (points outside retention policy of duration \S+) - .*")  # 2.7: and which they are


class DatabaseError(AtollError):
    """The lines are not, or not all, in the database."""


class AwayError(DatabaseError):
    """It cannot take lines now."""


class DatabaseRefusedError(DatabaseError):
    """It refuses us."""


class UnfitError(DatabaseError):
    """It refuses lines. ``dropped``: how many, and that it has kept all others; None: it does not say.

    ``reason``: the message less what differs from batch to batch.
    """

    def __init__(self, message: str, said: str = "") -> None:
        """``said``: the database's own words."""
        # 1.8 keeps the lines that it can parse and says dropped=0 of the others; 2 keeps none when it cannot parse one.
        counted = None if "unable to parse" in said else _DROPPED.search(said)
        self.dropped = int(counted[1]) if counted else None
        why = _AGED.sub(r"\1", _DROPPED.sub("", said))
        self.reason = f"{message}: {_short(why)}"
        super().__init__(f"{message}: {_short(said)}")


class Database:
    """A connection to the database that settings name; use it as a context manager."""

    def __init__(self, settings: InfluxSettings) -> None:
        from influxdb_client.client.influxdb_client import InfluxDBClient
        from influxdb_client.service.write_service import WriteService

        self._settings = settings
        timeout = (_CONNECT_S * 1000, _ANSWER_S * 1000)
        # Its types are less than its documentation promises: a pair of time-outs, errors with a status.
        self._client: Any = cast("Any", InfluxDBClient)(
            settings.url, _in_header(settings.token), timeout=timeout, org=settings.org, retries=False
        )
        self._writes: Any = cast("Any", WriteService)(self._client.api_client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()

    def check(self) -> None:
        """Raise AwayError or RefusedError unless it would take lines from us."""
        self.write(b"")

    def write(self, lines: bytes) -> None:
        """Write whole lines with stamps in nanoseconds; all are kept on return. Raises DatabaseError.

        What is there already stays one: a point is its series and its instant.
        """
        from influxdb_client.rest import ApiException
        from urllib3.exceptions import HTTPError

        try:
            _, status, _ = self._writes.post_write_with_http_info(
                self._settings.org, self._settings.bucket, lines or b"\n", precision="ns", content_type=_PLAIN
            )
        except ApiException as error:
            answer = cast("Any", error)
            raise self._failure(int(answer.status or 0), _said(answer.body or answer.reason)) from None
        except (HTTPError, OSError) as error:
            raise AwayError(f"no answer from {self._settings.url}: {_reason(error)}") from None
        if status != _STORED:
            raise AwayError(
                f"{self._settings.url} answers {status} to a write, and InfluxDB {_STORED}: is this a portal?"
            )

    def _failure(self, status: int, said: str) -> DatabaseError:
        at = self._settings.url
        match status:
            case 0:  # the client's number for a TLS connection that did not come about
                return AwayError(f"no answer from {at}: {_without_tls(said)}")
            case 401 | 403:
                return DatabaseRefusedError(
                    f"{at} does not accept the token (for InfluxDB 1.8 the token is 'user:password'): {_short(said)}"
                )
            case 404:
                place = f"{self._settings.bucket!r} of {self._settings.org!r}"
                return DatabaseRefusedError(f"{at} has no database {place}: {_short(said)}")
            case 500 if "retention policy not found" in said:
                return DatabaseRefusedError(f"{at} has no database {self._settings.bucket!r}: {_short(said)}")
            case 400 | 413 | 422:
                return UnfitError(f"{at} rejects some of the points", said)
            case _:
                return AwayError(f"{at} answers {status}: {_short(said)}")


def _said(body: Any) -> str:
    """The message in an answer, on one line."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    with contextlib.suppress(ValueError, AttributeError):
        answer = json.loads(text)
        text = str(answer.get("message") or answer.get("error") or text)
    return " ".join(text.split())


def _short(said: str) -> str:
    """The text shortened for messages: the database quotes a line that it cannot parse in full."""
    return said if len(said) <= _LONGEST_SHOWN else f"{said[: _LONGEST_SHOWN - 3]}..."


def _in_header(token: str) -> str:
    """Letters beyond ASCII go as UTF-8, in which both versions keep passwords; the library would write Latin-1."""
    return token.encode().decode("latin-1")


def _without_tls(said: str) -> str:
    """The TLS error and its remedy, if known; ``said``: the message of the TLS library."""
    if "WRONG_VERSION_NUMBER" in said:
        return f"the server at this address does not use TLS; write http:// ({said})"
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return (
            "this machine does not trust the server's certificate; use one signed by an authority that this "
            f"machine trusts ({said})"
        )
    return f"the TLS connection failed ({said})"


def _reason(error: BaseException) -> str:
    """The root cause of urllib3's errors, without addresses of objects."""
    text = " ".join(str(getattr(error, "reason", None) or error).split())
    return text.rpartition("): ")[2] or type(error).__name__
