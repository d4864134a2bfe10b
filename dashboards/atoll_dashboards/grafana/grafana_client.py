# SPDX-License-Identifier: Apache-2.0
"""Install the dashboards' files in a Grafana: data source, folder, dashboards."""

import base64
import contextlib
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

from atoll_core.errors import MachineError
from atoll_dashboards.influx.influx_settings import InfluxSettings, require_url

FOLDER = Path(__file__).resolve().parent / "files"
"""The dashboards' JSON files."""

DATA_SOURCE = "atoll"
"""Unique name (uid) of the data source that all panels ask."""

_FOLDER_UID = "atoll"
_TIMEOUT_S = 20


class Grafana:
    """A Grafana server, by its HTTP API."""

    def __init__(self, url: str, token: str) -> None:
        """``token``: a service account's, or ``user:password``, checked by ``atoll_core.secret_variables.header_safe``.

        Raises UsageError when the URL is none.
        """
        require_url(url, "--url", "Grafana's", "http://127.0.0.1:3000")
        self._url = url.rstrip("/")
        auth = "Basic " + base64.b64encode(token.encode()).decode() if ":" in token else f"Bearer {token}"
        self._headers = {"Authorization": auth, "Content-Type": "application/json", "Accept": "application/json"}

    def install(self, influx: InfluxSettings, folder: Path = FOLDER) -> list[str]:
        """Make or replace data source, folder and dashboards; the dashboards' URLs.

        Replaces dashboards with its own unique names only. Raises MachineError.
        """
        self._put_data_source(data_source(influx))
        if self._request("GET", f"/api/folders/{_FOLDER_UID}", may_be_absent=True) is None:
            self._request("POST", "/api/folders", {"uid": _FOLDER_UID, "title": "atoll"})
        return [self._put_dashboard(json.loads(file.read_text(encoding="utf-8"))) for file in dashboard_files(folder)]

    def _put_data_source(self, source: dict[str, Any]) -> None:
        existing = self._request("GET", f"/api/datasources/uid/{DATA_SOURCE}", may_be_absent=True)
        if existing is None:
            self._request("POST", "/api/datasources", source)
            return
        if existing["readOnly"]:
            raise MachineError(
                f"the data source {DATA_SOURCE!r} of {self._url} comes from a provisioning file (such as that of "
                "compose.yaml) and can only be changed there; nothing was installed"
            )
        if existing["type"] != source["type"]:
            raise MachineError(
                f"the data source with uid {DATA_SOURCE!r} of {self._url} belongs to another data source, "
                f"{existing['name']!r} of type {existing['type']!r}; give it another uid there, then install again"
            )
        self._request("PUT", f"/api/datasources/uid/{DATA_SOURCE}", source)

    def _put_dashboard(self, dashboard: dict[str, Any]) -> str:
        """Install a dashboard; its URL. Overwrites only that uid: Grafana would also replace one of that title."""
        exists = self._request("GET", f"/api/dashboards/uid/{dashboard['uid']}", may_be_absent=True) is not None
        body = {"dashboard": dashboard, "folderUid": _FOLDER_UID, "overwrite": exists, "message": "atoll"}
        answer = cast("dict[str, Any]", self._request("POST", "/api/dashboards/db", body))
        return f"{self._url}{answer['url']}"

    def query(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the response of ``/api/ds/query``. Raises MachineError."""
        return cast("dict[str, Any]", self._request("POST", "/api/ds/query", body))

    def _request(self, method: str, path: str, body: Any = None, *, may_be_absent: bool = False) -> Any:
        """Send a request; the response as JSON. ``may_be_absent``: None if there is no such object."""
        text = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, text, self._headers, method=method)  # noqa: S310 - checked
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - its scheme is checked
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if may_be_absent and error.code == 404:
                return None
            raise self._failure(error.code, f"{method} {path}", _message(error.read())) from None
        except (OSError, ValueError) as error:
            raise MachineError(f"no answer from Grafana at {self._url}: {getattr(error, 'reason', error)}") from None

    def _failure(self, status: int, request: str, answer: str) -> MachineError:
        match status:
            case 401:
                reason = f"{self._url} does not accept this token, or user and password"
            case 403:
                remedy = "use a token of a service account with the role Admin"
                reason = f"{self._url} denies {request} with this token; {remedy}"
            case 409 | 412:
                remedy = "rename it there, then install again"
                reason = f"{self._url} already has another object of that name; {remedy} ({request})"
            case _:
                return MachineError(f"{self._url}: {request}: {status} {answer}")
        return MachineError(f"{reason}: {answer}")


def _message(body: bytes) -> str:
    """Return the message of Grafana's response in one line."""
    text = body.decode(errors="replace")
    with contextlib.suppress(ValueError, AttributeError):
        text = str(json.loads(text).get("message") or text)
    return " ".join(text.split())[:300]


def dashboard_files(folder: Path = FOLDER) -> list[Path]:
    """Return the dashboards' files."""
    return sorted(folder.glob("*.json"))


def data_source(influx: InfluxSettings) -> dict[str, Any]:
    """Return the data source for Grafana's API: InfluxQL, which InfluxDB 1.8 and 2 both answer, by token.

    InfluxDB 2 has a database of a bucket's name by itself; 1.8's bucket is ``database/retention-policy``.
    """
    return {
        "uid": DATA_SOURCE,
        "name": "atoll",
        "type": "influxdb",
        "access": "proxy",
        "url": influx.url,
        "jsonData": {
            "dbName": influx.bucket.partition("/")[0],
            "httpMode": "POST",
            "httpHeaderName1": "Authorization",
            "timeInterval": "100ms",
        },
        "secureJsonData": {"httpHeaderValue1": f"Token {influx.token}"},
    }
