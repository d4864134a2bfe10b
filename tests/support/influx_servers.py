# SPDX-License-Identifier: Apache-2.0
"""Real servers for tests, built by tools/servers: InfluxDB 1.8 and 2, Grafana's back end; each on a port of its own."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from atoll_core.metrics.line_protocol import Field
from atoll_dashboards.grafana.grafana_client import FOLDER
from atoll_dashboards.influx.influx_settings import InfluxSettings
from tests.support.sandbox import ATOLL, ROOT

_UP_S = 60.0  # a first start on a busy machine; Grafana's migrates its database

Identity = tuple[str, tuple[tuple[str, str], ...], int]
"""What makes a point one of its own: measurement, tags, instant."""

Typed = tuple[str, Field]
"""A field's figure, and its type in InfluxDB's words: integer, float, string, boolean."""

Command = Callable[[Sequence[str | Path]], list[str]]


def server_folder(name: str) -> Path:
    """Where tools/servers has put a server; skips the test if it has not (ATOLL_REQUIRE_SERVERS: fails it)."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("ATOLL_SERVERS") or cache / "atoll" / "servers") / name
    if not (folder / "done").exists():
        reason = f"{name} is not built: make test-servers"
        if os.environ.get("ATOLL_REQUIRE_SERVERS"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


def free_port() -> int:
    """A TCP port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def series(database: InfluxSettings, query: str) -> list[dict[str, Any]]:
    """The series that a query in InfluxQL finds: name, tags, columns, values; instants in ns."""
    asked = urllib.parse.urlencode({"db": database.bucket, "q": query, "epoch": "ns"})
    request = urllib.request.Request(
        f"{database.url}/query?{asked}", headers={"Authorization": f"Token {database.token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["results"][0].get("series", [])


def points(database: InfluxSettings) -> dict[Identity, dict[str, Typed]]:
    """Every point that a database holds: measurement, tags, instant; its fields."""
    found: dict[Identity, dict[str, Typed]] = {}
    for (name,) in (series(database, "SHOW MEASUREMENTS") or [{"values": []}])[0]["values"]:
        (keys,) = series(database, f'SHOW FIELD KEYS FROM "{name}"')
        types = dict(keys["values"])
        assert len(types) == len(keys["values"]), f"a field of {name} has two types"
        for each in series(database, f'SELECT * FROM "{name}" GROUP BY *'):
            tags = tuple(sorted((tag, text) for tag, text in each.get("tags", {}).items() if text))
            for t_ns, *row in each["values"]:
                held = zip(each["columns"][1:], row, strict=True)
                found[name, tags, t_ns] = {
                    field: (types[field], figure) for field, figure in held if figure is not None
                }
    return found


class Server:
    """A server process with its files in a directory; :meth:`kill` and :meth:`start` as often as wanted.

    ``into``: makes of a command line the one that runs it elsewhere (``Sandbox.command``).
    """

    name = ""
    ready_path = "/ping"

    def __init__(self, directory: Path) -> None:
        self.binary = server_folder(self.name)
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def argv(self) -> list[str | Path]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def start(self, into: Command = lambda argv: [str(word) for word in argv]) -> Self:
        """Start it; it may not answer yet."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                into(self.argv()), stdout=log, stderr=log, env={**os.environ, **self.environment()}
            )
        return self

    def wait(self) -> Self:
        """Return when it answers here."""
        deadline = time.monotonic() + _UP_S
        while True:
            try:
                self.ask("GET", self.ready_path)
            except OSError:
                assert self._process is None or self._process.poll() is None, self.log()[-2000:]
                assert time.monotonic() < deadline, self.log()[-2000:]
                time.sleep(0.1)
            else:
                return self

    def log(self) -> str:
        """All it has said."""
        return (self.directory / "log").read_text()

    def kill(self) -> None:
        """End it as a power cut would; here, not where ``into`` has put it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
        """What it answers. Raises OSError (HTTPError)."""
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


class Influx(Server):
    """What both have in common: a query in InfluxQL."""

    @property
    def settings(self) -> InfluxSettings:
        """What opens it."""
        raise NotImplementedError

    def set_up(self) -> None:
        """Make user and bucket, once."""
        raise NotImplementedError

    def keeping_an_hour(self) -> InfluxSettings:
        """What opens another place, made by this, that keeps no point longer."""
        raise NotImplementedError

    def variables(self, settings: InfluxSettings | None = None) -> dict[str, str]:
        """The settings, or others, as environment variables."""
        held = settings or self.settings
        named = {"URL": held.url, "TOKEN": held.token, "ORG": held.org, "BUCKET": held.bucket}
        return {f"ATOLL_INFLUX_{name}": text for name, text in named.items()}

    def series(self, query: str) -> list[dict[str, Any]]:
        """:func:`series` of it."""
        return series(self.settings, query)

    def points(self) -> dict[Identity, dict[str, Typed]]:
        """:func:`points` of it."""
        return points(self.settings)


def atoll(*words: str | Path, influx: Influx, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a verb with this database as the user's."""
    environment = {**os.environ, **influx.variables(), **variables}
    argv = [str(word) for word in (ATOLL, *words)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=environment)


class Influx1(Influx):
    """InfluxDB 1.8, with users."""

    name = "influxd-1.8.10"

    def argv(self) -> list[str | Path]:
        config = self.directory / "influxdb.conf"
        config.write_text(
            f"""
reporting-disabled = true
bind-address = "127.0.0.1:0"
[meta]
  dir = "{self.directory}/meta"
[data]
  dir = "{self.directory}/data"
  wal-dir = "{self.directory}/wal"
[monitor]
  store-enabled = false
[http]
  bind-address = "127.0.0.1:{self.port}"
  auth-enabled = true
  log-enabled = false
"""
        )
        return [self.binary / "influxd", "-config", config]

    @property
    def settings(self) -> InfluxSettings:
        return InfluxSettings(self.url, "admin:secret", "-", "atoll")

    def set_up(self) -> None:
        self.do("CREATE USER admin WITH PASSWORD 'secret' WITH ALL PRIVILEGES")
        self.do("CREATE DATABASE atoll")

    def keeping_an_hour(self) -> InfluxSettings:
        self.do("CREATE DATABASE brief WITH DURATION 1h NAME hour")
        return replace(self.settings, bucket="brief")

    def do(self, statement: str) -> None:
        """Have a statement of InfluxQL carried out."""
        body = urllib.parse.urlencode({"q": statement}).encode()
        self.ask("POST", "/query", body, Authorization=f"Token {self.settings.token}")


class Influx2(Influx):
    """InfluxDB 2."""

    name = "influxd-2.7.12"

    def argv(self) -> list[str | Path]:
        files = [f"--bolt-path={self.directory}/bolt", f"--sqlite-path={self.directory}/sqlite"]
        files += [f"--engine-path={self.directory}/engine", f"--http-bind-address=127.0.0.1:{self.port}"]
        return [self.binary / "influxd", *files, "--reporting-disabled", "--log-level=error"]

    @property
    def settings(self) -> InfluxSettings:
        return InfluxSettings(self.url, "a-token", "laboratory", "atoll")

    def set_up(self) -> None:
        held = self.settings
        body = {"username": "admin", "password": "secret-secret", "org": held.org, "bucket": held.bucket}
        self.ask("POST", "/api/v2/setup", json.dumps({**body, "token": held.token}).encode())

    def keeping_an_hour(self) -> InfluxSettings:
        authorization = f"Token {self.settings.token}"
        (org,) = json.loads(self.ask("GET", f"/api/v2/orgs?org={self.settings.org}", Authorization=authorization))[
            "orgs"
        ]
        rule = {"type": "expire", "everySeconds": 3600}
        body = {"orgID": org["id"], "name": "brief", "retentionRules": [rule]}
        self.ask("POST", "/api/v2/buckets", json.dumps(body).encode(), Authorization=authorization)
        return replace(self.settings, bucket="brief")


class GrafanaServer(Server):
    """Grafana's back end, provisioned as dashboards/compose.yaml has it."""

    name = "grafana-10.0"
    ready_path = "/api/health"
    token = "admin:admin"

    def __init__(self, directory: Path, influx: Influx, *, provisioned: bool) -> None:
        super().__init__(directory)
        self._influx = influx
        self._provisioning = ROOT / "dashboards" / "provisioning" if provisioned else directory / "none"

    def argv(self) -> list[str | Path]:
        return [self.binary / "grafana", "server", "--homepath", self.binary]

    def wait(self) -> Self:
        """Return when it answers here.

        Now and then a first start ends because Grafana makes its organization twice; it is then started again, on an
        empty database. github.com/grafana/grafana/pull/68644 mended one case of it, issue 71781 there has another.
        """
        try:
            return super().wait()
        except AssertionError:
            if "UNIQUE constraint failed: org.id" not in self.log():
                raise
        shutil.rmtree(self.directory / "data")
        (self.directory / "log").unlink()
        self.start()
        return super().wait()

    def environment(self) -> dict[str, str]:
        return {
            **self._influx.variables(),
            "ATOLL_DASHBOARDS": str(FOLDER),
            "GF_PATHS_DATA": str(self.directory / "data"),
            "GF_PATHS_LOGS": str(self.directory / "logs"),
            "GF_PATHS_PLUGINS": str(self.directory / "plugins"),
            "GF_PATHS_PROVISIONING": str(self._provisioning),
            "GF_SERVER_HTTP_ADDR": "127.0.0.1",
            "GF_SERVER_HTTP_PORT": str(self.port),
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
            "GF_LOG_LEVEL": "warn",
        }
