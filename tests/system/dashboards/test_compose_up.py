# SPDX-License-Identifier: Apache-2.0
"""dashboards/compose.yaml brought up by Docker Compose: servers set up by its variables alone, kept, and gone again.

`make test-compose` runs these, where there is Docker with Compose and the images are here or can be fetched.
"""

import json
import os
import secrets
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from atoll_dashboards.grafana.grafana_client import Grafana, dashboard_files
from atoll_dashboards.influx.influx_settings import InfluxSettings
from tests.support.demo_runs import Made, changed_run, recorded
from tests.support.grafana_queries import ask
from tests.support.influx_servers import free_port, points
from tests.support.sandbox import ATOLL, ROOT

pytestmark = [pytest.mark.compose, pytest.mark.lab, pytest.mark.timeout(600)]

_UP_S = 90.0  # Grafana makes its database at its first start


class Stack:
    """compose.yaml under a project name of its own, on free ports; what it makes goes with :meth:`remove`."""

    def __init__(self, token: str) -> None:
        self.project = f"atoll-test-{secrets.token_hex(4)}"
        self._variables = {
            "ATOLL_INFLUX_TOKEN": token,
            "ATOLL_INFLUX_PORT": str(free_port()),
            "ATOLL_GRAFANA_PORT": str(free_port()),
        }
        self.influx = InfluxSettings(
            f"http://127.0.0.1:{self._variables['ATOLL_INFLUX_PORT']}", token, "atoll", "atoll"
        )
        self.grafana = f"http://127.0.0.1:{self._variables['ATOLL_GRAFANA_PORT']}"

    def compose(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Compose on it."""
        file = ROOT / "dashboards" / "compose.yaml"
        argv = [*composer(), "--project-name", self.project, "--file", str(file), *words]
        environment = {**os.environ, **self._variables}
        return subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False, env=environment)

    def up(self, *options: str) -> None:
        """Start it; Grafana answers on return."""
        done = self.compose("up", "--detach", *options)
        assert done.returncode == 0, done.stderr + self.compose("logs", "--tail", "20").stdout
        self.wait()

    def wait(self) -> None:
        """Return when both answer."""
        for url in (f"{self.influx.url}/ping", f"{self.grafana}/api/health"):
            deadline = time.monotonic() + _UP_S
            while True:
                try:
                    urllib.request.urlopen(url, timeout=5).close()
                except OSError:
                    assert time.monotonic() < deadline, self.compose("logs", "--tail", "20").stdout
                    time.sleep(0.2)
                else:
                    break

    def anonymous(self, path: str) -> Any:
        """What Grafana answers to somebody who has not signed in."""
        with urllib.request.urlopen(self.grafana + path, timeout=30) as answer:
            return json.load(answer)

    def atoll(self, *words: str | Path, token: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a verb with this database as the user's."""
        held = self.influx
        named = {"URL": held.url, "TOKEN": token or held.token, "ORG": held.org, "BUCKET": held.bucket}
        environment = {**os.environ, **{f"ATOLL_INFLUX_{name}": text for name, text in named.items()}}
        argv = [str(word) for word in (ATOLL, *words)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=environment)

    def remove(self) -> None:
        """Take it down, with its volumes."""
        self.compose("down", "--volumes", "--timeout", "5")


@cache
def composer() -> list[str]:
    """The command that Compose is here; skips the test where there is none (ATOLL_REQUIRE_COMPOSE: fails it)."""
    for argv in (["docker", "compose"], ["docker-compose"]):
        if (
            shutil.which(argv[0])
            and subprocess.run([*argv, "version"], capture_output=True, check=False).returncode == 0
        ):
            return argv
    reason = "there is no Docker Compose on this machine"
    if os.environ.get("ATOLL_REQUIRE_COMPOSE"):
        pytest.fail(reason)
    pytest.skip(reason)


def docker(*words: str) -> list[str]:
    """The lines that a command of Docker prints."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, timeout=100, check=True).stdout.split(
        "\n"
    )[:-1]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A run in which chain and latency change."""
    return changed_run(tmp_path_factory.mktemp("changed"))


@pytest.fixture(scope="module")
def stack(changed: Made) -> Iterator[Stack]:
    """Brought up, with a token as long as InfluxDB allows, and a run loaded into it."""
    made = Stack(secrets.token_hex(36))
    try:
        made.up()
        loaded = made.atoll("metrics", "load", changed.path)
        assert loaded.returncode == 0, loaded.stderr
        yield made
    finally:
        made.remove()


def test_every_query_of_every_dashboard_has_data(stack: Stack, changed: Made) -> None:
    """Through the data source that was provisioned; Grafana asks InfluxDB by its name among the containers."""
    stamps = [int(line.rpartition(" ")[2]) for line in changed.lines]
    begin_ms, end_ms = min(stamps) // 10**6, max(stamps) // 10**6 + 1
    grafana = Grafana(stack.grafana, "admin:admin")
    asked = [each for file in dashboard_files() for each in ask(grafana, file, changed.run, begin_ms, end_ms)]
    assert len(asked) > 80
    assert not [each for each in asked if not each.points]


def test_whoever_comes_sees_the_dashboards(stack: Stack) -> None:
    """Without signing in: all of them, in their folder, and the overview first."""
    titles = {json.loads(file.read_text())["title"] for file in dashboard_files()}
    found = stack.anonymous("/api/search?type=dash-db")
    assert {(each["title"], each["folderTitle"]) for each in found} == {(title, "atoll") for title in titles}
    assert stack.anonymous("/api/dashboards/home")["dashboard"]["uid"] == "atoll-overview"


def test_nothing_was_complained_of(stack: Stack) -> None:
    """Grafana finds all that it is to provision, and asks nobody on the Internet."""
    said = stack.compose("logs", "--no-color", "grafana").stdout.splitlines()
    errors = [line for line in said if "level=error" in line]
    assert not [line for line in errors if "provision" in line or "update" in line]


def test_the_token_is_the_one_chosen(stack: Stack) -> None:
    """And another is told to be wrong."""
    assert stack.atoll("metrics", "check").returncode == 0
    wrong = stack.atoll("metrics", "check", token="another-token")
    assert wrong.returncode == 1
    assert "does not accept the token" in wrong.stderr


@pytest.mark.parametrize("what", ["restarted", "made anew", "taken down and up"])
def test_points_are_kept(stack: Stack, changed: Made, what: str) -> None:
    """Each once, whatever happens to the containers."""
    if what == "restarted":
        assert stack.compose("restart").returncode == 0
        stack.wait()
    else:
        if what == "taken down and up":
            assert stack.compose("down").returncode == 0
        stack.up("--force-recreate")
    assert points(stack.influx) == recorded(changed.lines)
    assert stack.atoll("metrics", "check").returncode == 0


def test_nothing_is_left_behind() -> None:
    """Every volume is one that has a name, so `down --volumes` leaves none; nor a container or a network."""
    stack = Stack("eight-ch")
    try:
        stack.up()
        holders = docker("ps", "--quiet", "--filter", f"label=com.docker.compose.project={stack.project}")
        mounts = [mount for each in json.loads("".join(docker("inspect", *holders))) for mount in each["Mounts"]]
        volumes = {mount["Name"] for mount in mounts if mount["Type"] == "volume"}
    finally:
        stack.remove()
    assert len(holders) == 2
    assert volumes == {f"{stack.project}_{name}" for name in ("influx", "influx-settings", "grafana")}
    for kind in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
        assert not [line for line in docker(*kind) if stack.project in line]


def test_no_token_is_told() -> None:
    """Before anything is made."""
    done = Stack("").compose("up", "--detach")
    assert done.returncode != 0
    assert "choose a token, of 8 to 72 characters" in done.stderr
