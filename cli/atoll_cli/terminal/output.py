# SPDX-License-Identifier: Apache-2.0
"""Write standard output and the files that options name; a failed write becomes an error of one line."""

import io
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO, TypeVar

from atoll_core.errors import MachineError, UsageError
from atoll_core.plural import listed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

IMAGE_ENDINGS = (".png", ".svg", ".pdf")

Stream = TypeVar("Stream", bound=TextIO | None)


def require_ending(option: str, path: Path | None, endings: Iterable[str]) -> None:
    """Raise UsageError if a file's name has none of these endings, in upper or lower case.

    ``path`` None: the option was not given.
    """
    known = tuple(endings)
    if path is not None and path.suffix.lower() not in known:
        msg = f"{option} {path}: the name does not end in {listed(known, 'or')}"
        raise UsageError(msg)


def write_file(option: str, path: Path, content: str | Callable[[], None]) -> None:
    """Write the file that an option names: its text, or by calling the function that writes it.

    Raises UsageError if the path cannot be written, MachineError if the disk is full.
    """
    from atoll_analysis.run_directory.atomic_files import is_full  # loads the run directory, which --help does not need

    try:
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            content()
    except OSError as error:
        if is_full(error):
            msg = f"{option} {path}: disk full: free space there, or name another directory"
            raise MachineError(msg) from None
        msg = f"{option} {path}: cannot be written ({error.strerror}); name a file in a directory that you can write"
        raise UsageError(msg) from None


class _Output(io.FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        """Raises MachineError if the write fails, BrokenPipeError if the reader has closed the pipe."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            msg = f"standard output cannot be written: {error.strerror}"
            raise MachineError(msg) from None


def with_write_errors(stream: Stream) -> Stream | TextIO:
    """The same output, with ``write`` and ``flush`` that raise MachineError if it cannot be written.

    ``stream``: standard output as Python made it. None, where there is none, is returned as it is.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),  # as Python does: PYTHONUNBUFFERED means no buffer
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def exit_discarding_output(code: int) -> NoReturn:
    """End the program with an exit code; discard buffered output, which could not be written."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
