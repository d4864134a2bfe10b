# SPDX-License-Identifier: Apache-2.0
"""benchmarks/controller measures what it says: the quick form, end to end. Behaviour, no timing."""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab


def test_the_quick_form_measures_both_ways(project: Path, tmp_path: Path) -> None:
    """Every way brings every plan to the data plane and changes an entry of it; the table has them all."""
    results = tmp_path / "results.json"
    argv = [project / "benchmarks/controller/run", "--quick", "--json", results]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    known = json.loads(results.read_text())["results"]
    assert [(each["way"], each["entries"]) for each in known] == [
        (way, entries) for way in ("atoll", "ovs-ofctl bundle") for entries in (10, 100)
    ]
    assert all(len(each["install_s"]) == len(each["verified_s"]) == len(each["change_s"]) == 1 for each in known), (
        done.stderr
    )
    assert done.stdout.count("| atoll ") == done.stdout.count("| ovs-ofctl bundle ") == 3


def test_a_way_that_cannot_be_had_is_left_out_with_a_word(project: Path, tmp_path: Path) -> None:
    """The others are measured all the same."""
    results = tmp_path / "results.json"
    argv = [project / "benchmarks/controller/run", "--quick", "--only", "FAUCET", "--only", "ovs-ofctl bundle"]
    argv += ["--sizes", "10", "--json", results]
    environment = os.environ | {"LC_ALL": "C", "FAUCET_BIN": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "FAUCET: no FAUCET here" in done.stdout
    assert "| ovs-ofctl bundle |" in done.stdout
