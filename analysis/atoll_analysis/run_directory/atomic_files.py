# SPDX-License-Identifier: Apache-2.0
"""Atomic replacement of files, appends of whole lines, and a one-line error when the disk is full."""

import contextlib
import errno
import os
from collections.abc import Generator
from pathlib import Path

from atoll_core.errors import RunError, UsageError

_DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextlib.contextmanager
def write_errors(path: Path) -> Generator[None]:
    """Turn an OSError of writing ``path`` into a RunError of one line."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


@contextlib.contextmanager
def directory_errors(name: str) -> Generator[None]:
    """Turn an OSError of making or writing a directory that the user named into a UsageError of one line.

    A full disk is no mistake of the user: it remains a RunError.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise write_error(Path(error.filename), error) from None
        raise UsageError(f"{name}: cannot be written ({error.strerror}); name another directory") from None


def is_full(error: OSError) -> bool:
    """Return whether an error of writing means that the disk, or the user's quota, is full."""
    return error.errno in _DISK_FULL_ERRORS


def write_error(path: Path, error: OSError) -> RunError:
    """Return the error for a ``path`` that cannot be written."""
    if is_full(error):
        cause, remedy = "disk full", "free space on that disk"
        if error.errno == errno.EDQUOT:
            cause, remedy = "disk quota used up", "delete files of yours"
        return RunError(f"{cause}: {path} could not be written; {remedy} (files written before are kept)")
    return RunError(f"{path} could not be written: {os.strerror(error.errno or 0)}")


def error_from_message(path: Path, message: str, other_error: RunError) -> RunError:
    """As `write_error`, for a tool or library that reports an error of writing ``path`` as text.

    ``other_error``: the error if the text does not mean a full disk.
    """
    full_errno = next((number for number in _DISK_FULL_ERRORS if os.strerror(number) in message), None)
    return write_error(path, OSError(full_errno, "")) if full_errno is not None else other_error


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Yield a temporary path in the folder of ``path``, which replaces it if the block succeeds and is removed if not.

    Of a link the file that it names is replaced. Raises RunError when the disk is full or the place cannot be written,
    and for a device or a pipe, which would be gone.
    """
    if path.exists() and not path.is_file():
        kind = "directory" if path.is_dir() else "device or a pipe"
        raise RunError(f"{path} could not be written: it is a {kind}; name a file")
    target = Path(os.path.realpath(path))
    visible_path = target.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with write_errors(path):
            visible_path.unlink(missing_ok=True)  # of a process that was killed and had the same id
            with _new_file(visible_path) as (descriptor, written_path):
                yield written_path
                os.fsync(descriptor)
                if written_path != visible_path:  # with a directory of the source, os.link follows that in /proc
                    os.link(written_path, visible_path, src_dir_fd=descriptor)
            visible_path.replace(target)
    finally:
        visible_path.unlink(missing_ok=True)


@contextlib.contextmanager
def _new_file(path: Path) -> Generator[tuple[int, Path]]:
    """A file without a name in the folder of ``path``, of which nothing stays if this process is killed.

    ``path`` itself where the file system has no files without names (open(2), ``O_TMPFILE``).
    """
    file = path
    try:
        descriptor = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
        file = Path(f"/proc/self/fd/{descriptor}")
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor, file
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Write a whole file, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


class Appender:
    """A file that grows by whole pieces only: no part stays of a piece that does not fit on the disk."""

    def __init__(self, path: Path) -> None:
        """Open ``path`` for appending, creating it. Raises RunError."""
        self._path = path
        with write_errors(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._end = os.lseek(self._file, 0, os.SEEK_END)

    def append(self, piece: bytes) -> None:
        """Append all of ``piece`` or nothing. Raises RunError."""
        with write_errors(self._path):
            try:
                written = 0
                while written < len(piece):
                    written += os.pwrite(self._file, memoryview(piece)[written:], self._end + written)
            except OSError:
                with contextlib.suppress(OSError):  # the first error is the one to tell
                    os.ftruncate(self._file, self._end)
                raise
        self._end += len(piece)

    def close(self) -> None:
        """Close the file; appending afterwards is an error. Closing twice is not."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
