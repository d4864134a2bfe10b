# SPDX-License-Identifier: Apache-2.0
"""Steering, tried frame by frame on a model of the tables, over random labs, chains and latencies."""

from dataclasses import replace
from itertools import permutations

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from atoll.control.walk import Frame, Tables
from atoll.model.errors import PlanError
from atoll.model.experiment import Experiment, Protocol
from atoll.model.flow import FlowEntry
from atoll.model.network import Network, PortRef
from atoll_apps.steering import flow_entries
from tests.property.labs import ISLAND, WORLD, experiments, laboratories

_quick = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@st.composite
def steered(draw: st.DrawFn) -> tuple[Network, Experiment, tuple[FlowEntry, ...]]:
    """Labs whose steering is not refused: anything anywhere, or all boxes and taps on one switch."""
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
    """Both directions, every protocol: latency class, boxes and taps of its chain in order, then the host, untagged."""
    network, asked, entries = case
    model = Tables(network, entries)
    classes = {each.name: (box.name, each.vlan) for box in network.delay_boxes for each in box.classes}
    latency = dict(asked.latency)
    for world in network.world_hosts:
        delay = [classes[latency[world.name]]] if world.name in latency else []
        for island in network.island_hosts:
            for kind, number in ((Protocol.TCP, 6), (Protocol.ICMP, 1), (None, 132)):
                chain = list(asked.carrier(world.address, island.address, kind).hops)
                there = model.seen(Frame(world.address, island.address, None, number), world.interface.attached)
                back = model.seen(Frame(island.address, world.address, None, number), island.interface.attached)
                names = [name for name, _ in delay]
                assert [seen.name for seen in there] == [*names, *chain, island.name]
                assert [seen.name for seen in back] == [*chain[::-1], *names, world.name]
                for seen in (*there, *back):  # tags are for delay boxes and transparent boxes alone
                    assert seen.name not in names or seen.frame.vlan == delay[0][1]
                    assert seen.frame.vlan is None or seen.name in names or not seen.name.startswith(("t", "w", "i"))


@_quick
@given(steered(), st.data())
def test_nothing_else_passes(case: tuple[Network, Experiment, tuple[FlowEntry, ...]], data: st.DataObject) -> None:
    """Forged sources, tags, other protocols and frames within one side are dropped by the first switch they reach."""
    network, _, entries = case
    model = Tables(network, entries)
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
            assert model.seen(frame, port) == ()


@_quick
@given(steered())
def test_only_declared_hosts_are_delivered_to(case: tuple[Network, Experiment, tuple[FlowEntry, ...]]) -> None:
    """A frame to an address nobody has may cross the chain but reaches no host; nor does one reach a host not meant."""
    network, _, entries = case
    model = Tables(network, entries)
    hosts = {host.name for host in network.hosts}
    for host in network.hosts:
        nobody = (ISLAND if host.role.is_world else WORLD)[999]
        assert not hosts & {seen.name for seen in model.seen(Frame(host.address, nobody), host.interface.attached)}


@_quick
@given(steered())
def test_ports_without_a_part_in_the_chain_may_not_send(
    case: tuple[Network, Experiment, tuple[FlowEntry, ...]],
) -> None:
    """Capture hosts, boxes outside the chain and empty ports are deaf, whatever they claim to be."""
    network, asked, entries = case
    model = Tables(network, entries)
    used = {hop for chain in asked.chains for hop in chain.hops}
    ports = [tap.interface.attached for tap in network.taps] + [
        PortRef(switch.name, 9999) for switch in network.switches
    ]
    ports += [side.attached for b in network.boxes if b.name not in used for side in (b.world, b.island)]
    ports += [side.attached for b in network.boxes if b.spare for side in (b.spare.world, b.spare.island)]
    world, island = network.world_hosts[0].address, network.island_hosts[0].address
    for port in ports:
        for vlan in (None, 100, 110):
            assert model.seen(Frame(world, island, vlan), port) == ()
            assert model.seen(Frame(island, world, vlan), port) == ()


@_quick
@given(laboratories(gathered=True, fewest_boxes=1), st.data())
def test_a_chain_on_one_switch_is_never_refused(network: Network, data: st.DataObject) -> None:
    """With at least one box between the edges, any order of boxes and taps on one switch can be steered."""
    asked = data.draw(experiments(network))
    assume(all(any(hop.startswith("b") for hop in chain.hops) for chain in asked.chains))
    assert flow_entries(network, asked)


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
