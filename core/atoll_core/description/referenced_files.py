# SPDX-License-Identifier: Apache-2.0
"""Traces and flow-size files that an experiment names: read line by line, each file once, with its mistakes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from atoll_core.description.yaml_document import label, read_text
from atoll_core.errors import Diagnostic

T = TypeVar("T")

_MAX_BYTES = 16_000_000
_MAX_MISTAKES = 10  # of one file: a wrong file is wrong in every line
_OUTSIDE = "is outside the folder of files that this description may name"


@dataclass(frozen=True, slots=True)
class FileContent(Generic[T]):
    """The value read from a file (None if there are mistakes), its mistakes, and the line of each row."""

    value: T | None
    mistakes: tuple[Diagnostic, ...]
    lines: tuple[int, ...] = ()


class LineReader(Iterator[str]):
    """Iterator over the lines that are neither empty nor comments. It ends early after too many mistakes."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._lines = enumerate(text.split("\n"), start=1)
        self.line = 1
        self.mistakes: list[Diagnostic] = []

    def __next__(self) -> str:
        if len(self.mistakes) >= _MAX_MISTAKES:
            raise StopIteration
        for number, line in self._lines:
            if line.strip() and not line.lstrip().startswith("#"):
                self.line = number
                return line.strip()
        raise StopIteration

    def rows(self, columns: Sequence[str]) -> Iterator[list[str]]:
        """The cells of each further line; a line with another number of cells is a mistake."""
        for line in self:
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == len(columns):
                yield cells
            else:
                self.note(f"{len(cells)} cells where the header names {len(columns)} columns; write one for each")

    def note(self, message: str) -> None:
        """Note a mistake in the line that was read last."""
        self.mistakes.append(Diagnostic(self._file, self.line, message))


class ReferencedFiles:
    """Files by their path relative to the folder of the experiment.

    A file that cannot be read is a FileContent with one mistake, at line 0. ``confined``: only files in the folder or
    below are read.
    """

    def __init__(self, folder: Path, *, confined: bool = False) -> None:
        self._folder = folder
        self._confined = confined
        self._contents: dict[tuple[str, object], FileContent[Any]] = {}

    def read(self, name: str, parse: Callable[[str, str], FileContent[T]], kind: str = "text") -> FileContent[T]:
        """The content of a file, by a function of its text and of its name in messages; ``kind``: the file's."""
        if (name, parse) not in self._contents:
            path = self._folder / name
            text = Diagnostic(name, 0, _OUTSIDE) if self._is_outside(path) else read_text(path, kind, _MAX_BYTES)
            is_unreadable = isinstance(text, Diagnostic)
            self._contents[name, parse] = FileContent(None, (text,)) if is_unreadable else parse(text, label(path))
        return self._contents[name, parse]

    def _is_outside(self, path: Path) -> bool:
        try:
            return self._confined and not path.resolve().is_relative_to(self._folder.resolve())
        except (OSError, RuntimeError, ValueError):  # links in a circle, a NUL in the name
            return True
