# SPDX-License-Identifier: Apache-2.0
"""Format versions of the run directory: older ones are migrated when read, newer ones are refused."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from atoll_core.errors import RunDirError

FORMAT = 2
"""The format that this version writes. Raise it whenever an old reader would misread a new run, and add a migration."""

JsonObject = dict[str, Any]


def _jitter_has_a_distribution(manifest: JsonObject) -> JsonObject:
    """1 -> 2: jitter of a link's direction was a number, half the width of a uniform distribution."""

    def direction(old: JsonObject) -> JsonObject:
        jitter = {"distribution": "uniform", "amount": old["jitter"], "correlation": 0.0} if old["jitter"] else None
        return old | {"jitter": jitter}

    def link(old: JsonObject) -> JsonObject:
        return old | {side: direction(old[side]) for side in ("to_island", "to_world")}

    experiment = manifest.get("experiment")
    if experiment is None:  # the run ended before it was planned
        return manifest
    return manifest | {"experiment": experiment | {"links": [link(old) for old in experiment["links"]]}}


MIGRATIONS: Mapping[int, Callable[[JsonObject], JsonObject]] = {1: _jitter_has_a_distribution}
"""From format n to n + 1, by n. They change what was read, never the files: raw data is not rewritten."""


def migrated_event(event: JsonObject) -> JsonObject:
    """Return an event of a run as this version writes it.

    Early versions recorded a cancelled step by the name of Python's exception.
    """
    return event | {"message": "cancelled"} if event.get("message") == "CancelledError" else event


def migrated(manifest: JsonObject, path: Path) -> JsonObject:
    """The manifest in the current format. Raises RunDirError when it is of a newer format, or of none."""
    recorded = manifest.get("format")
    if not isinstance(recorded, int) or recorded < 1:
        actual = f"format {recorded!r}, not a number from 1" if "format" in manifest else "no format number"
        raise RunDirError(f"{path}: manifest.json has {actual}, so this is not a run directory of atoll")
    if recorded > FORMAT:
        raise RunDirError(
            f"{path}: written in format {recorded}, but this version of atoll reads only formats up to {FORMAT}; use a "
            "newer version"
        )
    for step in range(recorded, FORMAT):
        manifest = MIGRATIONS[step](manifest) | {"format": step + 1}
    return manifest
