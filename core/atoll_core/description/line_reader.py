# SPDX-License-Identifier: Apache-2.0
"""Text files that a description names, line by line: what a reader of one returns, and how it goes through them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from atoll_core.errors import Diagnostic

_MOST_MISTAKES = 10  # of one file: a wrong file is wrong in every line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileContent(Generic[T]):
    """What a file holds, None if that cannot be said; its mistakes; the line of each row."""

    found: T | None
    mistakes: tuple[Diagnostic, ...]
    lines: tuple[int, ...] = ()


class LineReader(Iterator[str]):
    """The lines that hold something, and what is wrong with them. It ends early when too much is wrong."""

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
        """A mistake in the line that was read last."""
        self.mistakes.append(Diagnostic(self._file, self.line, message))
