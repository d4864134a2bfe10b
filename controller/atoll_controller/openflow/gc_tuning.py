# SPDX-License-Identifier: Apache-2.0
"""Python's cycle collector in processes that hold whole flow tables."""

import gc

# A pass for every 700 new objects (Python's default) walks tables of ten thousand entries, which have no cycles, again
# and again: two thirds of the time of reading one. Memory that cycles do hold is freed a little later.
_OBJECTS = 100_000


def relax_collector() -> None:
    """Look for cycles less often, and never again among what has been loaded so far."""
    gc.freeze()
    gc.set_threshold(_OBJECTS)
