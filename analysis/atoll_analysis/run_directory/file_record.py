# SPDX-License-Identifier: Apache-2.0
"""The record of a run's files: size, time of modification and SHA-256 of each, in files.json (docs/contracts.md)."""

import hashlib
import json
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from atoll_analysis.run_directory.atomic_files import replace_text, write_errors

RECORD = "files.json"

DERIVED = ("summary.json", "tables")
"""Files and folders that the analysis makes, and can make again."""

_UNRECORDED = frozenset({RECORD, "report.html", "attempt.json"})
"""Files that are written later, and from which no figure is read."""

_READ_ERRORS = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""Errors of reading a record that is damaged itself."""


HAS_RECORD = "has_file_record"
"""The key of the manifest by which the loss of the record itself is noticed."""


def write_checksums(run: Path) -> None:
    """Record all files of a run. Raises RunError."""
    _write(run, {file: _file_entry(run / file) for file in _files(run, run) if file not in _UNRECORDED})


def update_checksums(run: Path, changed: Collection[str] = (), removed: Collection[str] = ()) -> None:
    """Forget the files, or those of the folders, ``removed``, and record those of ``changed`` again. Raises RunError.

    Does nothing if the run has no record, or one that is damaged, which :func:`damages` reports.
    """
    try:
        recorded = _read(run)
    except _READ_ERRORS:
        return
    if recorded:
        kept = {file: entry for file, entry in recorded.items() if not _is_among(file, removed)}
        _write(run, kept | {file: _file_entry(run / file) for path in changed for file in _files(run, run / path)})


def is_derived(file: str) -> bool:
    """Whether the analysis makes a file of a run, given by its path in it."""
    return _is_among(file, DERIVED)


def damages(run: Path, *, contents: bool = False) -> dict[str, str]:
    """What is wrong with the recorded files of a run, by path in it; nothing of a run that never had a record.

    Contents are compared of files that were modified since they were recorded, with ``contents`` of all.
    """
    try:
        recorded = _read(run)
        if not recorded and _had_record(run):
            return {RECORD: "is missing"}
        return {
            file: fault for file, entry in recorded.items() if (fault := _damage(run / file, entry, contents=contents))
        }
    except _READ_ERRORS as error:
        return {RECORD: f"cannot be read ({error!r})"}


def _damage(path: Path, entry: dict[str, Any], *, contents: bool) -> str | None:
    try:
        status = path.stat()
        if status.st_size != entry["bytes"]:
            return f"has {status.st_size} bytes, but {entry['bytes']} when it was recorded"
        if not contents and status.st_mtime_ns == entry.get("modified_ns"):
            return None
        return None if _sha256(path, status.st_mtime_ns) == entry["sha256"] else "has changed since it was recorded"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _is_among(file: str, files_or_folders: Collection[str]) -> bool:
    return file in files_or_folders or file.partition("/")[0] in files_or_folders


def _files(run: Path, file_or_folder: Path) -> Iterator[str]:
    """Yield the paths in ``run`` of a file, or of all files of a folder."""
    for path in sorted(file_or_folder.rglob("*")) if file_or_folder.is_dir() else [file_or_folder]:
        if path.is_file():
            yield str(path.relative_to(run))


def _read(run: Path) -> dict[str, Any]:
    """The facts of each file by its path in the run; none without a record: of an older run, or a killed one."""
    try:
        return cast("dict[str, Any]", json.loads((run / RECORD).read_text(encoding="utf-8"))["files"])
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _had_record(run: Path) -> bool:
    """What the manifest says; a missing or damaged one is named when it is read."""
    try:
        return HAS_RECORD in json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def _write(run: Path, files: dict[str, Any]) -> None:
    replace_text(run / RECORD, json.dumps({"format": 1, "files": files}, indent=1) + "\n")


def _file_entry(path: Path) -> dict[str, Any]:
    with write_errors(path):
        status = path.stat()
        return {"bytes": status.st_size, "modified_ns": status.st_mtime_ns, "sha256": _sha256(path, status.st_mtime_ns)}


@lru_cache(maxsize=4096)  # a listing or a study opens each run several times
def _sha256(path: Path, modified_ns: int) -> str:  # noqa: ARG001 - a key of the cache
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
