# SPDX-License-Identifier: Apache-2.0
"""A run on a lab that is up, from a shell whose database is another than that of the lab's daemon."""

import json
from pathlib import Path

import pytest

from tests.support.sandbox import ATOLL, QUICK, Sandbox

pytestmark = pytest.mark.lab

HELD = ("ATOLL_INFLUX_URL=http://127.0.0.1:9", "ATOLL_INFLUX_TOKEN=first-token")


def test_a_shell_whose_database_is_another_is_told_which_is_used(tmp_path: Path) -> None:
    """In one line, and not the token, unless its settings are the daemon's own."""
    with Sandbox(tmp_path) as sandbox:
        brief = (ATOLL, "run", QUICK, "--no-analysis", "--json")
        assert sandbox.run("env", *HELD, ATOLL, "up", QUICK).returncode == 0
        other = sandbox.run("env", HELD[0], "ATOLL_INFLUX_TOKEN=other-token", *brief)
        same = sandbox.run("env", *HELD, *brief)
        sandbox.run(ATOLL, "down", limit_s=100)
    for run in (other, same):
        assert run.returncode == 0, run.stderr
    (answer,) = (line for line in other.stderr.splitlines() if "This shell has other settings" in line)
    assert answer.startswith(
        "metrics go to bucket 'atoll' of http://127.0.0.1:9, according to the settings with which the lab was"
    )
    assert "This shell has" not in same.stderr
    assert "-token" not in other.stderr + (Path(json.loads(other.stdout)["run_dir"]) / "events.jsonl").read_text()
