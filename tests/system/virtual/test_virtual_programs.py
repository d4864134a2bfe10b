# SPDX-License-Identifier: Apache-2.0
"""A program of the user's as a box: the shipped example, what is kept of its output, and a program that fails."""

from pathlib import Path

import pytest

from tests.support.sandbox import ROOT
from tests.support.virtual_runs import atoll, run_virtually

pytestmark = pytest.mark.virtual

RELAY = ROOT / "examples" / "relay.yaml"


def test_the_shipped_relay_makes_a_valid_run_and_its_output_is_kept(tmp_path: Path) -> None:
    """Its TCP connections end in the box, and nobody but the box sees that."""
    summary = run_virtually(tmp_path, RELAY, "--duration", "12 s", "--set", "transfer.size=500 kB")
    assert summary["verdict"] == "valid", summary["caveats"]
    assert (summary["transfer_complete"], summary["flows_failed"]) == (True, 0)
    log = Path(summary["run_dir"], "logs", "program-relay.out").read_text(encoding="utf-8").splitlines()
    assert log[0] == "relaying TCP between relay-w and relay-i"
    ended = [line for line in log[1:] if line.endswith("received")]
    assert len(ended) >= summary["flows_completed"]
    assert summary["payload"]["boxes"] == ["relay"]


def test_a_program_that_fails_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    """Some seconds into the measurement: what it printed is kept, and what was measured can be read."""
    lab = (RELAY.parent / "relay" / "lab.yaml").read_text(encoding="utf-8")
    words = "echo forwarding from $PWD; sleep 20; echo out of luck >&2; exit 3"
    relayed = '[python3, relay.py, "{world}", "{island}"]'
    assert relayed in lab
    (tmp_path / "lab.yaml").write_text(lab.replace(relayed, f"[sh, -c, {words!r}]"), encoding="utf-8")
    experiment = RELAY.read_text(encoding="utf-8").replace("relay/lab.yaml", "lab.yaml")
    (tmp_path / "relay.yaml").write_text(experiment, encoding="utf-8")
    done = atoll(tmp_path, "run", "relay.yaml", "--on", "virtual")
    (run_dir,) = (tmp_path / "runs" / "relay").iterdir()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        f"program-relay ended unexpectedly: forwarding from {tmp_path}; out of luck (exit status 3)",
        f"the measurements so far are in {run_dir}; analyse them with `atoll report {run_dir}`",
    ]
    printed = (run_dir / "logs" / "program-relay.out").read_text(encoding="utf-8")
    assert printed == f"forwarding from {tmp_path}\nout of luck\n"
    read = atoll(tmp_path, "report", run_dir)
    assert read.returncode == 0, read.stderr
    assert "reason failed at step measure: program-relay ended unexpectedly" in read.stdout
