# SPDX-License-Identifier: Apache-2.0
"""The longest packets of a lab's cables, checked against those that its switches forward."""

from collections.abc import Iterator
from itertools import pairwise

from atoll_core.errors import Diagnostic, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.path_mtu import PathMtus
from atoll_core.lab.network import Interface, Network
from atoll_core.lab.shortest_paths import Topology
from atoll_switches.capability_profile import profile


def too_long(network: Network, experiment: Experiment | None = None) -> Iterator[Diagnostic]:
    """MTUs of cables that a switch does not forward: the one that a cable ends at, or one between two legs of a chain.

    Without an experiment there are no chains.
    """
    drivers = {switch.name: profile(switch.driver) for switch in network.switches}

    def refused(interface: Interface, mtu: int, switch: str) -> Iterator[Diagnostic]:
        known = drivers[switch]
        if mtu > known.mtu:
            text = (
                f"{interface.name}: {switch} ({known.title}) forwards packets of at most {known.mtu} bytes, not {mtu}"
            )
            remedy = f"write an mtu of at most {known.mtu}, or attach it to a switch with a larger limit"
            yield Diagnostic(network.file, interface.line, f"{text}; {remedy}")

    for interfaces in network.machines.values():
        for interface in interfaces:
            yield from refused(interface, interface.mtu, interface.attached.switch)
    topology = Topology.of(network)
    for near, far in _stretches(network, experiment) if experiment else ():
        for hop in topology.path(near.attached.switch, far.attached.switch)[:-1]:
            yield from refused(near, min(near.mtu, far.mtu), hop.arrival.switch)


def _stretches(network: Network, experiment: Experiment) -> Iterator[tuple[Interface, Interface]]:
    """Two interfaces with switches between them: the last before, and the first behind."""
    trunks = [interface for box in network.delay_boxes for interface in box.interfaces]
    worlds = [*(host.interface for host in network.world_hosts), *trunks]
    for legs in PathMtus(network, experiment).legs.values():
        first = [legs[0].interface] if legs else []
        last = [legs[-1].interface] if legs else worlds
        for world in worlds:
            yield from ((world, each) for each in (*first, *(t for t in trunks if t is not world)))
        yield from ((near.interface, far.interface) for near, far in pairwise(legs) if near.box != far.box)
        yield from ((each, host.interface) for each in last for host in network.island_hosts)


def refuse_long_packets(network: Network, experiment: Experiment) -> None:
    """Raise PlanError, with a line each, if a switch does not forward the packets of a cable."""
    if lines := [str(each) for each in dict.fromkeys(too_long(network, experiment))]:
        raise PlanError("\n".join(lines))
