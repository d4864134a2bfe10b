# SPDX-License-Identifier: Apache-2.0
"""Hints where lost packets may be: the cable behind the last station that saw them, the machine at its end. Pure."""

from collections.abc import Collection, Iterable, Mapping

from atoll_controller.tracing.table_model import Delivery, Step
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import FlowEntry


def where_to_look(
    network: Network, steps: Iterable[Step], rises: Mapping[FlowEntry, int], taps: Collection[str]
) -> str:
    """The suspected part and the command that shows more of it, as text after ``look at``.

    ``steps``: the planned path; ``rises``: the increase of the counters of its entries.
    """
    reached: Delivery | None = None
    for step in steps:
        if isinstance(step, Delivery):
            reached = reached if step.name in taps else step
        elif step.entry is None:
            return f"the table of {step.at.switch}, by `atoll switches entries {step.at.switch}`"
        elif rises.get(step.entry, 0) <= 0:
            return f"{_towards(network, step.at)}, by `atoll switches counters {step.at.switch}`"
    if reached is None:
        return "the switches, by `atoll switches`"
    return f"{_from(network, reached)}, by `atoll switches counters {reached.port.switch}`"


def _towards(network: Network, port: PortRef) -> str:
    """The machine or cable from which frames arrive at a port."""
    if found := _attached(network).get(port):
        return f"{found[0]} and the cable from its {found[1]} to {port}"
    for trunk in network.trunks:
        if port in (trunk.a, trunk.b):
            return f"the cable from {trunk.b if port == trunk.a else trunk.a} to {port}"
    return f"the cable at {port}"


def _from(network: Network, reached: Delivery) -> str:
    """The machine that receives frames from a port."""
    found = _attached(network).get(reached.port)
    if found is None:
        return reached.name
    behind = "" if found[0] == reached.name or found[1] != "uplink" else f", its cable to {found[0]},"
    of = f"{found[0]}'s" if behind else "its"
    return f"{reached.name}{behind} and the cable from {reached.port} to {of} {found[1]}"


def _attached(network: Network) -> dict[PortRef, tuple[str, str]]:
    """The machine or learning switch at each switch port that has one, and its interface."""
    machines = {
        interface.attached: (name, interface.name)
        for name, interfaces in network.machines.items()
        for interface in interfaces
    }
    return machines | {each.uplink: (each.name, "uplink") for each in network.learning_switches}
