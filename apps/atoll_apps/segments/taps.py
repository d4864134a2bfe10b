# SPDX-License-Identifier: Apache-2.0
"""Taps: extra outputs on the leg where they stand, in both directions.

A tap owns no flow entry of its own: the frames that pass its place of the chain cross its switch, and the entry that
sends them on there also sends a copy, untagged, to its port. A physical tap needs none: it copies what its cable
carries.
"""

from itertools import groupby

from atoll_core.experiment.experiment import Chain
from atoll_core.lab.network import Network, Tap


def taps_by_gap(network: Network, chain: Chain) -> tuple[tuple[Tap, ...], ...]:
    """The taps that want copies in each gap of the chain, from world to island.

    Before the first box, between boxes, behind the last: one gap more than boxes.
    """
    known = {tap.name: tap for tap in network.taps}
    gaps: list[tuple[Tap, ...]] = [()]
    for is_tap, names in groupby(chain.hops, key=lambda name: name in known):
        if is_tap:
            gaps[-1] = tuple(known[name] for name in names if not known[name].physical)
        else:
            gaps += [() for _ in names]
    return tuple(gaps)
