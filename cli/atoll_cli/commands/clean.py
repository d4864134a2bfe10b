# SPDX-License-Identifier: Apache-2.0
"""`atoll clean`: list what is in caches, and remove it."""

import json

from atoll_cli.terminal.confirmation import confirm
from atoll_core.errors import MachineError
from atoll_core.plural import counted
from atoll_emulation.this_machine.caches import cached_entries, remove_entries


def clean(*, yes: bool, as_json: bool) -> None:
    """Print what is in caches, and remove it after asking, except what a process uses.

    Raises MachineError with a line for each entry that could not be removed, after all others were.
    """
    entries = cached_entries()
    unused = [entry for entry in entries if entry.user is None]
    if not as_json:
        for entry in entries:
            use = f"  in use by process {entry.user}, stays" if entry.user else ""
            print(f"{_megabytes(entry.size_bytes):>12}  {entry.path}{use}")
        if not entries:
            print("nothing to remove")
    question = f"remove {counted(len(unused), 'item')}, {_megabytes(sum(entry.size_bytes for entry in unused))}?"
    if any(entry.is_kernel for entry in unused):
        question += " `atoll kernel build` builds kernels again."
    may_remove = bool(unused) and (yes or confirm(question, "to remove this: atoll clean --yes", as_json=as_json))
    removal = remove_entries(unused if may_remove else [])
    if as_json:
        cached = [{"path": str(each.path), "bytes": each.size_bytes, "used_by": each.user} for each in entries]
        print(json.dumps({"cached": cached, "removed": [str(path) for path in removal.removed]}))
    elif removal.removed:
        print(f"removed {counted(len(removal.removed), 'item')}")
    if removal.failures:
        raise MachineError("\n".join(removal.failures))


def _megabytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB"
