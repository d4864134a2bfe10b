# SPDX-License-Identifier: Apache-2.0
"""The chain: from the island port of each box to the world port of the next, and back.

Segments (cookie): 1 island-bound, 2 world-bound; the subject is the index of the gap, 1 between the first two boxes.
"""

from collections.abc import Iterator
from itertools import pairwise

from atoll_apps.segments.chain_routes import ChainRoute, taps_to_world
from atoll_apps.segments.segment import App, GapId, Segment, SegmentEnd, cookie
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.tag_layout import Direction


def segments(network: Network, experiment: Experiment, route: ChainRoute) -> Iterator[Segment]:
    """The segments between neighbouring boxes, in both directions; ``near`` is the one closer to the world."""
    del network, experiment
    for gap, (near, far) in enumerate(pairwise(route.traversals), start=1):
        yield Segment(
            cookie=cookie(App.CHAIN, 1, gap, route.number),
            gap_id=GapId(route.chain, Direction.TO_ISLAND, gap),
            origin=near.name,
            goal=far.name,
            note=route.note("chain, to island"),
            start=near.ports.island.attached,
            src=route.to_island.src,
            stream=route.to_island,
            targets=(SegmentEnd(far.name, route.to_island.dst, far.ports.world.attached, far.vlan),),
            vlan=near.vlan,
            taps=route.gaps[gap],
            box=near.name,
        )
        yield Segment(
            cookie=cookie(App.CHAIN, 2, gap, route.number),
            gap_id=GapId(route.chain, Direction.TO_WORLD, gap),
            origin=far.name,
            goal=near.name,
            note=route.note("chain, to world"),
            start=far.ports.world.attached,
            src=route.to_world.src,
            stream=route.to_world,
            targets=(SegmentEnd(near.name, route.to_world.dst, near.ports.island.attached, near.vlan),),
            vlan=far.vlan,
            taps=taps_to_world(route.gaps[gap]),
            box=far.name,
        )
