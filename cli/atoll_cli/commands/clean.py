# SPDX-License-Identifier: Apache-2.0
"""`atoll clean`: list what is in caches, and remove it."""

import json
from pathlib import Path

from atoll_cli.terminal.confirmation import confirm
from atoll_core.plural import counted
from atoll_emulation.this_machine.caches import cached_entries, remove_entries


def clean(*, yes: bool, as_json: bool) -> None:
    """Print what is in caches, and remove it after asking, except what a process uses. Raises MachineError."""
    entries = cached_entries()
    unused = [entry for entry in entries if entry.user is None]
    if not as_json:
        for entry in entries:
            use = f"  in use by process {entry.user}, stays" if entry.user else ""
            print(f"{_megabytes(entry.size_bytes):>12}  {entry.path}{use}")
        if not unused:
            print("nothing to remove")
    removed: list[Path] = []
    total = _megabytes(sum(entry.size_bytes for entry in unused))
    question = f"remove {counted(len(unused), 'item')}, {total}? `atoll kernel build` builds kernels again."
    if unused and (yes or confirm(question, "to remove this: atoll clean --yes")):
        removed = remove_entries(unused)
    if as_json:
        cached = [{"path": str(each.path), "bytes": each.size_bytes, "used_by": each.user} for each in entries]
        print(json.dumps({"cached": cached, "removed": [str(path) for path in removed]}))
    elif removed:
        print(f"removed {counted(len(removed), 'item')}")


def _megabytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB"
