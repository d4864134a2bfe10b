# SPDX-License-Identifier: Apache-2.0
"""Results of a benchmark as a JSON file, which later measurements and the docs' figures read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from atoll_analysis.run_directory.atomic_files import replace_text, write_errors
from atoll_core.errors import AtollError


def read_results(path: Path, key: str) -> dict[str, Any]:
    """Read a file of results. Raises AtollError if it cannot be read or has no ``key``."""
    try:
        known: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AtollError(f"{path}: there is no such file; measuring makes it") from None
    except OSError as error:
        raise AtollError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise AtollError(f"{path}: not JSON: {error}") from None
    if not isinstance(known, dict) or key not in known:
        raise AtollError(f"{path}: no results of this benchmark; name another file")
    return cast(dict[str, Any], known)


def read_earlier(path: Path, key: str) -> dict[str, Any]:
    """Read a file that may be missing. Read it before measuring: a damaged one is then noticed in time."""
    return read_results(path, key) if path.exists() else {}


def write_results(path: Path, known: Mapping[str, Any]) -> None:
    """Replace the file at once; directories above it are made. Raises AtollError when it cannot be written."""
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(known, indent=1) + "\n")
