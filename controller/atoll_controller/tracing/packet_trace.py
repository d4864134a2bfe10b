# SPDX-License-Identifier: Apache-2.0
"""The path of a packet through a plan: switches and their entries, boxes, taps, delays. Pure."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import IPv4Address

from atoll_controller.tracing.table_model import Delivery, Frame, Lookup, Step, SwitchTables
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Experiment, Protocol
from atoll_core.lab.network import CONTROL, Control, DelayBox, Host, Network
from atoll_core.plan.flow_entry import FlowEntry, describe_actions
from atoll_core.plural import columns
from atoll_core.units import Duration


class HopKind(StrEnum):
    """The kind of a station of a packet or its copy."""

    SWITCH = "switch"
    DELAY = "delay"  # the delay box of its server's latency class
    BOX = "box"
    TAP = "tap"
    HOST = "host"
    LEARNING_SWITCH = "learning switch"  # which floods the packet, as no host behind it has the address
    DROP = "drop"  # a switch where no entry matches, or one that drops


@dataclass(frozen=True, slots=True)
class TraceHop:
    """One station. ``vlan``: the tag with which the packet arrives; ``delay_ns``: its least delay there."""

    kind: HopKind
    name: str
    switch: str
    port: int  # of the switch: the ingress port, or the egress port to an attached machine
    vlan: int | None
    note: str  # the entry's reason, or the properties of a box
    delay_ns: int = 0
    entry: FlowEntry | None = None


@dataclass(frozen=True, slots=True)
class PacketTrace:
    """The path of packets from one host to another. ``delay_ns``: without queues and serialisation.

    ``dst``: the address if no host has it. ``protocol``: the number if Protocol does not name it. ``chain``: empty for
    in-band control, which takes none.
    """

    src: str
    dst: str
    protocol: Protocol | int
    chain: str
    arrives: bool
    delay_ns: int
    hops: tuple[TraceHop, ...] = field(default=())


def trace(
    network: Network, experiment: Experiment, entries: tuple[FlowEntry, ...], src: str, dst: str, protocol: Protocol
) -> PacketTrace:
    """The path of a packet between two hosts, or in-band control to or from one, through switches with these entries.

    Raises PlanError for unknown hosts, hosts of one end, and hosts without in-band control.
    """
    if network.control is not None and CONTROL in (src, dst):  # without, a host may have this name
        return _control_trace(network, network.control, experiment, entries, src, dst, protocol)
    frame = Frame(named_host(network, src).address, named_host(network, dst).address, None, protocol.number)
    return trace_frame(network, experiment, entries, src, frame)


def trace_frame(
    network: Network, experiment: Experiment, entries: tuple[FlowEntry, ...], src: str, frame: Frame
) -> PacketTrace:
    """The path of a frame that a host sends, which may have any addresses, through switches with these entries.

    Raises PlanError for an unknown host and for a destination at the same end.
    """
    sender, receiver = named_host(network, src), host_of(network, frame.dst)
    from_world = sender.role.is_world
    if receiver is not None and receiver.role.is_world == from_world:
        end = "world" if from_world else "island"
        raise PlanError(
            f"{src} and {receiver.name} are both {end} hosts, and there is no traffic between them; name one world "
            "host and one island host"
        )
    world, island = (frame.src, frame.dst) if from_world else (frame.dst, frame.src)
    protocol = next((item for item in Protocol if item.number == frame.protocol), None)
    chain = experiment.carrier(world, island, protocol)
    steps = SwitchTables(network, entries).walk(frame, sender.interface.attached)
    hops = tuple(_hop(network, experiment, step, to_island=from_world) for step in steps)
    dst = receiver.name if receiver is not None else str(frame.dst)
    delay_ns = sum(hop.delay_ns for hop in hops)
    return PacketTrace(src, dst, protocol or frame.protocol, chain.name, _arrives(hops, dst), delay_ns, hops)


def _control_trace(
    network: Network,
    control: Control,
    experiment: Experiment,
    entries: tuple[FlowEntry, ...],
    src: str,
    dst: str,
    protocol: Protocol,
) -> PacketTrace:
    host = named_host(network, dst if src == CONTROL else src)
    if host.control is None:
        raise PlanError(f"{host.name} has no in-band control; name a host with a 'control' address in lab.yaml")
    addresses = {host_in_band.control for host_in_band in network.in_band_hosts}
    daemon_address = next(address for address in control.network.hosts() if address not in addresses)
    to_host = src == CONTROL
    frame = Frame(daemon_address, host.control) if to_host else Frame(host.control, daemon_address)
    start = control.port if to_host else host.interface.attached
    steps = SwitchTables(network, entries).walk(replace(frame, protocol=protocol.number), start)
    hops = tuple(_hop(network, experiment, step, to_island=to_host) for step in steps)
    return PacketTrace(src, dst, protocol, "", _arrives(hops, dst), 0, hops)


def _arrives(hops: tuple[TraceHop, ...], dst: str) -> bool:
    return any(hop.kind is HopKind.HOST and hop.name == dst for hop in hops)


def named_host(network: Network, name: str) -> Host:
    """The host of this name. Raises PlanError if there is none."""
    hosts = {host.name: host for host in network.hosts}
    if name in hosts:
        return hosts[name]
    if name == CONTROL and network.control is not None:
        raise PlanError(
            "'control' is the machine that runs atoll; name it with a host that has in-band control, without --packet"
        )
    raise PlanError(f"lab {network.name} has no host {name!r}; {suggest(name, hosts, 'hosts')}")


def host_of(network: Network, address: IPv4Address) -> Host | None:
    """The host that has this address."""
    return next((host for host in network.hosts if host.address == address), None)


def trace_text(packet_trace: PacketTrace) -> str:
    """A trace as a table."""
    if not packet_trace.arrives:
        end = f"it does not arrive at {packet_trace.dst}"
    elif packet_trace.chain:
        end = f"one way at least {Duration(packet_trace.delay_ns)}, without queues"
    else:
        end = "it arrives"
    protocol = packet_trace.protocol
    name = protocol if isinstance(protocol, Protocol) else f"IP protocol {protocol}"
    route = f"takes chain {packet_trace.chain}" if packet_trace.chain else "is in-band control, past all chains"
    title = f"{name} from {packet_trace.src} to {packet_trace.dst} {route}: {end}"
    return "\n".join((title, *columns([(*hop_cells(hop), hop.note) for hop in packet_trace.hops], indent="  ")))


def hop_cells(hop: TraceHop) -> tuple[str, str, str, str]:
    """The cells of a hop: name, kind, tag, and the delay or the actions."""
    on_switch = hop.kind in (HopKind.SWITCH, HopKind.DROP)
    name = f"{hop.name}/{hop.port}" if on_switch else f"  {hop.name}"
    tag = "untagged" if hop.vlan is None else f"VLAN {hop.vlan}"
    actions = describe_actions(hop.entry.actions) if hop.entry else "drop" if on_switch else ""
    return name, hop.kind.value, tag, str(Duration(hop.delay_ns)) if hop.delay_ns else actions


def _hop(network: Network, experiment: Experiment, step: Step, *, to_island: bool) -> TraceHop:
    if isinstance(step, Lookup):
        dropped = step.entry is None or not step.entry.actions
        kind = HopKind.DROP if dropped else HopKind.SWITCH
        note = step.entry.why if step.entry else "no entry matches"
        return TraceHop(kind, step.at.switch, step.at.switch, step.at.port, step.frame.vlan, note, entry=step.entry)

    def hop(kind: HopKind, note: str, delay_ns: int = 0) -> TraceHop:
        return TraceHop(kind, step.name, step.port.switch, step.port.port, step.frame.vlan, note, delay_ns)

    delays = {box.name: box for box in network.delay_boxes}
    boxes = {box.name: box for box in network.boxes}
    if step.name in delays:
        return hop(HopKind.DELAY, *_class_text(delays[step.name], step))
    if step.name in boxes:
        link = next((link for link in experiment.links if link.box == step.name), None)
        if link is None:
            return hop(HopKind.BOX, boxes[step.name].properties)
        direction = link.to_island if to_island else link.to_world
        return hop(HopKind.BOX, f"link of {direction.rate}, queue {direction.queue}", direction.delay_at_start.ns)
    if step.name in {tap.name for tap in network.taps}:
        tap = network.tap(step.name)
        return hop(HopKind.TAP, f"copy to interface {tap.interface.name} of {tap.host}")
    if step.name in {learning.name for learning in network.learning_switches}:
        return hop(HopKind.LEARNING_SWITCH, f"no host behind it has the address {step.frame.dst}")
    if network.control is not None and step.name == CONTROL:
        return hop(HopKind.HOST, "the machine that runs atoll")
    host = network.host(step.name)
    behind = f", behind {host.interface.behind}" if host.interface.behind else ""
    return hop(HopKind.HOST, f"{host.role.value}{behind}")


def _class_text(box: DelayBox, step: Delivery) -> tuple[str, int]:
    ends = {c: (box.ends(c).world.attached, box.ends(c).island.attached) for c in box.classes}
    latency = next((c for c in box.classes if c.tag == step.frame.vlan and step.port in ends[c]), None)
    return (f"class {latency.name}", latency.rtt.ns // 2) if latency else ("no class of it", 0)
