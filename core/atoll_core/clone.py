# SPDX-License-Identifier: Apache-2.0
"""The clone that this program runs from: it has `make` and `tools/`, which an installed wheel does not have."""

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_REVISION_FILE = Path(__file__).with_name("revision.txt")  # only in wheels, by tools/wheels.py


def clone_root() -> Path | None:
    """The root of the clone whose packages these are; None if they were installed from a wheel."""
    return _ROOT if (_ROOT / "tools" / "setup").is_file() else None


def remedy(in_clone: str, installed: str) -> str:
    """The text for this program. ``in_clone`` may name targets of `make` and files of `tools/`."""
    return in_clone if clone_root() else installed


def built_revision() -> str | None:
    """The git revision that the installed wheel was built from; None in a clone, or if the wheel does not name it."""
    return _REVISION_FILE.read_text().strip() if _REVISION_FILE.is_file() else None
