# SPDX-License-Identifier: Apache-2.0
"""In-band control in random labs: it reaches its hosts and nothing else, and no swap touches its entries."""

from dataclasses import replace
from ipaddress import IPv4Network

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from atoll_apps.control import PRIORITY, control_entries
from atoll_apps.steering import flow_entries, steer
from atoll_controller.fabric.swap_plan import plan_swap
from atoll_controller.tracing.table_model import Frame, SwitchTables
from atoll_core.errors import PlanError
from atoll_core.lab.network import CONTROL, Control, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import ARP, Output
from atoll_core.plan.tag_layout import Layout
from tests.support.labs import experiments, laboratories

NET = IPv4Network("192.168.10.0/24")
DAEMON = NET[1]
_FREE_PORT = 200  # above those of random labs
_quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@st.composite
def in_band(draw: st.DrawFn) -> Network:
    """Labs in which some hosts have one interface."""
    network = draw(laboratories(gathered=draw(st.booleans())))
    port = PortRef(draw(st.sampled_from([switch.name for switch in network.switches])), _FREE_PORT)
    some = draw(st.lists(st.sampled_from(range(len(network.hosts))), min_size=1, unique=True))
    hosts = tuple(replace(host, control=NET[10 + n] if n in some else None) for n, host in enumerate(network.hosts))
    return replace(network, hosts=hosts, control=Control(NET, port, arp=draw(st.booleans())))


@_quick
@given(in_band())
def test_control_reaches_each_of_its_hosts_and_no_box_or_tap(network: Network) -> None:
    control = network.control
    assert control is not None
    entries = control_entries(network)
    model = SwitchTables(network, entries)
    for host in network.in_band_hosts:
        assert host.control is not None
        there = model.arrivals(Frame(DAEMON, host.control, protocol=6), control.port)
        assert [each.name for each in there] == [host.name]
        back = model.arrivals(Frame(host.control, DAEMON, protocol=6), host.interface.attached)
        assert [each.name for each in back] == [CONTROL]
        asked = model.arrivals(Frame(DAEMON, host.control, eth_type=ARP), control.port)
        assert (host.interface.attached in {each.port for each in asked}) is control.arp
    allowed = {control.port, *(host.interface.attached for host in network.in_band_hosts)}
    allowed |= {end for trunk in network.trunks for end in (trunk.a, trunk.b)}
    for entry in entries:
        outputs = {PortRef(entry.switch, action.port) for action in entry.actions if isinstance(action, Output)}
        assert outputs <= allowed, "no port of a box, a delay box, a tap or another host"


@_quick
@given(in_band(), st.data())
def test_packets_of_the_experiment_never_match_its_entries_and_swaps_leave_them(
    network: Network, data: st.DataObject
) -> None:
    old, new = data.draw(experiments(network)), data.draw(experiments(network))
    try:
        layout = steer(network, old, Layout()).layout
        entries = flow_entries(network, old, layout)
        swap = plan_swap(network, old, layout, new)
    except PlanError:
        assume(False)
        raise
    assert set(control_entries(network)) == {entry for entry in entries if entry.priority == PRIORITY}
    for world in network.world_hosts:
        for island in network.island_hosts:
            model = SwitchTables(network, entries)
            for step in model.walk(Frame(world.address, island.address, protocol=6), world.interface.attached):
                entry = getattr(step, "entry", None)
                assert entry is None or entry.priority < PRIORITY
    touched = [entry for stage in swap.stages for entry in (*stage.add, *stage.delete)]
    assert not any(entry.priority == PRIORITY for entry in touched)
