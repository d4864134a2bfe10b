# SPDX-License-Identifier: Apache-2.0
"""Standard output that says in one line when it cannot be written: it leads to a full disk, say."""

import io
import os
import sys
from typing import TYPE_CHECKING, NoReturn, TextIO, TypeVar

from atoll_core.errors import MachineError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Stream = TypeVar("Stream", bound=TextIO | None)


class _Output(io.FileIO):
    def write(self, data: "ReadableBuffer", /) -> int:
        """Raises MachineError when it cannot be written, BrokenPipeError when nobody reads it any more."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            msg = f"standard output cannot be written: {error.strerror}"
            raise MachineError(msg) from None


def plainly_failing(stream: Stream) -> Stream | TextIO:
    """The same output, of which ``write`` and ``flush`` raise MachineError when it cannot be written.

    ``stream``: standard output as Python made it; None where there is none, which stays so.
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


def leave(code: int) -> NoReturn:
    """End the program with an exit code; what is left in a buffer, as it could not be written, is let go."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
