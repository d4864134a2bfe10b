# SPDX-License-Identifier: Apache-2.0
"""An experiment with chains of every sort: a branch, boxes on several switches, a tap aside, a user's program."""

from pathlib import Path

from tests.support.sandbox import ROOT

# Runs until it is asked to end; {world} is the box's interface, {directory} where it leaves its traces.
_PROGRAM = (
    "program: {{start: [sh, -c, 'touch {directory}/started; while [ ! -e {directory}/enough ]; do sleep 0.1; done'], "
    "stop: [touch, {directory}/enough], "
    "report: [sh, -c, 'echo $1 is up; ls {directory}/started', report, '{{world}}']}}"
)
_LAB_EDITS = (
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
_BRANCHES = "branches: {coded: {carries: {island: 10.20.0.0/30}, chain: [tap-w, coder-w, sat, coder-i, tap-i]}}"
_EXPERIMENT_EDITS = (
    ("../../emulation/labs/island.yaml", "lab.yaml"),
    ("chain: [tap-w, sat, tap-i]", f"chain: [tap-w, pep-w, sat, tap-i]\n{_BRANCHES}"),
)

CROSSED = {
    "pep-w": (("sw-c", "11"), ("sw-c", "12")),
    "coder-w": (("sw-w1", "13"), ("sw-w1", "14")),
    "sat": (("sw-c", "15"), ("sw-c", "16")),
    "coder-i": (("sw-c", "17"), ("sw-c", "18")),
}
"""Switch ports of each box that a chain passes, world's leg and island's."""

LEFT_OUT = (("sw-w1", "15"), ("sw-w1", "16"), ("sw-c", "19"), ("sw-c", "20"))
"""Switch ports of what no chain passes: the spare legs, pep-i."""


def describe(directory: Path, traces: Path) -> Path:
    """The experiment, written into ``directory``; its program leaves ``started`` and ``enough`` in ``traces``."""
    lab = _edited(ROOT / "emulation/labs/island.yaml", _LAB_EDITS)
    (directory / "lab.yaml").write_text(lab.replace("PROGRAM", _PROGRAM.format(directory=traces)), encoding="utf-8")
    experiment = directory / "chains.yaml"
    experiment.write_text(_edited(ROOT / "tests/data/quick.yaml", _EXPERIMENT_EDITS), encoding="utf-8")
    return experiment


def _edited(source: Path, edits: tuple[tuple[str, str], ...]) -> str:
    text = source.read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text
