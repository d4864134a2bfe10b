# SPDX-License-Identifier: Apache-2.0
"""Where kernels for virtual time are kept once they are built: a directory each in the user's cache.

    ~/.cache/atoll/kernel/6.1.192-0123456789ab/     release of the source, hash of the recipe
        linux  fixed-random.so  config  kernel.json

A directory appears there whole or not at all.
"""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from atoll_emulation.uml.recipe import recipe_hash

_KEPT = re.compile(r"\d[\w.]*-[0-9a-f]{12}$")


@dataclass(frozen=True, slots=True)
class KernelStatus:
    """What the cache holds: the present recipe's kernel, only older ones, or none."""

    state: Literal["built", "outdated", "missing"]
    directory: Path  # of the newest, or where kernels would be kept
    facts: dict[str, str]  # kernel.json: release, recipe, source, compiler, built

    @property
    def remedy(self) -> str | None:
        """What is wrong and what to do about it, in a line; None if nothing is."""
        how = "run: atoll kernel build (a few minutes, once)"
        match self.state:
            case "built":
                return None
            case "outdated":
                return f"the kernel for virtual time, {self.directory}, was built by another version of atoll; {how}"
            case "missing":
                return f"no kernel for virtual time in {self.directory}; {how}"


def cache_directory() -> Path:
    """Where this user's kernels are kept (XDG Base Directory Specification 0.8)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return base / "atoll" / "kernel"


def kernel_status() -> KernelStatus:
    """Look into the cache. Where several releases have the present recipe, the newest counts."""
    kept = [path for path in cache_directory().glob("*/kernel.json") if _KEPT.match(path.parent.name)]
    kept.sort(key=lambda path: (path.parent.name.endswith(recipe_hash()), _version(path.parent.name)))
    if not kept:
        return KernelStatus("missing", cache_directory(), {})
    facts: dict[str, str] = json.loads(kept[-1].read_text())
    state = "built" if facts["recipe"] == recipe_hash() else "outdated"
    return KernelStatus(state, kept[-1].parent, facts)


def _version(name: str) -> list[int]:
    """A release's numbers, for sorting: 6.1.192 is newer than 6.1.20."""
    return [int(number) for number in re.findall(r"\d+", name.rpartition("-")[0])]
