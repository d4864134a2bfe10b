# SPDX-License-Identifier: Apache-2.0
"""The committed figures: a section of docs/benchmarks.md between two marks, written from the results of one run."""

from pathlib import Path
from typing import Any

from atoll.model.errors import AtollError
from controllerbench.table import tables

_BEGIN = "<!-- figures of the controller: begin -->"
_END = "<!-- figures of the controller: end -->"


def render(docs: Path, known: dict[str, Any]) -> Path:
    """Write the tables and the machine they are from between the marks; the file. Raises AtollError without marks."""
    path = docs / "benchmarks.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise AtollError(f"{path} has no lines '{_BEGIN}' and '{_END}' to write between")
    facts = known["machine"]
    on = (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['machine']} machine, governor {facts['governor']}, "
        f"Linux {facts['kernel']}; {facts['date']}, revision {facts['revision']}, load {facts['load_average']}."
    )
    path.write_text(f"{before}{begin}\n{on}\n\n{tables(known)}\n{end}{after}", encoding="utf-8")
    return path
