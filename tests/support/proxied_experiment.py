# SPDX-License-Identifier: Apache-2.0
"""An experiment whose TCP connections end in a box before a link that loses packets."""

import sys
from pathlib import Path

from tests.support.sandbox import ROOT

_BOX = (
    "pep-w: {kind: program, forwarding: routed, stateful: true, world: sw-c/11, island: sw-c/12, DECLARED"
    "program: {start: [PYTHON, PROGRAM, '{world}', '{island}', WORDS], privileges: [net-admin, net-raw]}}"
)
_LINK = "to_island: {rate: 16 Mbit/s, delay: 10 ms, queue: 30 kB"


def describe(directory: Path, program: str, *words: str, declared: str = "") -> Path:
    """The experiment, written into ``directory``.

    ``program``: of this folder, started with the names of both interfaces and ``words``; ``declared``: a key of the
    box.
    """
    box = _BOX.replace("DECLARED", f"{declared}, " if declared else "").replace("PYTHON", sys.executable)
    given = ", ".join(f"'{word}'" for word in words)
    box = box.replace("PROGRAM", str(Path(__file__).parents[1] / "guests" / program)).replace("WORDS", given)
    router = "pep-w: {kind: router, world: sw-c/11, island: sw-c/12}"
    _edit("emulation/labs/island.yaml", directory / "lab.yaml", (router, box))
    experiment = directory / "proxied.yaml"
    _edit(
        "tests/data/quick.yaml",
        experiment,
        ("../../emulation/labs/island.yaml", "lab.yaml"),
        ("chain: [tap-w, sat, tap-i]", "chain: [tap-w, pep-w, sat, tap-i]"),
        (_LINK, f"{_LINK}, loss: 1 %"),
        ("duration: 2 s", "duration: 6 s"),
        ("{channels: 12}", "{channels: 12, flow_sizes: 100 kB}"),
    )
    return experiment


def _edit(source: str, into: Path, *edits: tuple[str, str]) -> None:
    text = (ROOT / source).read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    into.write_text(text, encoding="utf-8")
