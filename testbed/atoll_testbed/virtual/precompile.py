# SPDX-License-Identifier: Apache-2.0
"""Compile the bytecode of the modules that a run in virtual time loads (PEP 3147).

A module without bytecode is compiled when it is loaded, which changes the order of events in the run, and so its
packets. Inside the kernel no bytecode is written; missing files are therefore written before the kernel starts.
"""

import asyncio
import compileall
import contextlib
import importlib.util
import os
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from atoll_core.plural import counted

_OWN_PACKAGES = (
    *("atoll_analysis", "atoll_apps", "atoll_cli", "atoll_controller", "atoll_core", "atoll_daemon"),
    *("atoll_dashboards", "atoll_emulation", "atoll_hosts", "atoll_studies", "atoll_switches", "atoll_testbed"),
)
_HEADER_BYTES = 16  # PEP 552: magic number, flags, time of the source's last change, its size
_SUFFIX = f".{sys.implementation.cache_tag}.pyc"


def module_folders() -> set[Path]:
    """Folders with the modules of this installation, without the system's, which its package manager compiles."""
    folders = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    for name in _OWN_PACKAGES:
        spec = importlib.util.find_spec(name)
        folders |= {Path(folder) for folder in (spec and spec.submodule_search_locations) or ()}
    return {folder for folder in folders if folder.is_dir()}


async def compile_stale(folders: Iterable[Path], progress: Callable[[str], None]) -> int:
    """Compile modules whose bytecode is missing or outdated; returns the number of modules that still have none.

    These are in folders that this user cannot write to, or not valid for this version of Python. ``progress``: takes
    messages.
    """
    paths = [path for folder in folders for path in stale_modules(folder)]
    if not paths:
        return 0
    progress(f"compiling {counted(len(paths), 'Python module')} once")
    failed = 0
    for path in paths:
        failed += not compileall.compile_file(path, quiet=2)
        await asyncio.sleep(0)  # so that Ctrl-C can interrupt
    if failed:
        progress(
            f"{failed} modules could not be compiled or written, so this run is repeatable in this installation only"
        )
    return failed


def stale_modules(folder: Path) -> Iterator[Path]:
    """The readable modules below a folder, in any depth, whose bytecode is missing or outdated."""
    cache = folder / "__pycache__"
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                if not _is_current(entry, cache / f"{entry.name[:-3]}{_SUFFIX}"):
                    yield Path(entry.path)
            elif entry.name != cache.name and entry.is_dir(follow_symlinks=False):
                yield from stale_modules(Path(entry.path))


def _is_current(source: os.DirEntry[str], bytecode: Path) -> bool:
    try:
        with bytecode.open("rb", buffering=0) as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return False
    if header[:4] != importlib.util.MAGIC_NUMBER:
        return False
    if header[4:8] != bytes(4):  # bytecode checked by the source's hash, not by its time
        return True
    status = source.stat()
    return header[8:] == struct.pack("<II", int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
