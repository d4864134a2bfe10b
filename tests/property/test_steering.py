# SPDX-License-Identifier: Apache-2.0
"""Steering, tried frame by frame on a model of the tables, over random labs, chains and latencies."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from atoll_apps.steering import flow_entries
from atoll_controller.tracing.table_model import Delivery, Frame, SwitchTables
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.network import Host, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import FlowEntry
from tests.support.labs import ISLAND, WORLD, experiments, laboratories

_quick = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@st.composite
def steered(draw: st.DrawFn) -> tuple[Network, Experiment, tuple[FlowEntry, ...]]:
    """Labs whose steering is not refused, which few are: anything anywhere, or all boxes and taps on one switch."""
    network = draw(laboratories(gathered=draw(st.booleans())))
    asked = draw(experiments(network))
    try:
        return network, asked, flow_entries(network, asked)
    except PlanError:
        assume(False)
        raise


@_quick
@given(steered())
def test_every_pair_is_connected_through_exactly_the_configured_boxes_in_order(
    case: tuple[Network, Experiment, tuple[FlowEntry, ...]],
) -> None:
    """Both directions, every protocol: latency class, the boxes of its chain in order, then the host, and no other."""
    network, asked, entries = case
    model = SwitchTables(network, entries)
    taps = {tap.name for tap in network.taps}
    delays = {host: name for host, (name, _) in delays_of(network, asked).items()}
    for world, island, number, chain in pairs(network, asked):
        boxes = [hop for hop in chain if hop not in taps]
        there, back = honest(world, island, number)
        delay = [delays[world.name]] if world.name in delays else []
        seen = [one.name for one in model.arrivals(there, world.interface.attached) if one.name not in taps]
        assert seen == [*delay, *boxes, island.name]
        seen = [one.name for one in model.arrivals(back, island.interface.attached) if one.name not in taps]
        assert seen == [*boxes[::-1], *delay, world.name]


@_quick
@given(steered())
def test_taps_see_exactly_what_passes_their_place(case: tuple[Network, Experiment, tuple[FlowEntry, ...]]) -> None:
    """From each station of a way to the next: one untagged copy for each tap between them, none for any other."""
    network, asked, entries = case
    model = SwitchTables(network, entries)
    taps = {tap.name for tap in network.taps}
    for world, island, number, chain in pairs(network, asked):
        delay = delays_of(network, asked).get(world.name)
        stations = [[world.name], *([[delay[0]]] if delay else []), *([hop] for hop in chain), [island.name]]
        for frame, start, hops in (
            (honest(world, island, number)[0], world.interface.attached, stations),
            (honest(world, island, number)[1], island.interface.attached, stations[::-1]),
        ):
            expected = [hop for (hop,) in hops[1:]]
            at, came = start, frame
            while expected:
                steps = [one for one in model.walk(came, at, through_boxes=False) if isinstance(one, Delivery)]
                here = expected[: next(place for place, hop in enumerate(expected) if hop not in taps)]
                copies = sorted(one.name for one in steps if one.name in taps)
                assert copies == sorted(here)
                assert all(one.frame == frame for one in steps if one.name in taps)
                (onward,) = (one for one in steps if one.name not in taps)
                assert onward.name == expected[len(here)]
                expected = expected[len(here) + 1 :]
                if expected:
                    at, came = model.other_box_port[onward.port], onward.frame
                    assert onward.frame.vlan == (delay[1] if delay and delay[0] == onward.name else None)
                else:
                    assert onward.frame == frame


def pairs(network: Network, asked: Experiment) -> Iterator[tuple[Host, Host, int, tuple[str, ...]]]:
    """World host, island host, protocol number and the hops of the chain for each kind of traffic."""
    for world in network.world_hosts:
        for island in network.island_hosts:
            for kind, number in ((Protocol.TCP, 6), (Protocol.ICMP, 1), (None, 132)):
                yield world, island, number, asked.carrier(world.address, island.address, kind).hops


def honest(world: Host, island: Host, number: int) -> tuple[Frame, Frame]:
    """A frame in each direction."""
    return Frame(world.address, island.address, None, number), Frame(island.address, world.address, None, number)


def delays_of(network: Network, asked: Experiment) -> dict[str, tuple[str, int | None]]:
    """Delay box of every delayed server, and the tag of its frames there."""
    classes = {each.name: (box.name, each.tag) for box in network.delay_boxes for each in box.classes}
    return {host: classes[name] for host, name in asked.latency}


@_quick
@given(steered(), st.data())
def test_nothing_else_passes(case: tuple[Network, Experiment, tuple[FlowEntry, ...]], data: st.DataObject) -> None:
    """Forged sources, tags, other protocols and frames within one side are dropped by the first switch they reach."""
    network, _, entries = case
    model = SwitchTables(network, entries)
    for one, other in permutations(network.hosts, 2):
        port = one.interface.attached
        honest = Frame(one.address, other.address)
        forged = [
            Frame(other.address, one.address),
            Frame(one.address, one.address),
            replace(honest, src=data.draw(st.sampled_from([WORLD[999], ISLAND[999]]))),
            replace(honest, eth_type=0x0806),
            replace(honest, vlan=data.draw(st.sampled_from([1, 100, 101, 110, 4094]))),
        ]
        if one.role.is_world == other.role.is_world:
            forged.append(honest)
        for frame in forged:
            assert model.arrivals(frame, port) == ()


@_quick
@given(steered())
def test_only_declared_hosts_are_delivered_to(case: tuple[Network, Experiment, tuple[FlowEntry, ...]]) -> None:
    """A frame to an address nobody has may cross the chain but reaches no host; nor does one reach a host not meant."""
    network, _, entries = case
    model = SwitchTables(network, entries)
    hosts = {host.name for host in network.hosts}
    for host in network.hosts:
        nobody = (ISLAND if host.role.is_world else WORLD)[999]
        assert not hosts & {seen.name for seen in model.arrivals(Frame(host.address, nobody), host.interface.attached)}


@_quick
@given(steered())
def test_ports_without_a_part_in_the_chain_may_not_send(
    case: tuple[Network, Experiment, tuple[FlowEntry, ...]],
) -> None:
    """Capture hosts, boxes outside the chain and empty ports are deaf, whatever they claim to be."""
    network, asked, entries = case
    model = SwitchTables(network, entries)
    used = {hop for chain in asked.chains for hop in chain.hops}
    ports = [tap.interface.attached for tap in network.taps] + [
        PortRef(switch.name, 9999) for switch in network.switches
    ]
    ports += [side.attached for b in network.boxes if b.name not in used for side in (b.world, b.island)]
    ports += [side.attached for b in network.boxes if b.spare for side in (b.spare.world, b.spare.island)]
    world, island = network.world_hosts[0].address, network.island_hosts[0].address
    for port in ports:
        for vlan in (None, 100, 110):
            assert model.arrivals(Frame(world, island, vlan), port) == ()
            assert model.arrivals(Frame(island, world, vlan), port) == ()


@_quick
@given(laboratories(rings=False), st.data())
def test_no_chain_is_refused_where_trunks_form_a_tree(network: Network, data: st.DataObject) -> None:
    """Any order of boxes and taps, on whichever switches they stand, with any branches."""
    assert flow_entries(network, data.draw(experiments(network)))


@_quick
@given(laboratories(), st.data())
def test_steering_is_a_function_of_its_arguments(network: Network, data: st.DataObject) -> None:
    """The same lab and experiment give the same entries, each place of a table once, or the same refusal."""
    asked = data.draw(experiments(network))
    outcomes: list[object] = []
    for _ in range(2):
        try:
            entries = flow_entries(network, asked)
            outcomes.append(entries)
            assert len({(entry.switch, entry.priority, entry.match) for entry in entries}) == len(entries)
        except PlanError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
