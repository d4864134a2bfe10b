# SPDX-License-Identifier: Apache-2.0
"""Read a text file that a description names, line by line, and collect its mistakes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from atoll_core.errors import Diagnostic

_MOST_MISTAKES = 10  # of one file: a wrong file is wrong in every line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileContent(Generic[T]):
    """The value read from a file (None if there are mistakes), its mistakes, and the line of each row."""

    found: T | None
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
        if len(self.mistakes) >= _MOST_MISTAKES:
            raise StopIteration
        for number, line in self._lines:
            if line.strip() and not line.lstrip().startswith("#"):
                self.line = number
                return line.strip()
        raise StopIteration

    def wrong(self, message: str) -> None:
        """Note a mistake in the line that was read last."""
        self.mistakes.append(Diagnostic(self._file, self.line, message))
