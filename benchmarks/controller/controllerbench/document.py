# SPDX-License-Identifier: Apache-2.0
"""The committed figures: a section of docs/benchmarks.md between two marks, written from the results of one run."""

from pathlib import Path
from typing import Any

from controllerbench.table import tables
from linkbench.page import put_figures


def render(docs: Path, known: dict[str, Any]) -> Path:
    """Write the tables and the machine they are from between the marks; the file. Raises AtollError without marks."""
    path = docs / "benchmarks.md"
    put_figures(path, "the controller", lambda: f"\n{_machine(known['machine'])}\n\n{tables(known)}\n")
    return path


def _machine(facts: dict[str, str]) -> str:
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['machine']} machine, governor {facts['governor']}, "
        f"Linux {facts['kernel']}; {facts['date']}, revision {facts['revision']}, load {facts['load_average']}."
    )
