# SPDX-License-Identifier: Apache-2.0
"""benchmarks/virtual measures what it says: the quick form of two at once, end to end. Behaviour, no timing."""

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.virtual

PARTS = ("boot_s", "test_s", "load_s", "record_s", "analysis_s")
NEVER_BRIEF = ("boot_s", "test_s", "analysis_s")
"""Parts that no machine does between two looks at the run; two seconds of load, one may."""


def test_two_at_once_are_held_against_one_alone_and_against_mere_spinning(project: Path, tmp_path: Path) -> None:
    """Each run's parts are all of its time; what stood in the file stays, and the tables have all of it."""
    results = tmp_path / "results.json"
    parts = dict.fromkeys(PARTS, 2.0)
    run = {"wall_s": 10.0, **parts, "valid": True, "revision": "0"}
    case = {"name": "an older case", "duration_s": 60, "command": "geo.yaml", "runs": [run] * 3}
    results.write_text(json.dumps({"machine": {}, "cases": {"meo": case}}))
    argv = [project / "benchmarks/virtual/run", "--quick", "--only", "two", "--json", results]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    known = json.loads(results.read_text())
    (alone,), (pair,) = known["two"]["alone"], known["two"]["pairs"]
    for run in (alone, *pair):
        assert run["valid"]
        assert all(run[part] >= 0 for part in PARTS), run
        assert all(run[part] > 0 for part in NEVER_BRIEF), run
        assert sum(run[part] for part in PARTS) == pytest.approx(run["wall_s"], abs=0.1)
    assert known["machine"]["cores"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert ["an older case", "60 s", "10.0 s", "6", *["2.0"] * len(PARTS), "yes"] in rows
    assert {"runs of 2 s", "mere arithmetic", "mere memory"} <= {row[0] for row in rows if row}


def test_a_file_that_is_not_there_is_told(project: Path, tmp_path: Path) -> None:
    argv = [project / "benchmarks/virtual/run", "--json", tmp_path / "none.json", "--render", "docs"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr == f"{tmp_path}/none.json: there is no such file; measuring makes it\n"
