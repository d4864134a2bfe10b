# SPDX-License-Identifier: Apache-2.0
"""The committed figures: a section of docs/benchmarks.md between two marks, written from the results of one run."""

from pathlib import Path
from typing import Any

from controllerbench.table import tables
from linkbench import machine
from linkbench.page import put_figures


def render(docs: Path, known: dict[str, Any]) -> Path:
    """Write the tables and the machine they are from between the marks; the file. Raises AtollError without marks."""
    path = docs / "benchmarks.md"
    put_figures(path, "the controller", lambda: f"\n{machine.in_words(known['machine'])}\n\n{tables(known)}\n")
    return path
