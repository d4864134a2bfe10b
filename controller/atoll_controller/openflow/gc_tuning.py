# SPDX-License-Identifier: Apache-2.0
"""Settings of Python's cycle collector for processes with large flow tables."""

import gc

# A pass for every 700 new objects (Python's default) walks tables of ten thousand entries, which have no cycles, again
# and again: two thirds of the time of reading one. Memory in cycles is freed a little later.
_OBJECTS = 100_000


def relax_collector() -> None:
    """Search for cycles less often, and not among the present objects."""
    gc.freeze()
    gc.set_threshold(_OBJECTS)
