# SPDX-License-Identifier: Apache-2.0
"""The record of a finished run's files: the size and SHA-256 of each, in files.json (docs/contracts.md)."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from atoll_analysis.run_directory.atomic_files import plain_errors, replace_text

RECORD = "files.json"

_DERIVED = frozenset({RECORD, "summary.json", "report.html", "attempt.json", "tables"})
"""Files and folders that are made again, or later."""


def write_record(run: Path) -> None:
    """Record all files of a run but the derived ones. Raises RunError."""
    files = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())
    _write(run, {str(file): _fact(run / file) for file in files if file.parts[0] not in _DERIVED})


def update_record(run: Path, changed: Iterable[str], removed: Iterable[str] = ()) -> None:
    """Record some files again and forget others; does nothing if the run has no record. Raises RunError."""
    if (recorded := read_record(run)) is not None:
        kept = {file: fact for file, fact in recorded.items() if file not in set(removed)}
        _write(run, kept | {file: _fact(run / file) for file in changed})


def read_record(run: Path) -> dict[str, Any] | None:
    """The facts of each file by its path in the run; None without a record: an older run, or one that did not finish.

    Raises ValueError or OSError for a record that cannot be read.
    """
    try:
        return cast("dict[str, Any]", json.loads((run / RECORD).read_text(encoding="utf-8"))["files"])
    except FileNotFoundError:
        return None


def damages(run: Path, *, contents: bool = False) -> dict[str, str]:
    """What is wrong with the recorded files of a run, by path in it. ``contents``: compare hashes, not only sizes."""
    try:
        recorded = read_record(run) or {}
        return {
            file: wrong for file, fact in recorded.items() if (wrong := _damage(run / file, fact, contents=contents))
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return {RECORD: f"cannot be read ({error!r})"}


def _damage(path: Path, fact: dict[str, Any], *, contents: bool) -> str | None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return "is missing"
    if size != fact["bytes"]:
        return f"has {size} bytes, but {fact['bytes']} when the run ended"
    return "has changed since the run ended" if contents and _sha256(path) != fact["sha256"] else None


def _write(run: Path, files: dict[str, Any]) -> None:
    replace_text(run / RECORD, json.dumps({"format": 1, "files": files}, indent=1) + "\n")


def _fact(path: Path) -> dict[str, Any]:
    with plain_errors(path):
        return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
