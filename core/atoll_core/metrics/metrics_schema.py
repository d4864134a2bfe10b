# SPDX-License-Identifier: Apache-2.0
"""What the points of a run are called: the one table of measurements, their tags, fields and units.

docs/metrics.md holds the same table, made from this one. Besides its own tags every point of a run has ``COMMON_TAGS``.
"""

from dataclasses import dataclass

COMMON_TAGS = {
    "testbed": "name of the laboratory",
    "place": "where it lives: `mininet`, `virtual`, `hardware`",
    "experiment": "name of the experiment",
    "run": "experiment and name of the run directory, such as `geo-20260102T030405Z-1`",
}
"""Tags of every point, and what they hold."""

LINK_NS = 100_000_000
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """A field and its unit."""

    name: str
    unit: str
    what: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement. ``every_ns``: its period in real time; 0: whenever something happens."""

    name: str
    what: str
    every_ns: int
    tags: tuple[tuple[str, str], ...]
    fields: tuple[Figure, ...]


EMULATION = "emulation"
"""What the machine is called that is a whole laboratory."""

_SUM = "sum since the box was started"
_BOX = ("box", "name of the box in lab.yaml")
_DIRECTION = ("direction", "`to_island` or `to_world`")
_HOST = ("host", "name of the machine in lab.yaml")
_MACHINE = ("machine", f"name of the machine in the inventory; `{EMULATION}` where one machine is the whole laboratory")
_SWITCH = ("switch", "name of the switch in lab.yaml")
_NAMESPACE = "sum since the namespace was made"
_CAUSES = {
    "queue": "the byte queue was full",
    "loss": "the loss model",
    "aqm": "the AQM",
    "blocked": "the link was blocked",
    "unsent": "the interface would not take them: overload",
}


_TIMING = (
    Figure("lateness_max_ns", "ns", "the latest departure since the point before, behind its schedule"),
    Figure("clamped_packets", "packets", f"known too late to be taken for arrivals of their own instants; {_SUM}"),
    Figure("clamped_max_ns", "ns", "how late the latest of them was taken to arrive, since the point before"),
    Figure(
        "stall_count", "stalls", f"times in which nothing left that was due, each longer than `limits.stall`; {_SUM}"
    ),
    Figure("stall_ns", "ns", f"how long these lasted; {_SUM}"),
)
_DOUBTFUL = (
    Figure("unread_packets", "packets", f"lost by the box's full socket; {_SUM}"),
    Figure("unstamped_packets", "packets", f"without a usable receive stamp; {_SUM}"),
    Figure("no_checksum_packets", "packets", f"sent with checksum offload, receivers discard them; {_SUM}"),
)


def _both_ways(since: str) -> tuple[Figure, ...]:
    """What interfaces and ports count."""
    return tuple(
        Figure(f"{way}_{what}", unit, f"{said}; sum since {since}")
        for way, did in (("rx", "received"), ("tx", "sent"))
        for what, unit, said in (
            ("packets", "packets", did),
            ("bytes", "bytes", did),
            ("errors", "packets", f"not {did}, for an error"),
            ("dropped", "packets", f"not {did}, for want of room"),
        )
    )


MEASUREMENTS = (
    Measurement(
        "link",
        "a satellite link, each direction; what is counted stands in docs/contracts.md",
        LINK_NS,
        (_BOX, _DIRECTION),
        (
            Figure("in_packets", "packets", f"arrived; {_SUM}"),
            Figure("in_bytes", "bytes", f"arrived; {_SUM}"),
            Figure("out_packets", "packets", f"sent on; {_SUM}"),
            Figure("out_bytes", "bytes", f"sent on; {_SUM}"),
            Figure("dropped_packets", "packets", f"dropped, whatever the cause; {_SUM}"),
            Figure("dropped_bytes", "bytes", f"dropped, whatever the cause; {_SUM}"),
            *(
                Figure(f"dropped_{cause}_packets", "packets", f"dropped: {why}; {_SUM}")
                for cause, why in _CAUSES.items()
            ),
            *(Figure(f"dropped_{cause}_bytes", "bytes", f"dropped: {why}; {_SUM}") for cause, why in _CAUSES.items()),
            Figure("oversize_packets", "packets", f"longer than the MTU, discarded; {_SUM}"),
            Figure("queue_bytes", "bytes", "waiting in the queue now"),
            Figure("queue_max_bytes", "bytes", "the most that waited since the point before"),
            Figure("held_packets", "packets", "within the link now: waiting, being serialised, propagating"),
            Figure("idle_ns", "ns", f"the transmitter had nothing to send; {_SUM}"),
            Figure("lost_after_packets", "packets", f"dropped after they had used the link; {_SUM}"),
            Figure("lost_after_bytes", "bytes", f"dropped after they had used the link; {_SUM}"),
            *_TIMING,
            *_DOUBTFUL,
        ),
    ),
    Measurement(
        "link_config",
        "what a link is configured to, every five minutes in virtual time, at swaps and the end besides; what a trace "
        "makes of it is not told",
        SECOND_NS,
        (_BOX, _DIRECTION),
        (
            Figure("rate_bit_s", "bit/s", "serialisation rate"),
            Figure("delay_ns", "ns", "propagation delay"),
            Figure("queue_bytes", "bytes", "capacity of the queue"),
        ),
    ),
    Measurement(
        "delay_class",
        "a latency class of a delay box",
        LINK_NS,
        (_BOX, ("vlan", "VLAN id of the class"), ("class", "name of the class in lab.yaml")),
        (
            Figure("in_packets", "packets", f"arrived; {_SUM}"),
            Figure("in_bytes", "bytes", f"arrived; {_SUM}"),
            Figure("out_packets", "packets", f"sent on; {_SUM}"),
            Figure("out_bytes", "bytes", f"sent on; {_SUM}"),
            Figure("held_packets", "packets", "being delayed now"),
            *_TIMING,
        ),
    ),
    Measurement(
        "delay_box",
        "a delay box as a whole",
        LINK_NS,
        (_BOX,),
        (
            Figure("unknown_vlan_packets", "packets", f"of no class, discarded; {_SUM}"),
            Figure("oversize_packets", "packets", f"longer than the MTU, discarded; {_SUM}"),
            *_DOUBTFUL,
        ),
    ),
    Measurement(
        "latency_config",
        "the terrestrial latency that a world server is configured to, every five minutes in virtual time, at swaps "
        "and the end besides",
        SECOND_NS,
        (_HOST,),
        (
            Figure("rtt_ns", "ns", "round-trip time of its class; 0: not delayed"),
            Figure("jitter_ns", "ns", "jitter of its class, in one direction"),
        ),
    ),
    Measurement(
        "latency_check",
        "a world server's terrestrial latency as the test before the run found it; of each pair of hosts events.jsonl "
        "tells",
        0,
        (_HOST,),
        (
            Figure("configured_ns", "ns", "round-trip time of its class; 0: not delayed"),
            Figure("measured_ns", "ns", "round-trip time less that of the special server, which is not delayed"),
        ),
    ),
    Measurement(
        "ping",
        "the ping series, one point a ping, at the instant it was sent",
        0,
        (_HOST, ("target", "name of the host that answers")),
        (
            Figure("rtt_ns", "ns", "round-trip time; absent when there was no answer"),
            Figure("lost", "1", "1: no answer within the time-out, else 0"),
            Figure("seq", "1", "number of the ping"),
        ),
    ),
    Measurement(
        "server",
        "a world server's program",
        SECOND_NS,
        (_HOST,),
        (
            Figure("connections", "1", "accepted since the start of the run"),
            Figure("active", "1", "not closed by the client yet"),
            Figure("sent_bytes", "bytes", "given to TCP since the start of the run"),
        ),
    ),
    Measurement(
        "load",
        "an island client's channels",
        SECOND_NS,
        (_HOST,),
        (
            Figure("flows_completed", "1", "since the start of the run"),
            Figure("flows_failed", "1", "since the start of the run"),
            Figure("active", "1", "flows open now"),
            Figure("received_bytes", "bytes", "of TCP payload since the start of the run"),
            Figure("ended", "1", "1: it is over; of its last point alone, which has no sums"),
        ),
    ),
    Measurement(
        "start",
        "an island client's channels begin",
        0,
        (_HOST,),
        (Figure("late_ns", "ns", "behind the instant agreed upon, less the offset of the host's clock"),),
    ),
    Measurement(
        "transfer",
        "the large transfer, at its receiver; not of iperf3, which says so only when it is over",
        SECOND_NS,
        (_HOST,),
        (
            Figure("received_bytes", "bytes", "of TCP payload since its start"),
            Figure("ended", "1", "1: it is over; of its last point alone, at the instant of the last byte"),
        ),
    ),
    Measurement(
        "capture",
        "a capture",
        SECOND_NS,
        (_HOST, ("point", "name of its file below captures/")),
        (
            Figure("captured_packets", "packets", "in the file or on their way there"),
            Figure("captured_bytes", "bytes", "their bytes on the wire"),
            Figure("dropped_packets", "packets", "the kernel had no room for: the capture is not whole"),
            Figure("unchecked_packets", "packets", "without checksum: their senders left it to hardware"),
        ),
    ),
    Measurement(
        "interface",
        "an experiment interface of a host or box, as its kernel counts; every five minutes in virtual time",
        SECOND_NS,
        (_HOST, ("interface", "name of the interface")),
        _both_ways("the interface was made"),
    ),
    Measurement(
        "tcp",
        "TCP in a host's network namespace, as its kernel counts; every five minutes in virtual time",
        SECOND_NS,
        (_HOST,),
        (
            Figure("established", "1", "connections open now"),
            Figure("in_segments", "1", f"received; {_NAMESPACE}"),
            Figure("out_segments", "1", f"sent, retransmitted ones among them; {_NAMESPACE}"),
            Figure("retransmitted_segments", "1", f"sent again; {_NAMESPACE}"),
            Figure("in_errors", "1", f"received in error: damaged, or a SYN of a connection that stands; {_NAMESPACE}"),
            Figure("checksum_errors", "1", f"of these: damaged, their checksum being wrong; {_NAMESPACE}"),
            Figure("timeouts", "1", f"retransmission time-outs; {_NAMESPACE}"),
            Figure("spurious_timeouts", "1", f"time-outs that F-RTO (RFC 5682) found to be for nothing; {_NAMESPACE}"),
            Figure("listen_drops", "1", f"connections not taken, the listen queue being full; {_NAMESPACE}"),
            Figure("backlog_dropped", "1", f"received, no room in the socket's backlog; {_NAMESPACE}"),
            Figure("receive_queue_dropped", "1", f"received, no room in the socket's receive queue; {_NAMESPACE}"),
        ),
    ),
    Measurement(
        "udp",
        "UDP in a host's network namespace, as its kernel counts; every five minutes in virtual time",
        SECOND_NS,
        (_HOST,),
        (
            Figure("in_datagrams", "1", f"given to programs; {_NAMESPACE}"),
            Figure("out_datagrams", "1", f"sent; {_NAMESPACE}"),
            Figure("in_errors", "1", f"received and not given to programs, whatever the cause; {_NAMESPACE}"),
            Figure("checksum_errors", "1", f"of these: damaged, their checksum being wrong; {_NAMESPACE}"),
            Figure("receive_buffer_errors", "1", f"of these: no room in the socket's receive buffer; {_NAMESPACE}"),
            Figure("send_buffer_errors", "1", f"not sent, no room in the socket's send buffer; {_NAMESPACE}"),
        ),
    ),
    Measurement(
        "job",
        "a program that the agent runs for the experiment; every five minutes in virtual time",
        SECOND_NS,
        (_HOST, ("job", "its name, such as `serve-w1`, `link-sat`")),
        (
            Figure("cpu_ns", "ns", "CPU time since its start, of all its CPUs together"),
            Figure("memory_bytes", "bytes", "memory that it has resident; that of its control group if it has one"),
        ),
    ),
    Measurement(
        "machine",
        "a machine as a whole; every five minutes in virtual time",
        SECOND_NS,
        (_MACHINE,),
        (
            Figure("cpus", "1", "CPUs that are online"),
            Figure("busy", "1", "share of all CPUs' time since the point before in which they were not idle, 0 to 1"),
            Figure("busy_ns", "ns", "CPU time not idle, of all CPUs; sum since the machine was started"),
            Figure("idle_ns", "ns", "CPU time idle, waiting for disks included; sum since the machine was started"),
            Figure("steal_ns", "ns", "CPU time that a hypervisor gave to others; sum since the machine was started"),
            Figure("load_1m", "1", "load average of the last minute"),
            Figure("memory_bytes", "bytes", "memory that there is"),
            Figure("memory_available_bytes", "bytes", "memory that programs could still have without swapping"),
            Figure(
                "backlog_dropped_packets",
                "packets",
                "dropped as net.core.netdev_max_backlog of them waited for a processor; of the whole machine, whoever "
                "sent them; sum since the machine was started",
            ),
            Figure(
                "backlog_squeezes",
                "1",
                "times that a processor had to leave waiting packets for later (net.core.netdev_budget); sum since the "
                "machine was started",
            ),
        ),
    ),
    Measurement(
        "agent",
        "a machine's agent; every five minutes in virtual time",
        SECOND_NS,
        (_MACHINE,),
        (
            Figure("cpu_ns", "ns", "CPU time since its start"),
            Figure("memory_bytes", "bytes", "memory that it has resident"),
            Figure("jobs", "1", "programs that it runs now"),
        ),
    ),
    Measurement(
        "clock",
        "a machine's clock: what its kernel was told of it (adjtimex(2)), and every ten seconds, in virtual time every "
        "five minutes, how far it is from the clock that the run goes by, by questions over the agent's stream",
        SECOND_NS,
        (_MACHINE,),
        (
            Figure("synchronised", "1", "1: a program such as chrony disciplines it, else 0"),
            Figure("estimated_error_ns", "ns", "by that program's estimate"),
            Figure("maximum_error_ns", "ns", "by that program's estimate; grows while it says nothing"),
            Figure("offset_ns", "ns", "this clock less the run's"),
            Figure("bound_ns", "ns", "the truth is within so much of the offset"),
            Figure("rtt_ns", "ns", "round-trip time of the agent's stream, the shortest of eight"),
        ),
    ),
    Measurement(
        "switch_port",
        "a port of a switch, as the switch counts (OpenFlow 1.3.5, 7.3.5.6); every five minutes in virtual time",
        SECOND_NS,
        (_SWITCH, ("port", "number of the port")),
        _both_ways("the switch was started"),
    ),
    Measurement(
        "flow_entries",
        "the flow entries of a switch that share a cookie: those of one leg of one app; as often as its ports",
        SECOND_NS,
        (
            _SWITCH,
            ("app", "who asked for them: `delivery`, `latency`, `chain`, ..."),
            ("cookie", "16 hexadecimal digits"),
        ),
        (
            Figure("entries", "1", "how many there are"),
            Figure("packets", "packets", "counted by them since each was installed"),
            Figure("bytes", "bytes", "counted by them since each was installed"),
        ),
    ),
    Measurement(
        "event",
        "what happens to the run: the lines of events.jsonl (but for the figures of the test before it), whistles",
        0,
        (
            ("kind", "its type: `step`, `change`, `swap`, `whistle`, `note`, `outcome`, ..."),
            ("state", "`begin`, `end`, `failed`, where it has one"),
        ),
        (Figure("text", "text", "what happened, in a line"),),
    ),
    Measurement(
        "metrics",
        "how much was measured",
        SECOND_NS,
        (),
        (
            Figure("points", "1", "points of this run so far"),
            Figure("left_out", "1", "fields left out so far: not a number, infinite, or beyond 64 bits"),
            Figure("unread", "1", "times that a switch or a machine did not tell its counters"),
        ),
    ),
)
"""Every measurement. A PEP's and a coder's statistics get measurements of their own, with the tag ``box``."""

BY_NAME = {measurement.name: measurement for measurement in MEASUREMENTS}


def markdown() -> str:
    """The table as docs/metrics.md has it."""
    parts = ["| tag of every point | |", "|---|---|", *(f"| `{name}` | {what} |" for name, what in COMMON_TAGS.items())]
    for each in MEASUREMENTS:
        period = f"every {each.every_ns / 1e6:g} ms" if each.every_ns else "when it happens"
        parts += ["", f"### {each.name}", f"{each.what[0].upper()}{each.what[1:]}. One point {period}.", ""]
        parts += ["| | unit | |", "|---|---|---|"]
        parts += [f"| tag `{name}` | | {what} |" for name, what in each.tags]
        parts += [f"| `{figure.name}` | {figure.unit} | {figure.what} |" for figure in each.fields]
    return "\n".join(parts) + "\n"
