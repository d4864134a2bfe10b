# SPDX-License-Identifier: Apache-2.0
"""Terrestrial latency: world servers reach the chain, and are reached from it, through a delay box.

OpenFlow cannot delay; a box on a trunk port does, one class per VLAN id. A frame gets the tag of its server's class,
passes the box, returns with the tag, loses it and is sent on. A class with ports of its own needs no tag: the port at
which the frame leaves the box again shows that it was delayed. Segments (cookie; the subject is the VLAN id): 1 server
to delay box, 2 delay box into the chain, 3 chain to delay box, 4 delay box to server.
"""

from collections.abc import Iterator

from atoll_apps.segments.chain_routes import ChainRoute
from atoll_apps.segments.segment import App, Segment, SegmentEnd, cookie
from atoll_apps.segments.world_edge import Edge, address, class_by_host
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import DelayBox, Host, LatencyClass, Network
from atoll_core.plan.tag_layout import Direction


def segments(network: Network, experiment: Experiment, route: ChainRoute) -> Iterator[Segment]:
    """The segments of delayed world hosts between the hosts and the world edge of a chain, in both directions."""
    edge = Edge(route)
    world_hosts = {host.name: host for host in route.world}
    hosts_by_class: dict[str, list[Host]] = {}
    for name, (latency, box) in class_by_host(network, experiment).items():
        if host := world_hosts.get(name):
            hosts_by_class.setdefault(latency.name, []).append(host)
            yield _from_host(edge, host, latency, box)
            yield from _to_host(edge, host, latency, box)
    for box in network.delay_boxes:
        for latency in box.classes:
            if hosts := hosts_by_class.get(latency.name):
                yield _into_chain(edge, tuple(hosts), latency, box)


def _from_host(edge: Edge, host: Host, latency: LatencyClass, box: DelayBox) -> Segment:
    stream = edge.route.to_island
    return Segment(
        cookie=cookie(App.LATENCY, 1, latency.vlan, edge.route.number),
        gap_id=edge.outer_gap(Direction.TO_ISLAND),
        origin=host.name,
        goal="island",
        note=edge.route.note(f"class {latency.name} of {box.name}"),
        start=host.interface.attached,
        src=address(host),
        stream=stream,
        targets=(SegmentEnd("island", stream.dst, box.ends(latency).world.attached, push=latency.tag),),
        by_source=latency.ports is not None,
    )


def _into_chain(edge: Edge, hosts: tuple[Host, ...], latency: LatencyClass, box: DelayBox) -> Segment:
    stream = edge.route.to_island
    return Segment(
        cookie=cookie(App.LATENCY, 2, latency.vlan, edge.route.number),
        gap_id=edge.inner_gap(Direction.TO_ISLAND),
        origin=box.name,
        goal=edge.goal,
        note=edge.route.note(f"delayed by class {latency.name}"),
        start=box.ends(latency).island.attached,
        src=stream.src,
        stream=stream,
        targets=edge.targets_from(hosts),
        vlan=latency.tag,
        delayed_by=latency.name,
        taps=edge.taps,
        takes_all=edge.takes_all(hosts),
        ends=edge.ends,
    )


def _to_host(edge: Edge, host: Host, latency: LatencyClass, box: DelayBox) -> Iterator[Segment]:
    stream = edge.route.to_world
    note = f"class {latency.name} of {box.name}"
    end = SegmentEnd(host.name, address(host), box.ends(latency).island.attached, latency.tag, push_last=True)
    yield from edge.segments_to((end,), cookie(App.LATENCY, 3, latency.vlan, edge.route.number), note)
    yield Segment(
        cookie=cookie(App.LATENCY, 4, latency.vlan, edge.route.number),
        gap_id=edge.outer_gap(Direction.TO_WORLD),
        origin=box.name,
        goal=host.name,
        note=edge.route.note(f"delayed by class {latency.name}"),
        start=box.ends(latency).world.attached,
        src=stream.src,
        stream=stream,
        targets=(SegmentEnd(host.name, address(host), host.interface.attached),),
        vlan=latency.tag,
        delayed_by=latency.name,
        takes_all=False,
    )
