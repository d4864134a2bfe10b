# SPDX-License-Identifier: Apache-2.0
"""The chain: from the island port of each box to the world port of the next, and back.

Legs (cookie): 1 island-bound, 2 world-bound; the subject is the place of the gap, 1 between the first two boxes.
"""

from itertools import pairwise

from atoll.model.experiment import Chain, Experiment
from atoll.model.network import ChainBox, Network
from atoll_apps.legs import App, Leg, Target, cookie
from atoll_apps.taps import taps_by_gap


def boxes(network: Network, chain: Chain) -> tuple[ChainBox, ...]:
    """The boxes of a chain, from world to island, without its taps."""
    known = {box.name: box for box in network.boxes}
    return tuple(known[name] for name in chain.hops if name in known)


def legs(network: Network, experiment: Experiment) -> tuple[Leg, ...]:
    """The legs between the boxes of the chain, in both directions."""
    passed = boxes(network, experiment.chain)
    gaps = taps_by_gap(network, experiment.chain)
    found: list[Leg] = []
    for place, (near, far) in enumerate(pairwise(passed), start=1):
        found += [
            Leg(
                cookie=cookie(App.CHAIN, 1, place),
                origin=near.name,
                goal=far.name,
                note="chain, to island",
                start=near.island.attached,
                src=network.world,
                side=network.world,
                dst=network.island,
                targets=(Target(far.name, network.island, far.world.attached),),
                taps=gaps[place],
            ),
            Leg(
                cookie=cookie(App.CHAIN, 2, place),
                origin=far.name,
                goal=near.name,
                note="chain, to world",
                start=far.world.attached,
                src=network.island,
                side=network.island,
                dst=network.world,
                targets=(Target(near.name, network.world, near.island.attached),),
                taps=gaps[place][::-1],
            ),
        ]
    return tuple(found)
