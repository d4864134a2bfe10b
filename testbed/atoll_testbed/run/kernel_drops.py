# SPDX-License-Identifier: Apache-2.0
"""Packets that kernels drop outside the boxes during a run: in the CPU backlog, and at sockets.

The sockets are those of the hosts, and those through which an emulated lab's Open vSwitch reads its ports.

No link counts these drops, and captures do not show their cause. The counters of every machine are read at the start
and at the end of the boxes' measurement; the increases are recorded in the manifest (docs/contracts.md, "Run
directory"). Heat and load of the machines are in the same samples.
"""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from atoll_analysis.verdict.lost_outside import SWITCH_PORTS
from atoll_core.errors import LabError
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab
from atoll_emulation.mininet_lab.port_names import port_interface_names
from atoll_emulation.this_machine.packet_sockets import PacketSocketCounters
from atoll_hosts.agent import Agent, MeasuredHost
from atoll_hosts.machine import Machine
from atoll_testbed.metrics.metrics_recorder import machines_by_agent
from atoll_testbed.testbed import Testbed

SOCKET_COUNTERS = {
    "tcp": ("listen_drops", "backlog_dropped", "receive_queue_dropped", "checksum_errors"),
    "udp": ("receive_buffer_errors", "checksum_errors", "in_errors"),
}
"""Counters of network namespaces that do not increase in a sound run, by the part of a sample that contains them."""

_LIMIT_FILE = Path("/proc/sys/net/core/netdev_max_backlog")

_SWITCHES = "the switches"  # the switches' ends of an emulated lab's cables; no machine can have this name


@dataclass(frozen=True, slots=True)
class DropSample:
    """The counters of a machine and its hosts at a time: an agent's sample (docs/contracts.md, "Agent")."""

    sample: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unknown: str | None = None  # the reason if there is no sample
    ports: Mapping[PortRef, PacketSocketCounters] = field(default_factory=dict[PortRef, PacketSocketCounters])
    """Of an emulated lab."""
    ports_unknown: str | None = None  # the reason if there are no ports


async def sample_drops(testbed: Testbed) -> dict[str, DropSample]:
    """Samples of all agents by the names of their machines (``emulation``: one machine is the whole lab).

    An agent that cannot be read does not fail the run; its counters are unknown.
    """
    network = testbed.network

    async def sample(agent: Agent, name: str, machines: list[Machine]) -> tuple[str, DropSample]:
        hosts: list[MeasuredHost] = [
            (machine.name, machine.netns, [interface.name for interface in network.machines[machine.name]])
            for machine in machines
        ]
        if name == EMULATION:
            ends = port_interface_names(network)
            interfaces = itertools.chain.from_iterable(network.machines.values())
            hosts.append((_SWITCHES, None, [ends[interface.cable_end] for interface in interfaces]))
        try:
            counters = DropSample(await agent.sample(hosts))
        except LabError as error:
            counters = DropSample(unknown=str(error))
        return name, await _with_ports(counters, testbed.lab, network) if name == EMULATION else counters

    return dict(await asyncio.gather(*(sample(agent, *served) for agent, served in machines_by_agent(testbed).items())))


def backlog_limit() -> int | None:
    """The limit of packets in a CPU's backlog; None if this network namespace does not show it.

    The namespaces of an emulated lab never show it, so its agent cannot read it.
    """
    try:
        return int(_LIMIT_FILE.read_text())
    except (OSError, ValueError):
        return None


def drop_increase(begin: Mapping[str, DropSample], end: Mapping[str, DropSample], limit: int | None) -> dict[str, Any]:
    """The increases of counters between two samples, in the form of the manifest; ``limit``: :func:`backlog_limit`."""
    machines: dict[str, dict[str, int | None]] = {}
    hosts: dict[str, dict[str, int]] = {}
    uncounted: dict[str, str] = {}
    for name, after in end.items():
        before = begin[name]
        if unknown := before.unknown or after.unknown:
            uncounted[name] = unknown
            continue
        is_emulated = name == EMULATION
        unread = sorted({*before.sample["unread"], *after.sample["unread"]})
        uncounted |= dict.fromkeys(unread, "its counters could not be read")
        backlog_drops = increase(before.sample["machine"], after.sample["machine"], "backlog_dropped_packets")
        if backlog_drops is None:
            uncounted[name] = "its kernel does not show /proc/net/softnet_stat"
        machines[name] = {
            "backlog_dropped_packets": backlog_drops,
            "on_cables_packets": _cable_drops(before.sample, after.sample) if is_emulated and not unread else None,
            "backlog_limit_packets": limit if is_emulated else after.sample["machine"]["backlog_limit_packets"],
        }
        for host, counters in after.sample["hosts"].items():
            increases = _socket_drops(before.sample["hosts"].get(host, {}), counters)
            if increases and host != _SWITCHES:  # these sockets are those of the control channels
                hosts[host] = increases
    ports: dict[str, dict[str, int]] | None = None
    if EMULATION in end:
        earlier, later = begin[EMULATION], end[EMULATION]
        if unknown := earlier.ports_unknown or later.ports_unknown:
            uncounted[SWITCH_PORTS] = unknown
        else:
            ports = _port_drops(earlier.ports, later.ports)
    return {"machines": machines, "hosts": hosts, "ports": ports, "uncounted": uncounted}


async def _with_ports(counters: DropSample, lab: EmulatedLab, network: Network) -> DropSample:
    """The sample with the counters of the sockets through which the lab's switches read their ports."""
    ports = {interface: port for port, interface in port_interface_names(network).items()}
    try:
        sockets = await lab.packet_sockets()
    except LabError as error:
        return replace(counters, ports_unknown=str(error))
    return replace(counters, ports={ports[name]: socket for name, socket in sockets.items() if name in ports})


def _cable_drops(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Packets that the other end of a veth pair dropped; the sender counts them (drivers/net/veth.c, ``veth_xmit``)."""
    return sum(
        increase(before["hosts"].get(host, {}).get("interfaces", {}).get(name, {}), counts, "tx_dropped") or 0
        for host, counters in after["hosts"].items()
        for name, counts in counters["interfaces"].items()
    )


def _port_drops(
    before: Mapping[PortRef, PacketSocketCounters], after: Mapping[PortRef, PacketSocketCounters]
) -> dict[str, dict[str, int]]:
    """Packets that the switches' sockets dropped, by port; ports without drops are left out."""
    increases: dict[str, dict[str, int]] = {}
    for port, counters in sorted(after.items()):
        dropped = counters.dropped_packets - (before[port].dropped_packets if port in before else 0)
        if dropped > 0:
            increases[str(port)] = {"dropped_packets": dropped, "receive_buffer_bytes": counters.receive_buffer_bytes}
    return increases


def _socket_drops(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Increases by part and counter (``tcp.listen_drops``), without those of 0."""
    increases = {
        f"{part}.{counter}": increase(before.get(part, {}), after[part], counter) or 0
        for part, counters in SOCKET_COUNTERS.items()
        for counter in counters
    }
    return {name: count for name, count in increases.items() if count}


def increase(before: Mapping[str, Any], after: Mapping[str, Any], counter: str) -> int | None:
    """The increase of a counter; None if the kernel does not have it."""
    earlier, later = before.get(counter), after.get(counter)
    return None if earlier is None or later is None else max(0, later - earlier)


def heat_between(begin: Mapping[str, DropSample], end: Mapping[str, DropSample]) -> dict[str, dict[str, Any]]:
    """Heat and load by machine, in the form of the manifest; machines of which nothing is known are left out."""
    heats = {
        name: _heat(begin[name].sample["machine"], after.sample["machine"], emulated=name == EMULATION)
        for name, after in end.items()
        if after.unknown is None and begin[name].unknown is None
    }
    return {name: heat for name, heat in heats.items() if any(figure is not None for figure in heat.values())}


def _heat(before: Mapping[str, Any], after: Mapping[str, Any], *, emulated: bool) -> dict[str, Any]:
    return {
        "temperature_max_c": after.get("temperature_max_c"),
        "temperature_limit_c": after.get("temperature_limit_c"),
        "looks": increase(before, after, "heat_looks"),
        "hot_looks": increase(before, after, "hot_looks"),
        "low_voltage_looks": increase(before, after, "low_voltage_looks"),
        # Links and delay boxes of an emulated lab measure their own lateness, which says more.
        "busy": None if emulated else _busy(before, after),
    }


def _busy(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    busy, idle = increase(before, after, "busy_ns"), increase(before, after, "idle_ns")
    return round(busy / (busy + idle), 4) if busy is not None and idle is not None and busy + idle > 0 else None
