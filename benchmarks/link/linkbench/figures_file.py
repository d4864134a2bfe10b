# SPDX-License-Identifier: Apache-2.0
"""Write tables and pictures of a file of results into a folder."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchkit.figures_file import write_figures
from benchkit.markdown import markdown_table
from linkbench import figures, table
from linkbench.collect import Result
from linkbench.promises import verdicts


def render(stored: Path, results: Sequence[Result], folder: Path) -> list[Path]:
    """Write the files and return them."""
    pictures = figures.draw(results, folder)
    facts = [[name.replace("_", " "), fact] for name, fact in json.loads(stored.read_text())["machine"].items()]
    parts = [
        markdown_table([["machine", ""], *facts], left=2),
        "## What is promised",
        table.promises(verdicts(results)),
        table.tables(results),
        *(f"![{picture.stem.replace('-', ' ')}]({picture.name})" for picture in pictures),
    ]
    return [write_figures(folder, "link", "\n\n".join(parts)), *pictures]
