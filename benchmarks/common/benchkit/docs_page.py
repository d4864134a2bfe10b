# SPDX-License-Identifier: Apache-2.0
"""Write the figures of a benchmark into docs/benchmarks.md, between two marks; the prose around them stays."""

from collections.abc import Callable
from pathlib import Path

from atoll_core.errors import AtollError


def put_figures(page: Path, subject: str, text: Callable[[], str]) -> None:
    """Write the result of ``text`` between the page's marks for the figures of ``subject``.

    Raises AtollError if the page or its marks are missing.
    """
    marks = [f"<!-- figures of {subject}: {end} -->" for end in ("begin", "end")]
    known = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, begin, rest = known.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not (begin and end):
        raise AtollError(f"{page} has no lines '{marks[0]}' and '{marks[1]}' to write between")
    page.write_text(f"{before}{begin}{text()}{end}{after}", encoding="utf-8")
