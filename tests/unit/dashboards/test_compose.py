# SPDX-License-Identifier: Apache-2.0
"""dashboards/compose.yaml: what it mounts is there, what provisioning refers to is given, and Compose itself takes it.

Images cannot be fetched by a test; that the files provisioned are right is test_servers' to say, on a real Grafana.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

_REFERENCE = re.compile(r"\$\{?([A-Z_]+)")


@pytest.fixture
def file(project: Path) -> Path:
    return project / "dashboards" / "compose.yaml"


@pytest.fixture
def services(file: Path) -> dict[str, Any]:
    return YAML(typ="safe").load(file)["services"]


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """What of this directory is mounted where."""
    parts = (volume.split(":") for volume in service["volumes"])
    return {target: source for source, target, *_ in parts if source.startswith("./")}


def test_what_is_mounted_is_there_and_read_only(file: Path, services: dict[str, Any]) -> None:
    """A source that is missing would be made, as an empty directory of root's."""
    for target, source in mounts(services["grafana"]).items():
        assert any((file.parent / source).rglob("*.*")), source
        assert f"{source}:{target}:ro" in services["grafana"]["volumes"]


def test_grafana_has_what_its_provisioning_refers_to(file: Path, services: dict[str, Any]) -> None:
    """Variables in the provisioned files, the folder of the dashboards, the page it begins with."""
    given = services["grafana"]["environment"]
    mounted = mounts(services["grafana"])
    folders = [source for target, source in mounted.items() if target.startswith("/etc/grafana/provisioning/")]
    provisioned = [path for folder in folders for path in (file.parent / folder).rglob("*.yaml")]
    assert len(provisioned) == 2
    wanted = {name for path in provisioned for name in _REFERENCE.findall(path.read_text())}
    assert wanted == {name for name in given if name.startswith("ATOLL_")}
    folder = file.parent / mounted[given["ATOLL_DASHBOARDS"]]
    home = given["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].removeprefix(given["ATOLL_DASHBOARDS"] + "/")
    assert (folder / home).is_file()


def test_both_speak_of_one_database(services: dict[str, Any]) -> None:
    """The bucket and the token that InfluxDB is set up with are those that Grafana asks with."""
    made, asked = services["influxdb"]["environment"], services["grafana"]["environment"]
    assert made["DOCKER_INFLUXDB_INIT_BUCKET"] == asked["ATOLL_INFLUX_BUCKET"]
    assert made["DOCKER_INFLUXDB_INIT_ADMIN_TOKEN"] == asked["ATOLL_INFLUX_TOKEN"] == "${ATOLL_INFLUX_TOKEN}"
    assert asked["ATOLL_INFLUX_URL"] == "http://influxdb:8086"


def test_nothing_listens_for_other_machines(services: dict[str, Any]) -> None:
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def compose() -> list[str] | None:
    """The command line of Docker Compose, in either of its forms; None where there is none."""
    if shutil.which("docker"):
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def test_compose_takes_it_and_asks_for_a_token(file: Path) -> None:
    """`config` reads, completes and checks the file against Compose's own schema; it needs no daemon."""
    argv = compose()
    if argv is None:
        pytest.skip("no Docker Compose here")
    argv += ["-f", str(file), "config"]
    plain = {name: text for name, text in os.environ.items() if not name.startswith("ATOLL_")}
    token = {"ATOLL_INFLUX_TOKEN": "choose-a-token"}
    taken = subprocess.run(argv, capture_output=True, text=True, check=False, env={**plain, **token})
    assert taken.returncode == 0, taken.stderr
    assert taken.stdout.count("choose-a-token") == 3
    without = subprocess.run(argv, capture_output=True, text=True, check=False, env=plain)
    assert without.returncode != 0
    assert "choose a token, of 8 to 72 characters" in without.stderr
