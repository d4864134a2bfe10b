# SPDX-License-Identifier: Apache-2.0
"""A program of the user's as a box: the shipped example, what is kept of its output, and a program that fails."""

import json
from pathlib import Path
from subprocess import CompletedProcess

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


def run_instead(directory: Path, start: str) -> CompletedProcess[str]:
    """A run of the shipped relay with another program in its place."""
    lab = (RELAY.parent / "relay" / "lab.yaml").read_text(encoding="utf-8")
    relayed = '[python3, relay.py, "{world}", "{island}"]'
    assert relayed in lab
    (directory / "lab.yaml").write_text(lab.replace(relayed, start), encoding="utf-8")
    experiment = RELAY.read_text(encoding="utf-8").replace("relay/lab.yaml", "lab.yaml")
    (directory / "relay.yaml").write_text(experiment, encoding="utf-8")
    return atoll(directory, "run", "relay.yaml", "--on", "virtual")


def test_a_program_beyond_its_memory_max_ends_the_run_with_that_cause(tmp_path: Path) -> None:
    taking = "import time; taken = []; time.sleep(5)\nwhile True: taken.append(bytearray(4 << 20)); time.sleep(0.1)"
    done = run_instead(tmp_path, f"[python3, -c, {json.dumps(taking)}]")
    assert done.returncode == 1
    said = done.stderr.splitlines()[-2]
    assert said.startswith("program-relay ended unexpectedly: Traceback"), said
    assert said.endswith("MemoryError (exit status 1: memory limit 500 MB); the limit follows from memory_max of relay")


def test_a_program_that_fails_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    """Some seconds into the measurement: what it printed is kept, and what was measured can be read."""
    words = "echo forwarding from $PWD; sleep 20; echo out of luck >&2; exit 3"
    done = run_instead(tmp_path, f"[sh, -c, {words!r}]")
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
