# SPDX-License-Identifier: Apache-2.0
"""Congestion controls that the machine's own kernel may not have, by name, in virtual time."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir
from tests.support.sandbox import ATOLL, QUICK

pytestmark = pytest.mark.virtual

TRANSFER = "transfer={size: 100 kB, start: 0 s, congestion_control: westwood}"
NAMED = ("tcp.congestion_control=hybla", "tcp.servers={w1: htcp, w2: bbr}", TRANSFER)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    directory = tmp_path_factory.mktemp("controls")
    settings = [word for setting in NAMED for word in ("--set", setting)]
    done = subprocess.run(
        [ATOLL, "run", QUICK, "--on", "virtual", "--no-analysis", "--json", *settings],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return RunDir.open(Path(json.loads(done.stdout)["run_dir"]))


def test_each_host_has_its_own_as_the_default_for_every_program(run: RunDir) -> None:
    pinned: dict[str, Any] = run.manifest()["tcp_sysctls"]
    defaults = {host: dict(pairs)["net.ipv4.tcp_congestion_control"] for host, pairs in pinned.items()}
    assert {host: defaults[host] for host in ("w1", "w2", "w3", "i1", "ws")} == {
        "w1": "htcp",
        "w2": "bbr",
        "w3": "hybla",
        "i1": "hybla",
        "ws": "hybla",
    }
    assert not [event for event in run.events() if event["type"] == "note"], "nothing was refused"


def test_a_run_that_was_not_analysed_has_a_record_of_its_files(run: RunDir, tmp_path: Path) -> None:
    copy = RunDir(Path(shutil.copytree(run.path, tmp_path / "copy")))
    assert copy.damages(contents=True) == {}
    (copy.path / "captures/world.pcap").unlink()
    assert [path.name for path in copy.damages()] == ["world.pcap"]


def test_flows_of_all_of_them_complete(run: RunDir) -> None:
    """A socket that does not get the control it asks for ends the run."""
    flows = [line.split(",") for log in run.logs.glob("flows-*.csv") for line in log.read_text().splitlines()[1:]]
    served = {flow[2].rpartition(":")[0] for flow in flows if flow[-1] == "completed"}
    assert {"10.10.0.1", "10.10.0.2", "10.10.0.3"} <= served
    received = [json.loads(line) for line in (run.logs / "transfer-receive.out").read_text().splitlines()]
    assert max(line.get("received_bytes", 0) for line in received) > 0
