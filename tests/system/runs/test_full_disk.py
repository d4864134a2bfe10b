# SPDX-License-Identifier: Apache-2.0
"""A full disk is one plain line; nothing written before is lost and nothing half-written stays."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory.metrics_spool import SPOOL, SpoolTail, read_spool
from tests.support.sandbox import ATOLL, GEO, Sandbox, wait_for_line

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, project: Path) -> dict[str, Any]:
    """What happened to each kind of file on a small file system that was filled; see full_disk.py."""
    namespaces = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
    command = [*namespaces, sys.executable, "-m", "tests.guests.full_disk", str(tmp_path_factory.mktemp("small"))]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "what", ["compress", "first analysis", "second analysis", "report", "manifest", "events", "spool"]
)
def test_a_full_disk_is_one_line_that_says_so(said: dict[str, Any], what: str) -> None:
    assert said[what]["raised"].startswith("disk full: ")
    assert "\n" not in said[what]["raised"]


@pytest.mark.parametrize("what", ["compress", "report", "manifest"])
def test_what_was_there_stays_and_nothing_half_written_remains(said: dict[str, Any], what: str) -> None:
    assert said[what]["changed"] == []
    assert said[what]["new"] == []


def test_an_analysis_either_ends_well_or_says_that_the_disk_is_full(said: dict[str, Any]) -> None:
    """Wherever it runs out of space: decoding, writing tables, writing the summary."""
    raised = [one["raised"] for one in said["analyses"]]
    assert None in raised
    assert all(message is None or message.startswith("disk full: ") for message in raised), raised
    assert all(not one["new"] for one in said["analyses"])


def test_an_analysis_leaves_whole_tables_only(said: dict[str, Any]) -> None:
    assert all(name.startswith("tables/") and name.endswith(".parquet") for name in said["first analysis"]["new"])
    assert said["second analysis"]["changed"] == []
    assert said["second analysis"]["new"] == []


def test_events_end_with_a_whole_line(said: dict[str, Any]) -> None:
    assert said["events"]["changed"] == ["events.jsonl"]
    assert said["events"]["last whole"]


def test_every_frame_of_metrics_that_was_written_can_be_read(said: dict[str, Any]) -> None:
    assert said["spool"]["kept"]


def test_points_that_did_not_fit_follow_once_there_is_room(said: dict[str, Any]) -> None:
    """The writer kept them, and a later write brings them."""
    assert said["spool"]["followed"]


@dataclass(frozen=True)
class Ended:
    """How a run ended whose disk was filled while it measured, and its directory's files by name."""

    code: int
    answer: str
    left: list[str]
    files: dict[str, bytes]
    later: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A real run on a tmpfs of 64 MB that is filled four seconds into the measurement; later there is room again."""
    directory = tmp_path_factory.mktemp("filled")
    small = directory / "small"
    small.mkdir()
    with Sandbox(directory, setup=f"mount -t tmpfs -o size=64m tmpfs {small}") as sandbox:
        run = sandbox.start(ATOLL, "run", GEO, "--duration", "30 s", "--runs", small)
        wait_for_line(run, "measure: ")
        time.sleep(4)
        sandbox.run("sh", "-c", f"cat /dev/zero >{small}/filler")
        _, answer = run.communicate(timeout=100)
        left = sandbox.traces()
        sandbox.run("rm", f"{small}/filler")
        (path,) = sandbox.run("sh", "-c", f"echo {small}/geo/*").stdout.split()
        later = sandbox.run(ATOLL, "report", path)
        sandbox.run("cp", "-r", path, directory / "kept")
    files = {file.name: file.read_bytes() for file in (directory / "kept").rglob("*") if file.is_file()}
    return Ended(run.returncode, answer, left, files, later)


def test_a_run_whose_disk_fills_up_ends_with_the_reason_and_where_its_results_are(ended: Ended) -> None:
    """It names the file and what to do; nothing of the lab stays."""
    assert ended.code == 1
    why, where = ended.answer.splitlines()[-2:]
    assert why.startswith("disk full: ")
    assert why.endswith("could not be written; free space on that disk (files written before are kept)")
    assert where.startswith("the measurements so far are in ")
    assert "Traceback" not in ended.answer
    assert ended.left == []


def test_what_was_measured_until_then_is_in_its_spool(ended: Ended, tmp_path: Path) -> None:
    """All that the link had told but for the last second, which was not on the disk yet."""
    (tmp_path / SPOOL).write_bytes(ended.files[SPOOL])
    tail = SpoolTail(tmp_path / SPOOL)
    lines = b"".join(tail.frames()).decode().splitlines()
    assert len(lines) == len(list(read_spool(tmp_path / SPOOL))) > 500
    answer = [json.loads(line)["t_ns"] for line in ended.files["link.jsonl"].splitlines() if b'"box":"sat"' in line]
    spooled = {int(line.rpartition(" ")[2]) for line in lines if line.startswith("link,")}
    last = max(spooled)
    assert max(answer) - last < 3e9
    during = [t_ns for t_ns in answer if min(spooled) <= t_ns <= last and t_ns not in spooled]
    assert len(during) <= 2, "marks, which are no counters"


def test_a_run_whose_disk_was_full_is_analysed_once_there_is_room(ended: Ended) -> None:
    """And judged to be what it is."""
    assert ended.later.returncode == 0, ended.later.stderr
    assert "invalid" in ended.later.stdout


def test_the_lab_that_is_up_holds_nothing_of_a_disk_that_was_full(tmp_path: Path) -> None:
    """It can be unmounted while the lab is up, although the lab was brought up from a folder on it."""
    small = tmp_path / "small"
    small.mkdir()
    with Sandbox(tmp_path, setup=f"mount -t tmpfs -o size=64m tmpfs {small}") as sandbox:
        up = sandbox.run("env", "-C", small, ATOLL, "up", GEO)
        assert up.returncode == 0, up.stderr
        run = sandbox.start("env", "-C", small, ATOLL, "run", GEO, "--duration", "30 s", "--runs", small)
        wait_for_line(run, "measure: ")
        sandbox.run("sh", "-c", f"cat /dev/zero >{small}/filler")
        _, answer = run.communicate(timeout=100)
        assert "disk full: " in answer
        holders = sandbox.run("sh", "-c", f"ls -l /proc/[0-9]*/cwd /proc/[0-9]*/fd/* 2>/dev/null | grep {small}")
        assert holders.stdout == ""
        unmounted = sandbox.run("umount", small)
        assert unmounted.returncode == 0, unmounted.stderr
        assert "geo" in sandbox.run(ATOLL, "status").stdout
        down = sandbox.run(ATOLL, "down")
        assert down.returncode == 0, down.stderr
