# SPDX-License-Identifier: Apache-2.0
"""A full disk is one plain line; nothing written before is lost and nothing half-written stays."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, project: Path) -> dict[str, Any]:
    """What happened to each kind of file on a small file system that was filled; see full_disk.py."""
    namespaces = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
    command = [*namespaces, sys.executable, "-m", "tests.lab.full_disk", str(tmp_path_factory.mktemp("small"))]
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
