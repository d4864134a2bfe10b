# SPDX-License-Identifier: Apache-2.0
"""Put tables and pictures of a file of results into docs/benchmarks.md, between two marks."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchkit.docs_page import put_figures
from benchkit.markdown import markdown_table
from linkbench import figures, table
from linkbench.collect import Result
from linkbench.promises import verdicts


def render(stored: Path, results: Sequence[Result], docs: Path) -> list[Path]:
    """Write the files and return them. Raises AtollError, before any picture is drawn, if the page has no marks."""
    page = docs / "benchmarks.md"
    pictures: list[Path] = []

    def text() -> str:
        pictures.extend(figures.draw(results, docs / "images"))
        facts = [[name.replace("_", " "), fact] for name, fact in json.loads(stored.read_text())["machine"].items()]
        parts = [
            markdown_table([["machine", ""], *facts], left=2),
            "### What is promised",
            table.promises(verdicts(results)),
            table.tables(results),
            *(f"![{picture.stem.replace('-', ' ')}](images/{picture.name})" for picture in pictures),
        ]
        return "\n\n" + "\n\n".join(parts) + "\n\n"

    put_figures(page, "the link", text)
    return [page, *pictures]
