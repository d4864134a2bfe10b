# SPDX-License-Identifier: Apache-2.0
"""Write lines to InfluxDB, 1.8 or 2, with errors that say what to do. The only module that loads influxdb_client."""

import contextlib
import json
import re
from typing import Any, Self, cast

from atoll_core.errors import AtollError
from atoll_dashboards.influx.influx_settings import InfluxSettings

_CONNECT_TIMEOUT_S = 3
_ANSWER_TIMEOUT_S = 30  # a database that is compacting
_LONGEST_MESSAGE_CHARACTERS = 300
_STORED_STATUS = 204
_CONTENT_TYPE = "text/plain; charset=utf-8"
_DROPPED_COUNT = re.compile(r" dropped=(\d+)(?: for database: [^=]*)?$")
_AGED_POINTS = re.compile(r"dropped \d+ (points outside retention policy of duration \S+) - .*")  # 2.7 also lists them


class DatabaseError(AtollError):
    """The lines are not, or not all, in the database: it does not answer, or its settings do not admit us."""


class RejectedError(DatabaseError):
    """The database refuses some lines for their content.

    ``dropped``: their number, if all others were kept; None: unknown. ``reason``: the message without the parts that
    differ from batch to batch.
    """

    def __init__(self, message: str, answer: str = "") -> None:
        """``answer``: the message of the database."""
        # 1.8 keeps the lines that it can parse and says dropped=0 of the others; 2 keeps none when it cannot parse one.
        dropped = None if "unable to parse" in answer else _DROPPED_COUNT.search(answer)
        self.dropped = int(dropped[1]) if dropped else None
        reason = _AGED_POINTS.sub(r"\1", _DROPPED_COUNT.sub("", answer))
        self.reason = f"{message}: {_shortened(reason)}"
        super().__init__(f"{message}: {_shortened(answer)}")


class Database:
    """A connection to the database that settings name; use it as a context manager."""

    def __init__(self, settings: InfluxSettings) -> None:
        from influxdb_client.client.influxdb_client import InfluxDBClient
        from influxdb_client.service.write_service import WriteService

        self._settings = settings
        timeout = (_CONNECT_TIMEOUT_S * 1000, _ANSWER_TIMEOUT_S * 1000)
        # Both versions keep passwords in UTF-8; the library writes headers in Latin-1.
        token = settings.token.encode().decode("latin-1")
        # Its types are less than its documentation promises: a pair of time-outs, errors with a status.
        self._client: Any = cast("Any", InfluxDBClient)(
            settings.url, token, timeout=timeout, org=settings.org, retries=False
        )
        self._writes: Any = cast("Any", WriteService)(self._client.api_client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def check(self) -> None:
        """Raise DatabaseError unless the database accepts lines."""
        self.write(b"")

    def write(self, lines: bytes) -> None:
        """Write whole lines with time stamps in nanoseconds; all are kept on return. Raises DatabaseError.

        Points that the database has already are not doubled: a point is its series and its instant.
        """
        from influxdb_client.rest import ApiException
        from urllib3.exceptions import HTTPError

        try:
            _, status, _ = self._writes.post_write_with_http_info(
                self._settings.org, self._settings.bucket, lines or b"\n", precision="ns", content_type=_CONTENT_TYPE
            )
        except ApiException as error:
            answer = cast("Any", error)
            raise self._failure(int(answer.status or 0), _message(answer.body or answer.reason)) from None
        except (HTTPError, OSError) as error:
            raise DatabaseError(f"no answer from {self._settings.url}: {_reason(error)}") from None
        if status != _STORED_STATUS:
            msg = f"{self._settings.url} answers {status} to a write, and InfluxDB {_STORED_STATUS}: is this a portal?"
            raise DatabaseError(msg)

    def _failure(self, status: int, answer: str) -> DatabaseError:
        url, org, bucket = self._settings.url, self._settings.org, self._settings.bucket
        match status:
            case 0:  # the client's number for a TLS connection that did not come about
                reason = f"no answer from {url}: {_tls_error_text(answer)}"
            case 401 | 403:
                remedy = "for InfluxDB 1.8 the token is 'user:password'"
                reason = f"{url} does not accept the token ({remedy}): {_shortened(answer)}"
            case 404:
                reason = f"{url} has no database {bucket!r} of {org!r}: {_shortened(answer)}"
            case 500 if "retention policy not found" in answer:
                reason = f"{url} has no database {bucket!r}: {_shortened(answer)}"
            case 400 | 413 | 422:
                return RejectedError(f"{url} rejects some of the points", answer)
            case _:
                reason = f"{url} answers {status}: {_shortened(answer)}"
        return DatabaseError(reason)


def _message(body: Any) -> str:
    """The message in an answer, on one line."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    with contextlib.suppress(ValueError, AttributeError):
        answer = json.loads(text)
        text = str(answer.get("message") or answer.get("error") or text)
    return " ".join(text.split())


def _shortened(answer: str) -> str:
    """The text shortened for messages: the database quotes a line that it cannot parse in full."""
    return answer if len(answer) <= _LONGEST_MESSAGE_CHARACTERS else f"{answer[: _LONGEST_MESSAGE_CHARACTERS - 3]}..."


def _tls_error_text(error: str) -> str:
    """The error of the TLS library, and the remedy if there is one."""
    reason = "the TLS connection failed"
    if "WRONG_VERSION_NUMBER" in error:
        reason = "the server at this address does not use TLS; write http://"
    if "CERTIFICATE_VERIFY_FAILED" in error:
        remedy = "use one signed by an authority that this machine trusts"
        reason = f"this machine does not trust the server's certificate; {remedy}"
    return f"{reason} ({error})"


def _reason(error: BaseException) -> str:
    """The root cause of urllib3's errors, without addresses of objects."""
    text = " ".join(str(getattr(error, "reason", None) or error).split())
    return text.rpartition("): ")[2] or type(error).__name__
