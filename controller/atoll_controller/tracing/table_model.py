# SPDX-License-Identifier: Apache-2.0
"""A model of OpenFlow tables: the path of a frame through switches, boxes and machines.

It does not depend on the computation of entries. ``atoll trace`` shows its walks, and tests check every plan with them.
Pure.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from atoll_core.errors import PlanError
from atoll_core.lab.network import CONTROL, Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import IPV4, FlowEntry, Match, Output, PopVlan, PushVlan, Vlan

_MAX_STEPS = 1000  # a frame of a plan takes a few steps for each box and trunk


@dataclass(frozen=True, slots=True)
class Frame:
    """The parts of a frame that flow entries can match."""

    src: IPv4Address
    dst: IPv4Address
    vlan: int | None = None
    protocol: int = 1  # ICMP
    eth_type: int = IPV4


@dataclass(frozen=True, slots=True)
class Lookup:
    """A frame arrived at a switch port; ``entry``: None if none matches, and the frame is dropped."""

    at: PortRef
    frame: Frame
    entry: FlowEntry | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A frame arrived from this port at a machine or tap; at a learning switch if no host behind it has the address.

    ``name``: CONTROL for the machine that runs atoll.
    """

    name: str
    frame: Frame
    port: PortRef


Step = Lookup | Delivery


class SwitchTables:
    """The switches of a network with their entries, its trunks, machines and boxes.

    ``strict`` False: of several entries of equal priority the first one applies, as on some switches.
    """

    def __init__(self, network: Network, entries: Iterable[FlowEntry], *, strict: bool = True) -> None:
        self._strict = strict
        # By port and, for entries for a single host, that host: tables have hundreds of those.
        self._entries: dict[tuple[PortRef, IPv4Address | None], list[FlowEntry]] = defaultdict(list)
        for entry in sorted(entries, key=lambda entry: -entry.priority):
            prefix = entry.match.ipv4_dst
            host = prefix.network_address if prefix is not None and prefix.prefixlen == prefix.max_prefixlen else None
            self._entries[PortRef(entry.switch, entry.match.in_port), host].append(entry)
        self._trunk_peers: dict[PortRef, PortRef] = {}
        for trunk in network.trunks:
            self._trunk_peers |= {trunk.a: trunk.b, trunk.b: trunk.a}
        self._machines = {host.interface.attached: host.name for host in network.hosts}
        self._machines |= {item.uplink: item.name for item in network.learning_switches}
        self._hosts_by_address = {(host.interface.attached, host.address): host.name for host in network.hosts}
        if network.control is not None:
            self._machines[network.control.port] = CONTROL
            in_band = ((host.interface.attached, host.control, host.name) for host in network.in_band_hosts)
            self._hosts_by_address |= {(port, address): name for port, address, name in in_band if address is not None}
        self._machines |= {tap.interface.attached: tap.name for tap in network.taps if not tap.physical}
        self.other_box_port: dict[PortRef, PortRef] = {}
        self._routed: set[PortRef] = set()
        pairs = [(box.name, pair, box.routed) for box in network.boxes for pair in box.pairs]
        pairs += [(box.name, box.ends(item), False) for box in network.delay_boxes for item in box.classes]
        for name, pair, routed in pairs:
            world, island = pair.world.attached, pair.island.attached
            self._machines |= {world: name, island: name}
            self.other_box_port |= {world: island, island: world}
            self._routed |= {world, island} if routed else set()

    def walk(
        self, frame: Frame, start: PortRef, *, through_boxes: bool = True, first: FlowEntry | None = None
    ) -> tuple[Step, ...]:
        """The steps of a frame that enters at ``start``, and of its copies, in order.

        ``through_boxes`` False: only as far as the next box. ``first``: the entry that applies at ``start``,
        independently of the table (a packet-out). Raises PlanError for loops, ambiguous entries, and ports without a
        machine.
        """
        steps: list[Step] = []
        queue = deque([(frame, start)])
        while queue:
            if len(steps) > _MAX_STEPS:
                raise PlanError(f"{_frame_text(frame)} from {start} is in a loop")
            arriving, ingress = queue.popleft()
            entry = first if first is not None and not steps else self._matching_entry(arriving, ingress)
            steps.append(Lookup(ingress, arriving, entry))
            for sent, port in _outputs(arriving, ingress, entry):
                if port in self._trunk_peers:
                    queue.append((sent, self._trunk_peers[port]))
                    continue
                if port not in self._machines:
                    raise PlanError(f"{entry} sends to {port}, but nothing is attached there")
                name = self._hosts_by_address.get((port, sent.dst), self._machines[port])
                steps.append(Delivery(name, sent, port))
                if through_boxes and port in self.other_box_port and (sent.vlan is None or port not in self._routed):
                    queue.append((sent, self.other_box_port[port]))
        return tuple(steps)

    def arrivals(self, frame: Frame, start: PortRef) -> tuple[Delivery, ...]:
        """The machines and taps at which a frame and its copies arrive, in order. Raises PlanError as :meth:`walk`."""
        return tuple(step for step in self.walk(frame, start) if isinstance(step, Delivery))

    def _matching_entry(self, frame: Frame, at: PortRef) -> FlowEntry | None:
        entries = (*self._entries.get((at, frame.dst), ()), *self._entries.get((at, None), ()))
        matching = [entry for entry in entries if matches(entry.match, frame)]
        highest = max((entry.priority for entry in matching), default=0)
        best = [entry for entry in matching if entry.priority == highest]
        if self._strict and len({entry.actions for entry in best}) > 1:
            raise PlanError(f"two entries of equal priority match {_frame_text(frame)} at {at}: {best[0]}; {best[1]}")
        return best[0] if best else None


def matches(match: Match, frame: Frame) -> bool:
    """Whether a match takes a frame that arrived at its port (OpenFlow 1.3.5, 7.2.2)."""
    return (
        match.eth_type in (None, frame.eth_type)
        and (match.vlan is None or match.vlan == (Vlan.UNTAGGED if frame.vlan is None else frame.vlan))
        and (match.ipv4_src is None or frame.src in match.ipv4_src)
        and (match.ipv4_dst is None or frame.dst in match.ipv4_dst)
        and match.ip_proto in (None, frame.protocol)
        and match.l4_src is match.l4_dst is None
    )


def _outputs(frame: Frame, at: PortRef, entry: FlowEntry | None) -> list[tuple[Frame, PortRef]]:
    """The frames that a switch sends for one that arrives."""
    sent: list[tuple[Frame, PortRef]] = []
    for action in entry.actions if entry else ():
        match action:
            case PushVlan(vlan):
                if frame.vlan is not None:
                    raise PlanError(f"{entry} would push a second VLAN tag onto a frame")
                frame = replace(frame, vlan=vlan)
            case PopVlan():
                if frame.vlan is None:
                    raise PlanError(f"{entry} pops a VLAN tag, but the frame has none")
                frame = replace(frame, vlan=None)
            case Output(port):
                if port == at.port:
                    raise PlanError(f"{entry}: a switch does not send a frame out of the port where it arrived")
                sent.append((frame, PortRef(at.switch, port)))
    return sent


def _frame_text(frame: Frame) -> str:
    tag = f" with VLAN tag {frame.vlan}" if frame.vlan is not None else ""
    return f"a frame {frame.src} -> {frame.dst}{tag}"
