# SPDX-License-Identifier: Apache-2.0
"""What kernels drop outside the boxes while a run is measured: packets that wait for a processor, packets at sockets.

The sockets are those of the hosts, and those through which an emulated lab's Open vSwitch reads its ports.

No link counts these, and no capture says why they are missing. Every machine is looked at when the boxes' measurement
begins and again when it ends; what rose in between is kept in the manifest (docs/contracts.md, "Run directory").
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from atoll_analysis.verdict.drop_report import SWITCH_PORTS
from atoll_core.errors import LabError
from atoll_core.lab.network import Network, PortRef
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab
from atoll_emulation.mininet_lab.port_names import port_interface_names
from atoll_emulation.this_machine.packet_sockets import PacketSocket
from atoll_hosts.agent import Agent, HostAsked
from atoll_testbed.metrics.host_metrics import machines_by_agent
from atoll_testbed.testbed import Testbed

SOCKET_COUNTERS = {
    "tcp": ("listen_drops", "backlog_dropped", "receive_queue_dropped", "checksum_errors"),
    "udp": ("receive_buffer_errors", "checksum_errors", "in_errors"),
}
"""What network namespaces count and what does not happen in a sound run, by the part of a sample that holds it."""

_OWN_LIMIT = Path("/proc/sys/net/core/netdev_max_backlog")

_SWITCHES = "the switches"  # the switches' ends of an emulated lab's cables; no machine can be called so


@dataclass(frozen=True, slots=True)
class Look:
    """What a machine and its hosts had counted at an instant: an agent's sample (docs/contracts.md, "Agent")."""

    sample: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unknown: str | None = None  # why there is none
    ports: Mapping[PortRef, PacketSocket] = field(default_factory=dict[PortRef, PacketSocket])  # of an emulated lab
    ports_unknown: str | None = None  # why there are none


async def look(testbed: Testbed) -> dict[str, Look]:
    """Ask every agent, by its machine's name (``emulation``: one machine is the whole laboratory).

    One that cannot tell is noted as such and spoils no run: what it would have told is unknown then.
    """
    network = testbed.network
    asked: dict[str, tuple[Agent, list[HostAsked]]] = {}
    for agent, (name, machines) in machines_by_agent(testbed).items():
        hosts: list[HostAsked] = [
            (one.name, one.netns, [each.name for each in network.machines[one.name]]) for one in machines
        ]
        if name == EMULATION:
            hosts.append((_SWITCHES, None, _switch_ends(network)))
        asked[name] = agent, hosts
    looks = await asyncio.gather(*(_ask(agent, hosts) for agent, hosts in asked.values()))
    found = dict(zip(asked, looks, strict=True))
    if EMULATION in found:
        found[EMULATION] = await _with_ports(found[EMULATION], testbed.lab, network)
    return found


def own_limit() -> int | None:
    """Packets that may wait for one of this machine's processors; None where this network namespace does not show it.

    An emulated lab's own namespaces never do, so its agent cannot tell.
    """
    try:
        return int(_OWN_LIMIT.read_text())
    except (OSError, ValueError):
        return None


def risen(begin: Mapping[str, Look], end: Mapping[str, Look], limit: int | None) -> dict[str, Any]:
    """What rose from one look at the machines to the next, as the manifest keeps it; ``limit``: :func:`own_limit`."""
    machines: dict[str, dict[str, int | None]] = {}
    hosts: dict[str, dict[str, int]] = {}
    uncounted: dict[str, str] = {}
    for name, after in end.items():
        before = begin[name]
        if unknown := before.unknown or after.unknown:
            uncounted[name] = unknown
            continue
        emulated = name == EMULATION
        unread = sorted({*before.sample["unread"], *after.sample["unread"]})
        uncounted |= dict.fromkeys(unread, "its counters could not be read")
        waited = _rise(before.sample["machine"], after.sample["machine"], "backlog_dropped_packets")
        if waited is None:
            uncounted[name] = "its kernel does not show /proc/net/softnet_stat"
        machines[name] = {
            "backlog_dropped_packets": waited,
            "on_cables_packets": _on_cables(before.sample, after.sample) if emulated and not unread else None,
            "backlog_limit_packets": limit if emulated else after.sample["machine"]["backlog_limit_packets"],
        }
        for host, counted in after.sample["hosts"].items():
            rises = _at_sockets(before.sample["hosts"].get(host, {}), counted)
            if rises and host != _SWITCHES:  # whose sockets are those of the control channels
                hosts[host] = rises
    ports: dict[str, dict[str, int]] | None = None
    if EMULATION in end:
        earlier, later = begin[EMULATION], end[EMULATION]
        if unknown := earlier.ports_unknown or later.ports_unknown:
            uncounted[SWITCH_PORTS] = unknown
        else:
            ports = _at_ports(earlier.ports, later.ports)
    return {"machines": machines, "hosts": hosts, "ports": ports, "uncounted": uncounted}


async def _ask(agent: Agent, hosts: list[HostAsked]) -> Look:
    try:
        return Look(await agent.sample(hosts))
    except LabError as error:
        return Look(unknown=str(error))


async def _with_ports(seen: Look, lab: EmulatedLab, network: Network) -> Look:
    """Together with what the lab's switches have counted where they read their ports."""
    ports = {interface: port for port, interface in port_interface_names(network).items()}
    try:
        sockets = await lab.packet_sockets()
    except LabError as error:
        return replace(seen, ports_unknown=str(error))
    return replace(seen, ports={ports[name]: one for name, one in sockets.items() if name in ports})


def _switch_ends(network: Network) -> list[str]:
    names = port_interface_names(network)
    return [names[each.attached] for interfaces in network.machines.values() for each in interfaces]


def _on_cables(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """What the other end of a veth pair did not take: the sender counts it (drivers/net/veth.c, ``veth_xmit``)."""
    return sum(
        _rise(before["hosts"].get(host, {}).get("interfaces", {}).get(name, {}), counted, "tx_dropped") or 0
        for host, found in after["hosts"].items()
        for name, counted in found["interfaces"].items()
    )


def _at_ports(
    before: Mapping[PortRef, PacketSocket], after: Mapping[PortRef, PacketSocket]
) -> dict[str, dict[str, int]]:
    """What the switches' own sockets had no room for, by port; ports that lost nothing are left out."""
    rises: dict[str, dict[str, int]] = {}
    for port, now in sorted(after.items()):
        dropped = now.dropped_packets - (before[port].dropped_packets if port in before else 0)
        if dropped > 0:
            rises[str(port)] = {"dropped_packets": dropped, "receive_buffer_bytes": now.receive_buffer_bytes}
    return rises


def _at_sockets(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Rises by part and counter (``tcp.listen_drops``), those of 0 left out."""
    rises = {
        f"{part}.{counter}": _rise(before.get(part, {}), after[part], counter) or 0
        for part, counters in SOCKET_COUNTERS.items()
        for counter in counters
    }
    return {name: rise for name, rise in rises.items() if rise}


def _rise(before: Mapping[str, Any], after: Mapping[str, Any], counter: str) -> int | None:
    """How much a counter rose; None where the kernel lacks it."""
    earlier, later = before.get(counter), after.get(counter)
    return None if earlier is None or later is None else max(0, later - earlier)
