# SPDX-License-Identifier: Apache-2.0
"""`atoll dashboards install` into a Grafana that others use: what is theirs stays, what is refused is said in a line.

`make test-servers` builds that Grafana and runs these.
"""

import base64
import json
import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from atoll_dashboards.grafana.grafana_client import dashboard_files
from tests.support.influx_servers import GrafanaServer, Influx2
from tests.support.sandbox import ATOLL

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def influx(tmp_path_factory: pytest.TempPathFactory) -> Influx2:
    """A database that is never started: nothing is asked of it here."""
    return Influx2(tmp_path_factory.mktemp("influx2"))


@pytest.fixture(scope="module")
def grafana(tmp_path_factory: pytest.TempPathFactory, influx: Influx2) -> Iterator[GrafanaServer]:
    """A Grafana without any of our things at the start."""
    with GrafanaServer(tmp_path_factory.mktemp("grafana"), influx, provisioned=False) as server:
        yield server.start().wait()


@pytest.fixture
def empty(grafana: GrafanaServer) -> Iterator[GrafanaServer]:
    """The same, emptied again afterwards."""
    yield grafana
    for folder in api(grafana, "GET", "/api/folders"):
        api(grafana, "DELETE", f"/api/folders/{folder['uid']}")
    for source in api(grafana, "GET", "/api/datasources"):
        api(grafana, "DELETE", f"/api/datasources/uid/{source['uid']}")


def api(server: GrafanaServer, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """What Grafana answers its administrator. Raises HTTPError."""
    basic = "Basic " + base64.b64encode(server.token.encode()).decode()
    text = None if body is None else json.dumps(body).encode()
    answer = server.ask(method, path, text, Authorization=basic, **{"Content-Type": "application/json"})
    return json.loads(answer or b"null")


def install(server: GrafanaServer, influx: Influx2, token: str = "") -> subprocess.CompletedProcess[str]:
    """Run the verb; its token as users are advised to give it."""
    environment = {**os.environ, **influx.variables(), "ATOLL_GRAFANA_TOKEN": token or server.token}
    argv = [ATOLL, "dashboards", "install", "--url", server.url]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=environment)


def refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    """It failed with one line of that message."""
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(message, done.stderr), done.stderr
    assert done.stderr.count("\n") == 1


def test_what_others_have_stays(empty: GrafanaServer, influx: Influx2) -> None:
    """Data source, folder and a dashboard with the title of one of ours: as they were, twice installed beside them."""
    theirs = {"uid": "theirs", "name": "theirs", "type": "prometheus", "access": "proxy", "url": "http://127.0.0.1:9"}
    api(empty, "POST", "/api/datasources", theirs)
    api(empty, "POST", "/api/folders", {"uid": "theirs", "title": "theirs"})
    page = {"uid": "their-page", "title": "atoll: Overview", "tags": ["mine"]}
    api(empty, "POST", "/api/dashboards/db", {"dashboard": page, "folderUid": "theirs"})

    def held() -> tuple[Any, Any, Any]:
        of_them = ("/api/datasources/uid/theirs", "/api/folders/theirs", "/api/dashboards/uid/their-page")
        source, folder, kept = (api(empty, "GET", path) for path in of_them)
        return source, folder, kept["dashboard"]

    before = held()
    for _ in range(2):
        done = install(empty, influx)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.split()) == len(dashboard_files())
    assert held() == before
    found = api(empty, "GET", "/api/search?type=dash-db")
    ours = {each["uid"] for each in found if each["folderUid"] == "atoll"}
    assert ours == {json.loads(file.read_text())["uid"] for file in dashboard_files()}


@pytest.mark.parametrize("what", ["a folder", "a data source", "a data source's uid", "a dashboard"])
def test_what_others_have_under_a_name_of_ours_is_not_replaced(
    empty: GrafanaServer, influx: Influx2, what: str
) -> None:
    """It is told instead; once it has another name, installing works."""
    source = {"uid": "theirs", "name": "atoll", "type": "prometheus", "access": "proxy", "url": "http://127.0.0.1:9"}
    page = {"uid": "theirs", "title": "atoll: Overview", "tags": ["theirs"]}
    match what:
        case "a folder":
            api(empty, "POST", "/api/folders", {"uid": "theirs", "title": "atoll"})
        case "a data source":
            api(empty, "POST", "/api/datasources", source)
        case "a data source's uid":
            api(empty, "POST", "/api/datasources", {**source, "uid": "atoll", "name": "theirs"})
        case _:
            api(empty, "POST", "/api/folders", {"uid": "atoll", "title": "atoll"})
            api(empty, "POST", "/api/dashboards/db", {"dashboard": page, "folderUid": "atoll"})
    refused(install(empty, influx), "another.*then install again")
    match what:
        case "a folder":
            assert api(empty, "GET", "/api/folders/theirs")["title"] == "atoll"
            api(empty, "PUT", "/api/folders/theirs", {"title": "theirs", "overwrite": True})
        case "a data source":
            assert api(empty, "GET", "/api/datasources/uid/theirs")["type"] == "prometheus"
            api(empty, "PUT", "/api/datasources/uid/theirs", {**source, "name": "theirs"})
        case "a data source's uid":
            assert api(empty, "GET", "/api/datasources/uid/atoll")["name"] == "theirs"
            api(empty, "DELETE", "/api/datasources/uid/atoll")
        case _:
            assert api(empty, "GET", "/api/dashboards/uid/theirs")["dashboard"]["tags"] == ["theirs"]
            renamed = {"dashboard": {**page, "title": "theirs"}, "folderUid": "atoll", "overwrite": True}
            api(empty, "POST", "/api/dashboards/db", renamed)
    done = install(empty, influx)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("role", ["Viewer", "Editor", "Admin"])
def test_a_service_account_needs_the_role_admin(empty: GrafanaServer, influx: Influx2, role: str) -> None:
    """Which the others are told."""
    account = api(empty, "POST", "/api/serviceaccounts", {"name": role, "role": role})
    made = api(empty, "POST", f"/api/serviceaccounts/{account['id']}/tokens", {"name": role})
    done = install(empty, influx, made["key"])
    if role == "Admin":
        assert done.returncode == 0, done.stderr
    else:
        refused(done, "denies .* role Admin")
        assert not api(empty, "GET", "/api/folders")


@pytest.mark.parametrize("token", ["wrong", "admin:wrong"])
def test_wrong_credentials_are_told(grafana: GrafanaServer, influx: Influx2, token: str) -> None:
    """A token as well as user and password."""
    refused(install(grafana, influx, token), "does not accept this token, or user and password: ")


def test_nobody_there_is_told(tmp_path: Path, influx: Influx2) -> None:
    """A Grafana that was not started."""
    refused(install(GrafanaServer(tmp_path, influx, provisioned=False), influx), "no answer from Grafana at http://127")


def test_what_was_provisioned_stays(tmp_path: Path, influx: Influx2) -> None:
    """A Grafana as compose.yaml brings it: its files alone change its data source."""
    with GrafanaServer(tmp_path, influx, provisioned=True) as server:
        server.start().wait()
        before = api(server, "GET", "/api/datasources/uid/atoll")
        refused(install(server, influx), "comes from a provisioning file")
        assert api(server, "GET", "/api/datasources/uid/atoll") == before


def test_a_start_that_makes_the_organization_twice_is_made_again(tmp_path: Path, influx: Influx2) -> None:
    """What a first start does by itself now and then (tests/support): the organization is there, its user is not."""
    with GrafanaServer(tmp_path, influx, provisioned=False) as server:
        server.start().wait()
        server.kill()
        with closing(sqlite3.connect(tmp_path / "data" / "grafana.db")) as database, database:
            database.execute("DELETE FROM user")
        server.start().wait()
        assert [folder["title"] for folder in api(server, "GET", "/api/folders")] == []
