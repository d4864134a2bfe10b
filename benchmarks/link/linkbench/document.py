# SPDX-License-Identifier: Apache-2.0
"""Puts tables and pictures of a file of results into docs/benchmarks.md, between two marks; the prose is people's."""

import json
from collections.abc import Sequence
from pathlib import Path

from atoll.model.errors import RunDirError
from linkbench import figures, table
from linkbench.collect import Result
from linkbench.verdict import verdicts

_BEGIN, _END = "<!-- figures of the link: begin -->", "<!-- figures of the link: end -->"


def render(stored: Path, results: Sequence[Result], docs: Path) -> list[Path]:
    """The files written. Raises RunDirError where the page has no marks."""
    page = docs / "benchmarks.md"
    text = page.read_text()
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise RunDirError(f"{page}: no lines '{_BEGIN}' and '{_END}' to put the figures between")
    pictures = figures.draw(results, docs / "images")
    facts = json.loads(stored.read_text())["machine"]
    parts = [
        table.markdown(["machine", ""], [[name.replace("_", " "), fact] for name, fact in facts.items()]),
        "### What is promised",
        table.promises(verdicts(results)),
        table.tables(results),
        *(f"![{picture.stem.replace('-', ' ')}](images/{picture.name})" for picture in pictures),
    ]
    page.write_text(before + begin + "\n\n" + "\n\n".join(parts) + "\n\n" + end + after)
    return [page, *pictures]
