# SPDX-License-Identifier: Apache-2.0
"""Delivery: the segments between hosts and the ends of the chain, for frames without delay.

Segments (cookie): 1 world host into the chain, 2 chain to island hosts, 3 island host into the chain, 4 chain to world
hosts. Only declared hosts can send (their address is matched at their port), and only declared hosts receive.
"""

from collections.abc import Iterator

from atoll_apps.segments.chain_routes import ChainRoute, taps_to_world
from atoll_apps.segments.segment import App, GapId, Segment, SegmentEnd, cookie
from atoll_apps.segments.world_edge import Edge, address, class_by_host
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.tag_layout import Direction


def segments(network: Network, experiment: Experiment, route: ChainRoute) -> Iterator[Segment]:
    """The segments of world hosts without delay, and those between chain and island."""
    yield from _world_segments(network, experiment, route)
    if route.traversals:  # without boxes the world edge's segments reach the island hosts
        yield from _island_segments(route)


def _world_segments(network: Network, experiment: Experiment, route: ChainRoute) -> Iterator[Segment]:
    edge = Edge(route)
    delay_classes = class_by_host(network, experiment)
    by_source = any(latency_class.ports for latency_class, _ in delay_classes.values())
    hosts = [host for host in route.world if host.name not in delay_classes]
    for host in hosts:
        yield Segment(
            cookie=cookie(App.DELIVERY, 1, route=route.number),
            gap_id=edge.inner_gap(Direction.TO_ISLAND),
            origin=host.name,
            goal=edge.goal,
            note=route.note("not delayed"),
            start=host.interface.attached,
            src=address(host),
            stream=route.to_island,
            targets=edge.targets_from((host,)),
            taps=edge.taps,
            takes_all=edge.takes_all((host,)),
            ends=edge.ends,
            by_source=by_source,
        )
    ends = [SegmentEnd(host.name, address(host), host.interface.attached) for host in hosts]
    yield from edge.segments_to(ends, cookie(App.DELIVERY, 4, route=route.number), "not delayed")


def _island_segments(route: ChainRoute) -> Iterator[Segment]:
    last_box, gap = route.traversals[-1], len(route.traversals)
    for host in route.island:
        yield Segment(
            cookie=cookie(App.DELIVERY, 3, route=route.number),
            gap_id=GapId(route.chain, Direction.TO_WORLD, gap),
            origin=host.name,
            goal=last_box.name,
            note=route.note("into the chain"),
            start=host.interface.attached,
            src=address(host),
            stream=route.to_world,
            targets=(SegmentEnd(last_box.name, route.to_world.dst, last_box.ports.island.attached, last_box.vlan),),
            taps=taps_to_world(route.gaps[gap]),
        )
    yield Segment(
        cookie=cookie(App.DELIVERY, 2, route=route.number),
        gap_id=GapId(route.chain, Direction.TO_ISLAND, gap),
        origin=last_box.name,
        goal="island",
        note=route.note("out of the chain"),
        start=last_box.ports.island.attached,
        src=route.to_island.src,
        stream=route.to_island,
        targets=tuple(SegmentEnd(host.name, address(host), host.interface.attached) for host in route.island),
        vlan=last_box.vlan,
        taps=route.gaps[gap],
        box=last_box.name,
    )
