# SPDX-License-Identifier: Apache-2.0
"""Live traces: probes from one host to another, seen and counted at every hop of their path."""

import statistics
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from atoll_controller.tracing.packet_trace import HopKind, PacketTrace, TraceHop, trace
from atoll_controller.tracing.probe_paths import max_rtt_ns
from atoll_controller.tracing.trace_report import LiveStation, LiveTrace
from atoll_core.errors import LabError
from atoll_core.experiment.experiment import Protocol
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_testbed.verification.entry_counters import Counts, count_increase, prompt_switches, read_counts
from atoll_testbed.verification.probe_receiver import SentProbe, Station, Watch, receiving_probes, sending, station

if TYPE_CHECKING:
    from atoll_testbed.testbed import Testbed

PROBES = 5
_INTERVAL_NS = 100_000_000
_SCHEDULING_S = 1.0  # for a busy machine to send the last one


async def trace_live(
    testbed: "Testbed", src: str, dst: str, protocol: Protocol = Protocol.ICMP, count: int = PROBES
) -> LiveTrace:
    """Send probes from ``src`` to ``dst``; returns the probes seen or counted at each hop of their path.

    Other traffic, such as that of a run, may continue and is counted, too. Raises LabError if no experiment is applied,
    PlanError as ``packet_trace.trace``.
    """
    plan, experiment, network = testbed.installed_plan, testbed.experiment, testbed.network
    if plan is None or experiment is None:
        raise LabError("no experiment is applied; `atoll apply EXPERIMENT` applies one")
    forward = trace(network, experiment, plan.flows, src, dst, protocol)
    backward = trace(network, experiment, plan.flows, dst, src, protocol)
    end = _end(network, forward)
    hops = _hops_until(forward.hops, end)
    entries = tuple(hop.entry for hop in hops if hop.entry is not None)
    before = await read_counts(testbed.controller, network, entries)
    stations = {hop: at for hop in hops if (at := _station_of(network, hop)) is not None}
    watch = Watch()
    await _send(testbed, watch, forward, protocol, end, set(stations.values()), count, max_rtt_ns(network, experiment))
    arrivals = len({probe.attempt for probe in watch.seen if probe.machine == end and not probe.answer})
    prompt = prompt_switches(network)
    prompt_entries = [entry for entry in entries if entry.switch in prompt]
    increases = await count_increase(testbed.controller, network, before, prompt_entries, needed=max(1, arrivals))
    observations = tuple(_observation(hop, watch, stations.get(hop), increases, prompt) for hop in hops)
    rtts = tuple(
        probe.t_ns - watch.sent_ns[probe.number, probe.attempt]
        for probe in watch.seen
        if (probe.machine, probe.answer) == (src, True)
    )
    return LiveTrace(forward, len(watch.sent_ns), observations, end, rtts, forward.delay_ns + backward.delay_ns)


async def _send(
    testbed: "Testbed",
    watch: Watch,
    forward: PacketTrace,
    protocol: Protocol,
    end: str,
    stations: Collection[Station],
    count: int,
    max_rtt_ns: int,
) -> None:
    """Send the probes; wait until all probes and their answers have arrived, or until none can arrive any more."""
    source, target = testbed.network.host(forward.src), testbed.network.host(forward.dst)
    machines: dict[str, IPv4Address | None] = dict.fromkeys(machine for machine, _ in stations)
    machines[target.name] = target.address
    # Frames at taps and boxes are addressed to other machines.
    promiscuous = {name: [interface for machine, interface in stations if machine == name] for name in machines}
    last_arrival = (source.name, True) if end == target.name else (end, False)

    def all_arrived() -> bool:
        return len({probe.attempt for probe in watch.seen if (probe.machine, probe.answer) == last_arrival}) == count

    probes = {source.name: (source.address, [SentProbe(0, target.address, protocol.number)])}
    async with (
        receiving_probes(testbed.machine, watch, machines, promiscuous),
        sending(testbed.machine, watch, probes, count, _INTERVAL_NS),
    ):
        await watch.wait_until(all_arrived, (count * _INTERVAL_NS + max_rtt_ns) / 1e9 + _SCHEDULING_S)


def _end(network: Network, path: PacketTrace) -> str:
    """The end of the path: the destination, or for TCP a box that ends connections."""
    ends = {box.name for box in network.boxes if box.ends_connections} if path.protocol is Protocol.TCP else set[str]()
    return next((hop.name for hop in path.hops if hop.name in ends), path.dst)


def _hops_until(hops: Sequence[TraceHop], end: str) -> tuple[TraceHop, ...]:
    """The hops up to a box at which the path ends; all hops if it ends at the destination."""
    last = next((index for index, hop in enumerate(hops) if hop.name == end and hop.kind is HopKind.BOX), len(hops))
    return tuple(hops[: last + 1])


def _station_of(network: Network, hop: TraceHop) -> Station | None:
    """The station at which probes that reach a hop can be seen; None if there is none."""
    if hop.kind in (HopKind.SWITCH, HopKind.DROP):
        return None
    return station(network, hop.name, PortRef(hop.switch, hop.port))


def _observation(
    hop: TraceHop, watch: Watch, at: Station | None, increases: Counts, prompt: Collection[str]
) -> LiveStation:
    if (entry := hop.entry) is not None:
        counted = increases.get(entry) if entry.switch in prompt else None
        return LiveStation(hop, counted=counted, held=entry in increases)
    if hop.kind is HopKind.DROP or at is None:
        return LiveStation(hop)
    seen = [probe for probe in watch.seen if (probe.machine, probe.interface) == at and not probe.answer]
    delays_ns = [probe.t_ns - watch.sent_ns[probe.number, probe.attempt] for probe in seen]
    after_ns = int(statistics.median(delays_ns)) if delays_ns else None
    return LiveStation(hop, seen=len({probe.attempt for probe in seen}), after_ns=after_ns)
