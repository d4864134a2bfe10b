# SPDX-License-Identifier: Apache-2.0
"""Packets dropped by kernels outside the boxes during a measurement, with remedies.

A packet that waits for a processor is dropped when ``net.core.netdev_max_backlog`` of them wait (Linux 6.1,
net/core/dev.c, ``enqueue_to_backlog``): between two ends of a cable, where neither a link nor a capture counts it.
Sockets drop packets that do not fit into their buffers. Open vSwitch's userspace datapath receives frames of an
emulated lab through sockets, too (atoll_emulation/this_machine/packet_sockets.py).
docs/decisions/0029-lost-outside-the-boxes.md says why none of this makes a run invalid by itself.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypedDict

from atoll_analysis.verdict.findings import Finding, FindingCode, caveat
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_core.plural import counted, first_of, were

SWITCH_PORTS = "the switches' ports"
"""Key of the switches' ports in `uncounted`; no machine can have this name."""

_LEAST_BACKLOG = 10_000
_MOST_BACKLOG = 1_000_000  # as in virtual time: a packet behind so many is far too late
MOST_NAMES = 5
"""Hosts or machines that a line names; of the others it has the number."""

_UNDELIVERED_DATAGRAMS = "udp.undelivered"

_TCP_REMEDY = "raise tcp.buffer_max of the experiment; for a box, raise net.ipv4.tcp_rmem on its machine"
_CHECKSUM_REMEDY = "check for checksum offloads, and for boxes that change packets"

_SOCKET_COUNTERS = {
    "tcp.listen_drops": (
        "connection",
        "not accepted because the listen queue was full",
        "raise net.core.somaxconn there",
    ),
    "tcp.backlog_dropped": ("TCP segment", "dropped because a socket's backlog was full", _TCP_REMEDY),
    "tcp.receive_queue_dropped": ("TCP segment", "dropped because a socket's receive queue was full", _TCP_REMEDY),
    "tcp.checksum_errors": ("TCP segment", "discarded because of a wrong checksum", _CHECKSUM_REMEDY),
    "udp.receive_buffer_errors": (
        "datagram",
        "dropped because a socket's receive buffer was full",
        "raise net.core.rmem_max of the machine",
    ),
    "udp.checksum_errors": ("datagram", "discarded because of a wrong checksum", _CHECKSUM_REMEDY),
    _UNDELIVERED_DATAGRAMS: (
        "datagram",
        "not delivered to a program for another reason",
        "usually the machine had no memory for them; check net.ipv4.udp_mem there",
    ),
}
"""Meaning and remedy of each counter of a host. A run sets tcp_rmem of its end hosts itself, to tcp.buffer_max."""


class Backlog(TypedDict):
    """Packets dropped by a machine because too many waited for one of its processors."""

    dropped_packets: int  # packets dropped
    on_cables_packets: int | None  # those of them on the cables of an emulated lab; None: a machine of its own
    limit_packets: int | None  # net.core.netdev_max_backlog; None: not known


class SwitchPort(TypedDict):
    """Frames dropped at a port of an emulated lab's Open vSwitch, because its socket's buffer was full."""

    dropped_packets: int  # frames dropped
    receive_buffer_bytes: int  # size of the socket's buffer


class LostOutside(TypedDict):
    """Drops outside the boxes from the begin of their measurement to its end."""

    machines: dict[str, Backlog]  # machines that dropped packets
    # hosts whose sockets dropped packets: the counts by the kernel's name of the cause
    hosts: dict[str, dict[str, int]]
    ports: dict[str, SwitchPort]  # ports of an emulated lab's switches that dropped frames
    uncounted: dict[str, str]  # machines whose drops are not known, and why; `the switches' ports` likewise
    beside: list[str]  # machines and ports whose drops cannot make captures and link disagree


def lost_outside(manifest: Mapping[str, Any], between: Collection[str]) -> LostOutside | None:
    """Return the recorded drops; None: the measurement did not end, or an early version did not record them.

    ``between``: the machines and switch ports whose losses the capture world has and the capture island has not, or
    one of them has alone. The machine of an emulated lab is all of them.
    """
    drops = manifest.get("lost_outside")
    if drops is None:
        return None
    ports: dict[str, SwitchPort] = drops.get("ports") or {}  # earlier versions did not look
    machines = {
        name: Backlog(
            dropped_packets=backlog["backlog_dropped_packets"],
            on_cables_packets=backlog["on_cables_packets"],
            limit_packets=backlog["backlog_limit_packets"],
        )
        for name, backlog in drops["machines"].items()
        if backlog["backlog_dropped_packets"]
    }
    return LostOutside(
        machines=machines,
        hosts=drops["hosts"],
        ports=ports,
        uncounted=drops["uncounted"],
        beside=[name for name in (*machines, *ports) if name != EMULATION and name not in between],
    )


def likely_causes(lost: LostOutside | None) -> list[str]:
    """Return likely places of drops between two captures, with remedies, a sentence each."""
    if lost is None:
        return []
    return [
        *(_backlog_text(name, lost) for name in lost["machines"] if _is_likely_cause(name, lost)),
        *_at_ports({port: drops for port, drops in lost["ports"].items() if port not in _outside(lost)}),
    ]


def judge_lost_outside(lost: LostOutside | None, *, causes_are_named: bool) -> Iterator[Finding]:
    """Return findings for drops (bound: 0 packets). ``causes_are_named``: another finding names the likely causes."""
    if lost is None:
        return
    for name, backlog in lost["machines"].items():
        if _on_cables(backlog) and not (causes_are_named and _is_likely_cause(name, lost)):
            yield caveat(FindingCode.DROPPED_BY_BACKLOG, _backlog_text(name, lost))
    shown = {port: drops for port, drops in lost["ports"].items() if not causes_are_named or port in _outside(lost)}
    yield from (caveat(FindingCode.DROPPED_BY_SWITCH, text) for text in _at_ports(shown))
    yield from (caveat(FindingCode.DROPPED_BY_SOCKET, text) for text in _at_sockets(lost["hosts"]))


def outside_notes(lost: LostOutside | None) -> list[str]:
    """Return notes on drops that may be others' packets and on unknown counts, a sentence each."""
    if lost is None:
        return []
    machine_texts = (_backlog_text(name, lost) for name, backlog in lost["machines"].items() if not _on_cables(backlog))
    return [*machine_texts, *_unknown(lost["uncounted"])]


def _on_cables(backlog: Backlog) -> bool:
    """Whether packets of the laboratory can be among those dropped."""
    return backlog["on_cables_packets"] != 0


def _outside(lost: LostOutside) -> Collection[str]:
    return lost.get("beside", ())  # absent from what older versions analysed


def _is_likely_cause(machine: str, lost: LostOutside) -> bool:
    """Whether this machine may have dropped packets that are missing in a capture; its counter covers all senders."""
    return machine not in _outside(lost) and _on_cables(lost["machines"][machine])


def _backlog_text(name: str, lost: LostOutside) -> str:
    backlog = lost["machines"][name]
    dropped, on_cables, limit = backlog["dropped_packets"], backlog["on_cables_packets"], backlog["limit_packets"]
    where = "" if on_cables is None else f" ({min(on_cables, dropped) or 'none'} of them on the lab's own cables)"
    bound = "" if limit is None else f"; net.core.netdev_max_backlog is {limit}"
    dropped_text = f"{counted(dropped, 'packet')} that waited for a processor{where}{bound}"
    outside_text = " (not between the captures)" if name in _outside(lost) else ""
    return f"{machine_text(name)}{outside_text} dropped {dropped_text}: {_longer_backlog(backlog)}"


def _longer_backlog(backlog: Backlog) -> str:
    """A power of ten that holds twice what was dropped; no remedy if the backlog is large already."""
    limit = backlog["limit_packets"] or 0
    if limit >= _MOST_BACKLOG:
        return "its processors are too slow for the load; a longer backlog does not help"
    needed = min(_MOST_BACKLOG, 2 * (limit + backlog["dropped_packets"]))
    return f"`sysctl -w net.core.netdev_max_backlog={max(_LEAST_BACKLOG, 10 ** len(str(needed - 1)))}`"


def _at_ports(ports: Mapping[str, SwitchPort]) -> Iterator[str]:
    """Return findings for drops at switch ports. Only the lab sends to the switches of an emulated lab."""
    if not ports:
        return
    drops = {port: counts["dropped_packets"] for port, counts in ports.items()}
    buffer_bytes = max(counts["receive_buffer_bytes"] for counts in ports.values())
    yield (
        f"{were(sum(drops.values()), 'packet')} lost at Open vSwitch's own sockets ({_counts_text(drops)}), "
        f"whose receive buffers have {buffer_bytes} bytes each: the machine's processors are too slow for the load"
    )


def _counts_text(counts: Mapping[str, int]) -> str:
    return first_of([f"{name} {count}" for name, count in counts.items()], MOST_NAMES)


def _at_sockets(hosts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for counter, (noun, cause, remedy) in _SOCKET_COUNTERS.items():
        if drops := {host: count for host, counts in hosts.items() if (count := _count(counts, counter))}:
            yield f"{were(sum(drops.values()), noun)} {cause} ({_counts_text(drops)}): {remedy}"


def _unknown(uncounted: Mapping[str, str]) -> Iterator[str]:
    """Return a note on machines whose drops are unknown, with the first one's reason."""
    machines = [name for name in uncounted if name != SWITCH_PORTS]
    if machines:
        names = first_of([machine_text(name) for name in machines], MOST_NAMES)
        yield f"drops outside the boxes are unknown for {names}: {uncounted[machines[0]]}"
    if SWITCH_PORTS in uncounted:
        yield f"drops at Open vSwitch's own sockets are unknown: {uncounted[SWITCH_PORTS]}"


def _count(counts: Mapping[str, int], counter: str) -> int:
    if counter == _UNDELIVERED_DATAGRAMS:  # the kernel counts those of both other causes among them
        attributed = sum(counts.get(f"udp.{cause}", 0) for cause in ("receive_buffer_errors", "checksum_errors"))
        return max(0, counts.get("udp.in_errors", 0) - attributed)
    return counts.get(counter, 0)


def machine_text(machine: str) -> str:
    """The name of a machine, as a sentence has it."""
    return "the lab's machine" if machine == EMULATION else machine
