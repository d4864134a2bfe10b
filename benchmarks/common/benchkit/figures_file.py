# SPDX-License-Identifier: Apache-2.0
"""Write figures into a folder, a Markdown file for each subject. The committed ones are in benchmarks/figures."""

from argparse import ArgumentTypeError
from pathlib import Path


def figures_folder(text: str) -> Path:
    """Parse the folder of ``--render``. Raises ArgumentTypeError if there is no such folder."""
    folder = Path(text)
    if not folder.is_dir():
        raise ArgumentTypeError(f"{text}: there is no such folder; that of the committed figures is benchmarks/figures")
    return folder


def write_figures(folder: Path, subject: str, text: str) -> Path:
    """Write ``FOLDER/SUBJECT.md`` and return its path."""
    file = folder / f"{subject}.md"
    file.write_text(f"# {subject.replace('-', ' ').capitalize()}\n\n{text.strip()}\n", encoding="utf-8")
    return file
