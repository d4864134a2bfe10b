# SPDX-License-Identifier: Apache-2.0
"""Terrestrial latency: world servers reach the chain, and are reached from it, through a delay box.

OpenFlow cannot delay; a box on a trunk port does, one class per VLAN id. A frame gets the tag of its server's class,
passes the box, returns with the tag, loses it and is sent on. A class with ports of its own needs no tag: the port at
which the frame leaves the box again shows that it was delayed. Segments (cookie; the subject is the VLAN id): 1 server
to delay box, 2 delay box into the chain, 3 chain to delay box, 4 delay box to server.
"""

from collections.abc import Iterator

from atoll_apps.segments.chain_routes import ChainRoute, back
from atoll_apps.segments.segment import App, Segment, SegmentEnd, cookie
from atoll_apps.segments.world_edge import Edge, address, classes
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import DelayBox, Host, LatencyClass, Network
from atoll_core.plan.tag_layout import Direction


def segments(network: Network, experiment: Experiment, route: ChainRoute) -> Iterator[Segment]:
    """The segments of delayed world hosts between the hosts and the world edge of a chain, in both directions."""
    edge = Edge(route)
    carried = {host.name: host for host in route.world}
    members: dict[str, list[Host]] = {}
    for name, (known, box) in classes(network, experiment).items():
        if host := carried.get(name):
            members.setdefault(known.name, []).append(host)
            yield _from_host(edge, host, known, box)
            yield from _to_host(edge, host, known, box)
    for box in network.delay_boxes:
        for known in box.classes:
            if hosts := members.get(known.name):
                yield _into_chain(edge, tuple(hosts), known, box)


def _from_host(edge: Edge, host: Host, known: LatencyClass, box: DelayBox) -> Segment:
    stream = edge.route.to_island
    return Segment(
        cookie=cookie(App.LATENCY, 1, known.vlan, edge.route.number),
        gap_id=edge.outer(Direction.TO_ISLAND),
        origin=host.name,
        goal="island",
        note=edge.route.note(f"class {known.name} of {box.name}"),
        start=host.interface.attached,
        src=address(host),
        stream=stream,
        targets=(SegmentEnd("island", stream.dst, box.ends(known).world.attached, push=known.tag),),
        by_source=known.ports is not None,
    )


def _into_chain(edge: Edge, hosts: tuple[Host, ...], known: LatencyClass, box: DelayBox) -> Segment:
    stream = edge.route.to_island
    return Segment(
        cookie=cookie(App.LATENCY, 2, known.vlan, edge.route.number),
        gap_id=edge.inner(Direction.TO_ISLAND),
        origin=box.name,
        goal=edge.goal,
        note=edge.route.note(f"delayed by class {known.name}"),
        start=box.ends(known).island.attached,
        src=stream.src,
        stream=stream,
        targets=edge.into(hosts),
        vlan=known.tag,
        delayed_by=known.name,
        taps=edge.taps,
        whole=edge.takes_all(hosts),
        ends=edge.ends,
    )


def _to_host(edge: Edge, host: Host, known: LatencyClass, box: DelayBox) -> Iterator[Segment]:
    stream = edge.route.to_world
    for source in edge.sources():
        if host in source.hosts:
            yield Segment(
                cookie=cookie(App.LATENCY, 3, known.vlan, edge.route.number),
                gap_id=edge.inner(Direction.TO_WORLD),
                origin=source.name,
                goal=host.name,
                note=edge.route.note(f"class {known.name} of {box.name}"),
                start=source.start,
                src=source.src,
                stream=stream,
                targets=(SegmentEnd(host.name, address(host), box.ends(known).island.attached, known.tag, late=True),),
                vlan=source.vlan,
                taps=back(edge.taps),
                whole=False,
                box=source.box,
            )
    yield Segment(
        cookie=cookie(App.LATENCY, 4, known.vlan, edge.route.number),
        gap_id=edge.outer(Direction.TO_WORLD),
        origin=box.name,
        goal=host.name,
        note=edge.route.note(f"delayed by class {known.name}"),
        start=box.ends(known).world.attached,
        src=stream.src,
        stream=stream,
        targets=(SegmentEnd(host.name, address(host), host.interface.attached),),
        vlan=known.tag,
        delayed_by=known.name,
        whole=False,
    )
