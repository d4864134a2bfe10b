# SPDX-License-Identifier: Apache-2.0
"""Write standard output and the files that options name; a failed write becomes an error of one line."""

import contextlib
import io
import os
import sys
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar, cast

from atoll_core.errors import DescriptionError, Diagnostic, MachineError, RunError, UsageError
from atoll_core.plural import listed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console

IMAGE_ENDINGS = (".png", ".svg", ".pdf")

_RUN_PARTS = frozenset(
    [
        "manifest.json",
        "files.json",
        "outside.json",
        "events.jsonl",
        "link.jsonl",
        "metrics.lp.zst",
        "console.log",
        "captures",
        "logs",
        "tables",
        "summary.json",
        "report.html",
        "attempt.json",
    ]
)
_STUDY_PARTS = frozenset(
    ["study.json", "points", "working", "lock", "runs.csv", "runs.parquet", "figures.csv", "figures.parquet"]
)
"""Files and folders of runs and studies (docs/contracts.md)."""

Stream = TypeVar("Stream", bound=TextIO | None)


def require_ending(option: str, path: Path | None, endings: Iterable[str]) -> None:
    """Raise UsageError if a file's name has none of these endings, in upper or lower case.

    ``path`` None: the option was not given.
    """
    allowed = tuple(endings)
    if path is not None and path.suffix.lower() not in allowed:
        msg = f"{option} {path}: the name does not end in {listed(allowed, 'or')}"
        raise UsageError(msg)


def refuse_overwriting(outputs: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Raise UsageError if an option names a file that the command reads, or that an earlier option names.

    ``outputs``: by option, None if it was not given. ``inputs``: files, runs and studies.
    """
    used = list(inputs)
    for option, path in outputs.items():
        if path is None:
            continue
        if any(_is_part(path, earlier) for earlier in used):
            raise UsageError(f"{option} {path}: this command reads or writes that file; name another one")
        used.append(path)


def _is_part(path: Path, container: Path) -> bool:
    """Whether a file is another one, or part of a run or study."""
    if container.is_dir():
        first_part = os.path.relpath(os.path.realpath(path), os.path.realpath(container)).partition(os.sep)[0]
        return first_part in (_STUDY_PARTS if (container / "study.json").exists() else _RUN_PARTS)
    if path.exists() and container.exists():
        return path.is_file() and path.samefile(container)
    return os.path.realpath(path) == os.path.realpath(container)


def write_file(option: str, path: Path, content: str | bytes) -> None:
    """Write the file that an option names: all of it, or the one of before stays.

    Raises UsageError if the path cannot be written, MachineError if the disk is full.
    """
    # Loads the run directory, which --help does not need.
    from atoll_analysis.run_directory.atomic_files import is_full, replacing

    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():  # a device or a pipe
            path.write_bytes(data)
            return
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except (OSError, RunError) as failure:
        error = failure if isinstance(failure, OSError) else cast("OSError", failure.__cause__)
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


@contextlib.contextmanager
def results_console(piped_width: int | None = None) -> Generator["Console"]:
    """A console on standard output. Lines that are piped do not end with the spaces that rich pads them with.

    ``piped_width``: characters a line where neither a terminal nor COLUMNS says; None: rich's.
    """
    from rich.console import Console  # --help does without

    if sys.stdout.isatty():
        yield Console(highlight=False, markup=False)  # brackets in paths and names are theirs
        return
    console = Console(highlight=False, markup=False, width=None if "COLUMNS" in os.environ else piped_width)
    with console.capture() as captured:
        yield console
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def exit_discarding_output(code: int) -> NoReturn:
    """End the program with an exit code; discard buffered output, which could not be written."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def diagnostics_json(mistakes: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Mistakes or warnings in the form of ``--json``."""
    return [{"file": mistake.file, "line": mistake.line, "message": mistake.message} for mistake in mistakes]


def warn(warnings: Iterable[Diagnostic], *, strict: bool) -> list[dict[str, Any]]:
    """Print warnings on standard error, one line each; returns them in the form of ``--json``.

    Raises DescriptionError instead if ``strict``.
    """
    diagnostics = tuple(warnings)
    if diagnostics and strict:
        raise DescriptionError(diagnostics)
    for diagnostic in diagnostics:
        print(diagnostic.as_warning, file=sys.stderr)
    return diagnostics_json(diagnostics)
