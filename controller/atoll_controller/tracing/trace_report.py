# SPDX-License-Identifier: Apache-2.0
"""The result of a live trace: the count of probes at every station, the conclusion, and where to look. Pure."""

import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from atoll_controller.tracing.packet_trace import HopKind, PacketTrace, TraceHop, hop_cells
from atoll_controller.tracing.table_model import Delivery, Step
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import FlowEntry
from atoll_core.plural import columns
from atoll_core.units import Duration


@dataclass(frozen=True, slots=True)
class LiveStation:
    """A hop of the planned path, and the number of probes that arrived.

    ``counted``: the increase of the entry's counter, other traffic included; None if its switch does not have the
    entry, or if hardware updates counters too seldom. ``seen``: probes at a machine; None where no receiver runs.
    ``after_ns``: the median time from sending to arrival, if both have one clock.
    """

    hop: TraceHop
    counted: int | None = None
    seen: int | None = None
    after_ns: int | None = None
    held: bool = True

    @property
    def passed(self) -> bool:
        """Whether the probes may have arrived here."""
        return self.held and self.counted != 0 and self.seen != 0 and self.hop.kind is not HopKind.DROP

    @property
    def name(self) -> str:
        """The station as text."""
        port = f"{self.hop.switch}/{self.hop.port}"
        return f"'{self.hop.note}' at {port}" if self.hop.entry else self.hop.name


@dataclass(frozen=True, slots=True)
class LiveTrace:
    """Probes sent from one host to another. ``end``: their last station; for TCP maybe a box that ends connections.

    ``rtts_ns``: those of answered probes. ``rtt_ns``: the configured one, without queues.
    """

    trace: PacketTrace
    sent: int
    stations: tuple[LiveStation, ...]
    end: str
    rtts_ns: tuple[int, ...]
    rtt_ns: int

    @property
    def lost(self) -> str | None:
        """The place where probes were lost, in one line; None if none were."""
        last_name = self.trace.src
        for station in self.stations:
            if not station.passed:
                if not station.held:
                    return f"after {last_name}: {station.hop.switch} does not have the entry {station.name}"
                if station.hop.kind is HopKind.DROP:
                    return f"at {station.hop.switch}/{station.hop.port}: {station.hop.note}"
                return f"after {last_name}: {station.name} did not {'see' if station.counted is None else 'count'} them"
            if station.hop.kind is not HopKind.TAP:
                last_name = station.name
        if not self.trace.arrives:
            return f"after {last_name}: the plan has no further hop for them"
        if self.end == self.trace.dst and not self.rtts_ns:
            return f"on the way back: the probes arrived at {self.end}, but no answer arrived at {self.trace.src}"
        return None

    @property
    def proven(self) -> bool:
        """Whether probes took the planned path, and answers came back."""
        return self.lost is None


def live_trace_text(live: LiveTrace) -> str:
    """A live trace as a table."""
    trace = live.trace
    lines = [f"{trace.protocol} from {trace.src} to {trace.dst} takes chain {trace.chain}: {_verdict(live)}"]
    rows = [(*hop_cells(station.hop), _evidence_text(station), station.hop.note) for station in live.stations]
    lines += columns(rows, indent="  ")
    if any((station.counted or 0) > live.sent for station in live.stations):
        lines.append(f"  entries that counted more than {live.sent} packets also carry other traffic")
    if live.end != trace.dst:
        lines.append(f"  {live.end} ends TCP and opens a new connection: `--protocol icmp` tests the whole path")
    return "\n".join(lines)


def _verdict(live: LiveTrace) -> str:
    if live.lost is not None:
        return f"not proven; {live.sent} probes were lost {live.lost}"
    if not live.rtts_ns:
        return f"proven as far as {live.end}"
    low, middle, high = (Duration(int(f(live.rtts_ns) / 1000) * 1000) for f in (min, statistics.median, max))
    answered = f"{len(live.rtts_ns)} of {live.sent} probes answered"
    return f"proven, {answered} after {middle} ({low} to {high}), configured {Duration(live.rtt_ns)}"


def _evidence_text(station: LiveStation) -> str:
    if not station.held:
        return "no entry"
    if station.counted is not None:
        return f"counted {station.counted}"
    if station.seen is None:
        return "not watched"
    after = "" if station.after_ns is None else f" after {Duration(station.after_ns // 1000 * 1000)}"
    return f"saw {station.seen}{after}"


def suspected_part(
    network: Network, steps: Iterable[Step], increases: Mapping[FlowEntry, int], taps: Collection[str]
) -> str:
    """The suspected part and the command that shows more of it, as text after ``look at``.

    ``steps``: the planned path; ``increases``: the increase of the counters of its entries.
    """
    last_delivery: Delivery | None = None
    for step in steps:
        if isinstance(step, Delivery):
            last_delivery = last_delivery if step.name in taps else step
        elif step.entry is None:
            return f"the table of {step.at.switch}, by `atoll switches entries {step.at.switch}`"
        elif increases.get(step.entry, 0) <= 0:
            return f"{_machine_before(network, step.at)}, by `atoll switches counters {step.at.switch}`"
    if last_delivery is None:
        return "the switches, by `atoll switches`"
    return f"{_machine_behind(network, last_delivery)}, by `atoll switches counters {last_delivery.port.switch}`"


def _machine_before(network: Network, port: PortRef) -> str:
    """The machine or cable from which frames arrive at a port."""
    if attached := _attached(network).get(port):
        return f"{attached[0]} and the cable from its {attached[1]} to {port}"
    for trunk in network.trunks:
        if port in (trunk.a, trunk.b):
            return f"the cable from {trunk.b if port == trunk.a else trunk.a} to {port}"
    return f"the cable at {port}"


def _machine_behind(network: Network, delivery: Delivery) -> str:
    """The machine that receives frames from a port."""
    name, interface = _attached(network).get(delivery.port, (None, ""))
    if name is None:
        return delivery.name
    if name == delivery.name or interface != "uplink":
        return f"{delivery.name} and the cable from {delivery.port} to its {interface}"
    return f"{delivery.name}, its cable to {name}, and the cable from {delivery.port} to {name}'s {interface}"


def _attached(network: Network) -> dict[PortRef, tuple[str, str]]:
    """The machine or learning switch at each switch port that has one, and its interface."""
    machines = {
        interface.attached: (name, interface.name)
        for name, interfaces in network.machines.items()
        for interface in interfaces
    }
    return machines | {switch.uplink: (switch.name, "uplink") for switch in network.learning_switches}
