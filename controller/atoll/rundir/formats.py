# SPDX-License-Identifier: Apache-2.0
"""Format versions of the run directory: older ones are brought up to date as they are read, newer ones refused."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from atoll.model.errors import RunDirError

FORMAT = 1
"""What this version writes. Raise it whenever an old reader would misread a new run, and add a migration."""

Manifest = dict[str, Any]
Migration = Callable[[Manifest], Manifest]

MIGRATIONS: Mapping[int, Migration] = {}
"""From format n to n + 1, by n. They change what was read, never the files: raw data is not rewritten."""


def up_to_date(
    manifest: Manifest, path: Path, *, current: int = FORMAT, migrations: Mapping[int, Migration] = MIGRATIONS
) -> Manifest:
    """The manifest in the current format.

    Raises RunDirError when it is of a newer format, or of none.
    """
    found = manifest.get("format")
    if not isinstance(found, int) or found < 1:
        msg = f"{path}: manifest.json has no format number, so this is not a run directory of atoll"
        raise RunDirError(msg)
    if found > current:
        msg = f"{path}: written in format {found}, this atoll reads up to {current}; use a newer version"
        raise RunDirError(msg)
    for step in range(found, current):
        manifest = migrations[step](manifest) | {"format": step + 1}
    return manifest
