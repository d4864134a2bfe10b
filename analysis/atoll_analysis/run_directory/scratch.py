# SPDX-License-Identifier: Apache-2.0
"""Folders of files that are on their way to something else."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from atoll_analysis.run_directory.atomic_files import write_errors


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Generator[Path]:
    """A folder in ``parent`` while the block lasts. Raises RunError when it cannot be written, or the disk is full.

    Processes share a lock of ``parent`` while they have one. A killed process leaves its own to the next that is alone.
    """
    with write_errors(parent), _open_folder(parent) as lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for leftover in parent.glob(f"{prefix}*"):
                shutil.rmtree(leftover, ignore_errors=True)
        with suppress(OSError):  # file systems without locks
            fcntl.flock(lock, fcntl.LOCK_SH)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
            yield Path(folder)


@contextmanager
def _open_folder(folder: Path) -> Generator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
