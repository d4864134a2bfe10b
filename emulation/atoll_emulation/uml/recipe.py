# SPDX-License-Identifier: Apache-2.0
"""What the kernel for virtual time is made of: its configuration, our patches to the source, the randomness shim.

All of it lies beside this module. A kernel is known by the hash of these files: when one changes, kernels built
before are outdated.
"""

import functools
import hashlib
import itertools
from pathlib import Path

CONFIG = Path(__file__).with_name("virtual.config")
SHIM_SOURCE = Path(__file__).with_name("fixed-random.c")
PATCHES = tuple(sorted(Path(__file__).with_name("patches").glob("*.patch")))

OPTIONAL = "# -- in some releases only"
"""Begins the part of the configuration that not every release knows."""


@functools.cache
def recipe_hash() -> str:
    """Twelve hexadecimal digits that stand for all the files."""
    digest = hashlib.sha256()
    for path in (CONFIG, SHIM_SOURCE, *PATCHES):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def missing_options(wanted: str, got: str) -> list[str]:
    """The options that one configuration sets and another has not, in the words of the first: ``CONFIG_VETH=y``.

    Those after the line that begins with OPTIONAL need not be had.
    """
    have = set(got.splitlines())
    needed = itertools.takewhile(lambda line: not line.startswith(OPTIONAL), wanted.splitlines())
    return [line for line in needed if line.startswith("CONFIG_") and line not in have]
