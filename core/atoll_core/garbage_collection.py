# SPDX-License-Identifier: Apache-2.0
"""Garbage collection of programs whose objects have few cycles."""

import gc

# A pass for every 700 new objects (Python's default) walks tables of ten thousand entries, which have no cycles, again
# and again: two thirds of the time of reading one, and an eighth of the time of importing a command's modules. Memory
# in cycles is freed a little later.
_NEW_OBJECTS = 100_000


def relax_garbage_collection() -> None:
    """Search for cycles less often, and not among the present objects."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
