# SPDX-License-Identifier: Apache-2.0
"""The JSON file of results: a later measurement replaces the one of the same name."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from atoll_core.errors import RunDirError
from linkbench import table
from linkbench.collect import Result

FORMAT = 1
_DECIMALS = 4


def load(path: Path) -> list[Result]:
    """The earlier results; none if there is no such file. Raises RunDirError for a file of another format."""
    if not path.exists():
        return []
    try:
        stored = json.loads(path.read_text())
        if stored["format"] != FORMAT:
            raise RunDirError(
                f"{path}: results of format {stored['format']}, this program reads {FORMAT}; name another file"
            )
        return [Result(**result) for result in stored["results"]]
    except (ValueError, KeyError, TypeError):
        raise RunDirError(f"{path}: no results of this benchmark; name another file") from None


def merged(old: Sequence[Result], new: Sequence[Result]) -> list[Result]:
    """Replace old results by new ones of the same measurement; cases keep their order."""
    by_key = {result.key: result for result in old} | {result.key: result for result in new}
    return sorted(by_key.values(), key=table.order)


def save(path: Path, machine: dict[str, str], results: Sequence[Result], promised: Sequence[dict[str, Any]]) -> None:
    """Write all results, with rounded figures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rounded = [
        asdict(result)
        | {"figures": {name: [round(x, _DECIMALS) for x in values] for name, values in result.figures.items()}}
        for result in results
    ]
    text = {"format": FORMAT, "machine": machine, "promises": list(promised), "results": rounded}
    path.write_text(json.dumps(text, separators=(",", ":")).replace('{"scenario"', '\n{"scenario"') + "\n")
