# SPDX-License-Identifier: Apache-2.0
"""The full-size laboratory, 139 machines with 106 clients, in virtual time: it comes up, and all begin together."""

import json
from pathlib import Path

import pytest

from tests.lab.sandbox import ROOT
from tests.lab.virtual_runs import atoll

pytestmark = pytest.mark.virtual


def test_every_path_of_the_full_laboratory_is_proven_and_its_clients_begin_together(tmp_path: Path) -> None:
    """Linux takes cables into use a hundred ends a second: probes wait for the last of three hundred."""
    settings = ("--duration", "2 s", "--set", "traffic.channels=192", "--set", "transfer=null")
    done = atoll(tmp_path, "run", ROOT / "examples" / "laboratory.yaml", "--on", "virtual", "--json", *settings)
    assert done.returncode == 0, done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert len(summary["start"]["hosts"]) == 106
    assert summary["start"]["silent"] == []
    assert summary["start"]["spread_ms"] < 1
