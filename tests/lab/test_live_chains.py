# SPDX-License-Identifier: Apache-2.0
"""Chains of every sort at once on real switches: a branch, boxes on several switches, a tap aside, a user's program."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.sandbox import ATOLL, ROOT, Sandbox

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

# Runs until it is asked to end; {world} is the box's interface, {directory} the test's.
PROGRAM = (
    "program: {{start: [sh, -c, 'touch {directory}/started; while [ ! -e {directory}/enough ]; do sleep 0.1; done'], "
    "stop: [touch, {directory}/enough], "
    "report: [sh, -c, 'echo $1 is up; ls {directory}/started', report, '{{world}}']}}"
)
LAB_EDITS = (
    (
        "pep-w: {kind: router, world: sw-c/11, island: sw-c/12}",
        "pep-w: {kind: program, forwarding: routed, world: sw-c/11, island: sw-c/12, PROGRAM}",
    ),
    (
        "coder-w: {kind: router, world: sw-c/13, island: sw-c/14}",
        "coder-w: {kind: router, world: sw-w1/13, island: sw-w1/14, spare: {world: sw-w1/15, island: sw-w1/16}}",
    ),
    ("tap-i: {host: cap-i, port: sw-c/22}", "tap-i: {host: cap-i, port: sw-w2/22}"),
)
BRANCHES = "branches: {coded: {carries: {island: 10.20.0.0/30}, chain: [tap-w, coder-w, sat, coder-i]}}"
EXPERIMENT_EDITS = (
    ("../../emulation/labs/island.yaml", "lab.yaml"),
    (
        "chain: [tap-w, sat, tap-i]",
        f"chain: [tap-w, pep-w, sat, tap-i]\n{BRANCHES}",
    ),
)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path) as box:
        yield box


def edited(source: Path, edits: tuple[tuple[str, str], ...]) -> str:
    text = source.read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_a_run_through_chains_of_every_sort(sandbox: Sandbox, tmp_path: Path) -> None:
    """Every path has the round-trip time of its own chain, or no run would begin; the program is heard and ended."""
    lab = edited(ROOT / "emulation/labs/island.yaml", LAB_EDITS).replace("PROGRAM", PROGRAM.format(directory=tmp_path))
    (tmp_path / "lab.yaml").write_text(lab, encoding="utf-8")
    experiment = tmp_path / "e.yaml"
    experiment.write_text(edited(ROOT / "tests/data/quick.yaml", EXPERIMENT_EDITS), encoding="utf-8")
    done = sandbox.run(ATOLL, "run", experiment, "--runs", tmp_path / "runs", "--json", limit_s=150)
    assert done.returncode in (0, 3), done.stderr
    run = Path(json.loads(done.stdout)["run_dir"])
    heard = (run / "logs" / "report-pep-w.out").read_text(encoding="utf-8")
    assert heard == f"pep-w-w is up\n{tmp_path}/started\n"
    assert (tmp_path / "enough").exists(), "it was asked to end in its own way"
    assert sandbox.traces() == []
