# SPDX-License-Identifier: Apache-2.0
"""The table of all measurements of a run, with their tags, fields and units.

`atoll metrics names` prints :func:`schema_markdown`. Every point of a run also has ``COMMON_TAGS``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import fill

COMMON_TAGS = {
    "testbed": "name of the laboratory",
    "place": "platform of the laboratory: `mininet`, `virtual`, `hardware`",
    "experiment": "name of the experiment",
    "run": "experiment and name of the run directory, such as `geo-20260102T030405Z-1`",
}
"""Tags of every point, with their meaning."""

LINK_NS = 100_000_000
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class MetricField:
    """A field and its unit."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement. ``every_ns``: its period in real time; 0: whenever something happens."""

    name: str
    meaning: str
    every_ns: int
    tags: tuple[tuple[str, str], ...]
    fields: tuple[MetricField, ...]
    in_virtual_time: str = ""
    """When there is a point in virtual time, if that differs."""


def _measurement(
    name: str,
    meaning: str,
    every_ns: int,
    tags: tuple[tuple[str, str], ...],
    *fields: MetricField,
    in_virtual_time: str = "",
) -> Measurement:
    return Measurement(name, meaning, every_ns, tags, fields, in_virtual_time)


EMULATION = "emulation"
"""Name of the machine that runs a whole emulated laboratory."""

_EVERY_FIVE_MINUTES = "every five minutes"
_TOTAL = "sum since the box was started"
_BOX = ("box", "name of the box in lab.yaml")
_DIRECTION = ("direction", "`to_island` or `to_world`")
_HOST = ("host", "name of the machine in lab.yaml")
_MACHINE = ("machine", f"name of the machine in the inventory; `{EMULATION}` if one machine runs the whole laboratory")
_SWITCH = ("switch", "name of the switch in lab.yaml")
_NAMESPACE = "sum since the namespace was made"
_CAUSES = {
    "queue": "by a full byte queue",
    "low_priority": "by a full low-priority queue",
    "loss": "by the loss model",
    "aqm": "by the AQM",
    "blocked": "while the link was blocked",
    "unsent": "because the interface did not accept them (overload)",
}
_LOW_PRIORITY = (
    MetricField("low_priority_in_packets", "packets", f"arrived for the low-priority queue; {_TOTAL}"),
    MetricField("low_priority_in_bytes", "bytes", f"arrived for the low-priority queue; {_TOTAL}"),
    MetricField("low_priority_sent_packets", "packets", f"sent from the low-priority queue; {_TOTAL}"),
    MetricField("low_priority_sent_bytes", "bytes", f"sent from the low-priority queue; {_TOTAL}"),
    MetricField("low_priority_queue_bytes", "bytes", "in the low-priority queue now"),
    MetricField(
        "low_priority_queue_max_bytes", "bytes", "most bytes in the low-priority queue since the previous point"
    ),
)

_TIMING = (
    MetricField("lateness_max_ns", "ns", "largest lateness of a departure since the previous point"),
    MetricField(
        "clamped_packets",
        "packets",
        "treated as arriving later than their receive timestamp, because an event after that timestamp had already "
        f"been processed; {_TOTAL}",
    ),
    MetricField("clamped_max_ns", "ns", "largest difference between these two times since the previous point"),
    MetricField("stall_count", "stalls", f"periods of late departures, each longer than `limits.stall`; {_TOTAL}"),
    MetricField("stall_ns", "ns", f"length of these periods; {_TOTAL}"),
)
_BAD_INPUT = (
    MetricField("unread_packets", "packets", f"lost by the box's full socket; {_TOTAL}"),
    MetricField("unstamped_packets", "packets", f"without a usable receive timestamp; {_TOTAL}"),
    MetricField(
        "no_checksum_packets",
        "packets",
        f"without a checksum because of offload at the sender; receivers discard them; {_TOTAL}",
    ),
)


def _rx_tx_counters(since: str) -> tuple[MetricField, ...]:
    """The counters of interfaces and ports."""
    return tuple(
        MetricField(f"{prefix}_{noun}", unit, f"{meaning}; sum since {since}")
        for prefix, verb in (("rx", "received"), ("tx", "sent"))
        for noun, unit, meaning in (
            ("packets", "packets", verb),
            ("bytes", "bytes", verb),
            ("errors", "packets", f"not {verb}, because of an error"),
            ("dropped", "packets", f"not {verb}, because a buffer was full"),
        )
    )


MEASUREMENTS = (
    _measurement(
        "link",
        "one direction of a satellite link; docs/contracts.md defines its counters",
        LINK_NS,
        (_BOX, _DIRECTION),
        MetricField("in_packets", "packets", f"arrived; {_TOTAL}"),
        MetricField("in_bytes", "bytes", f"arrived; {_TOTAL}"),
        MetricField("out_packets", "packets", f"forwarded; {_TOTAL}"),
        MetricField("out_bytes", "bytes", f"forwarded; {_TOTAL}"),
        MetricField("dropped_packets", "packets", f"dropped for any cause; {_TOTAL}"),
        MetricField("dropped_bytes", "bytes", f"dropped for any cause; {_TOTAL}"),
        *(
            MetricField(f"dropped_{cause}_{unit}", unit, f"dropped {reason}; {_TOTAL}")
            for unit in ("packets", "bytes")
            for cause, reason in _CAUSES.items()
        ),
        MetricField("oversize_packets", "packets", f"longer than the MTU, discarded; {_TOTAL}"),
        MetricField("queue_bytes", "bytes", "in the queue now"),
        MetricField("queue_max_bytes", "bytes", "most bytes in the queue since the previous point"),
        MetricField("held_packets", "packets", "in the link now: queued, being serialised, or propagating"),
        MetricField("idle_ns", "ns", f"time in which the transmitter had nothing to send; {_TOTAL}"),
        MetricField("lost_after_packets", "packets", f"dropped after they had used the link; {_TOTAL}"),
        MetricField("lost_after_bytes", "bytes", f"dropped after they had used the link; {_TOTAL}"),
        *_LOW_PRIORITY,
        *_TIMING,
        *_BAD_INPUT,
    ),
    _measurement(
        "link_config",
        "the configuration of a link, without the changes that a trace makes",
        SECOND_NS,
        (_BOX, _DIRECTION),
        MetricField("rate_bit_s", "bit/s", "serialisation rate"),
        MetricField("delay_ns", "ns", "propagation delay"),
        MetricField("queue_bytes", "bytes", "capacity of the queue"),
        in_virtual_time=f"{_EVERY_FIVE_MINUTES}, at swaps and changes of links, and at the end",
    ),
    _measurement(
        "delay_class",
        "a latency class of a delay box",
        LINK_NS,
        (_BOX, ("vlan", "VLAN id of the class"), ("class", "name of the class in lab.yaml")),
        MetricField("in_packets", "packets", f"arrived; {_TOTAL}"),
        MetricField("in_bytes", "bytes", f"arrived; {_TOTAL}"),
        MetricField("out_packets", "packets", f"forwarded; {_TOTAL}"),
        MetricField("out_bytes", "bytes", f"forwarded; {_TOTAL}"),
        MetricField("held_packets", "packets", "being delayed now"),
        *_TIMING,
    ),
    _measurement(
        "delay_box",
        "a delay box as a whole",
        LINK_NS,
        (_BOX,),
        MetricField("unknown_vlan_packets", "packets", f"of no class, discarded; {_TOTAL}"),
        MetricField("oversize_packets", "packets", f"longer than the MTU, discarded; {_TOTAL}"),
        *_BAD_INPUT,
    ),
    _measurement(
        "latency_config",
        "the configured terrestrial latency of a world server",
        SECOND_NS,
        (_HOST,),
        MetricField("rtt_ns", "ns", "round-trip time of its class; 0: not delayed"),
        MetricField("jitter_ns", "ns", "jitter of its class, in one direction"),
        in_virtual_time=f"{_EVERY_FIVE_MINUTES}, at swaps, and at the end",
    ),
    _measurement(
        "latency_check",
        "the terrestrial latency of a world server, measured by the test before the run; events.jsonl has that of each "
        "pair of hosts",
        0,
        (_HOST,),
        MetricField("configured_ns", "ns", "round-trip time of its class; 0: not delayed"),
        MetricField("measured_ns", "ns", "round-trip time minus that of the special server, which is not delayed"),
    ),
    _measurement(
        "ping",
        "the ping series, one point for each ping, at the time at which it was sent",
        0,
        (_HOST, ("target", "name of the host that answers")),
        MetricField("rtt_ns", "ns", "round-trip time; absent without an answer"),
        MetricField("lost", "1", "1: no answer within the time-out, else 0"),
        MetricField("seq", "1", "number of the ping"),
    ),
    _measurement(
        "server",
        "a world server's program",
        SECOND_NS,
        (_HOST,),
        MetricField("connections", "1", "connections accepted since the start of the run"),
        MetricField("active", "1", "connections that the client has not closed yet"),
        MetricField("sent_bytes", "bytes", "bytes given to TCP since the start of the run"),
        MetricField("received_bytes", "bytes", "TCP payload of uploads since the start of the run; absent: none"),
    ),
    _measurement(
        "load",
        "an island client's channels",
        SECOND_NS,
        (_HOST,),
        MetricField("flows_completed", "1", "flows completed since the start of the run"),
        MetricField("flows_failed", "1", "flows failed since the start of the run"),
        MetricField("active", "1", "flows open now"),
        MetricField("received_bytes", "bytes", "TCP payload since the start of the run"),
        MetricField("sent_bytes", "bytes", "bytes of uploads given to TCP since the start of the run; absent: none"),
        MetricField("ended", "1", "1: the load has ended; only in the last point, which has no sums"),
    ),
    _measurement(
        "start",
        "the start of an island client's channels",
        0,
        (_HOST,),
        MetricField("late_ns", "ns", "delay after the agreed time, minus the offset of the host's clock"),
    ),
    _measurement(
        "transfer",
        "a large transfer, at its host of the island; not with iperf3, which reports its bytes only at the end",
        SECOND_NS,
        (_HOST, ("transfer", "its name")),
        MetricField("received_bytes", "bytes", "TCP payload since its start; absent: it is an upload"),
        MetricField("sent_bytes", "bytes", "acknowledged TCP payload of an upload since its start; absent: it is none"),
        MetricField(
            "ended",
            "1",
            "1: it has ended; only in its last point, at the time of the last byte, or of the receipt of an upload",
        ),
    ),
    _measurement(
        "capture",
        "a packet capture",
        SECOND_NS,
        (_HOST, ("point", "name of its file below captures/")),
        MetricField("captured_packets", "packets", "packets in the file or on their way to it"),
        MetricField("captured_bytes", "bytes", "their bytes on the wire"),
        MetricField(
            "dropped_packets",
            "packets",
            "packets lost because the kernel's ring was full: the capture is incomplete",
        ),
        MetricField("unchecked_packets", "packets", "packets without checksum, because of offload at the sender"),
    ),
    _measurement(
        "interface",
        "an experiment interface of a host or box, as counted by its kernel",
        SECOND_NS,
        (_HOST, ("interface", "name of the interface")),
        *_rx_tx_counters("the interface was made"),
        in_virtual_time=_EVERY_FIVE_MINUTES,
    ),
    _measurement(
        "tcp",
        "TCP in a host's network namespace, as counted by its kernel",
        SECOND_NS,
        (_HOST,),
        MetricField("established", "1", "connections open now"),
        MetricField("in_segments", "1", f"received; {_NAMESPACE}"),
        MetricField("out_segments", "1", f"sent, including retransmissions; {_NAMESPACE}"),
        MetricField("retransmitted_segments", "1", f"retransmitted; {_NAMESPACE}"),
        MetricField("in_errors", "1", f"received in error: damaged, or a SYN of an open connection; {_NAMESPACE}"),
        MetricField("checksum_errors", "1", f"of these: damaged, with a wrong checksum; {_NAMESPACE}"),
        MetricField("timeouts", "1", f"retransmission time-outs; {_NAMESPACE}"),
        MetricField("spurious_timeouts", "1", f"time-outs that F-RTO (RFC 5682) found to be spurious; {_NAMESPACE}"),
        MetricField("listen_drops", "1", f"connections refused because the listen queue was full; {_NAMESPACE}"),
        MetricField("backlog_dropped", "1", f"received, but no room in the socket's backlog; {_NAMESPACE}"),
        MetricField("receive_queue_dropped", "1", f"received, but no room in the socket's receive queue; {_NAMESPACE}"),
        in_virtual_time=_EVERY_FIVE_MINUTES,
    ),
    _measurement(
        "udp",
        "UDP in a host's network namespace, as counted by its kernel",
        SECOND_NS,
        (_HOST,),
        MetricField("in_datagrams", "1", f"given to programs; {_NAMESPACE}"),
        MetricField("out_datagrams", "1", f"sent; {_NAMESPACE}"),
        MetricField("in_errors", "1", f"received, but not given to programs, for any cause; {_NAMESPACE}"),
        MetricField("checksum_errors", "1", f"of these: damaged, with a wrong checksum; {_NAMESPACE}"),
        MetricField("receive_buffer_errors", "1", f"of these: no room in the socket's receive buffer; {_NAMESPACE}"),
        MetricField("send_buffer_errors", "1", f"not sent: no room in the socket's send buffer; {_NAMESPACE}"),
        in_virtual_time=_EVERY_FIVE_MINUTES,
    ),
    _measurement(
        "job",
        "a program that the agent runs for the experiment",
        SECOND_NS,
        (_HOST, ("job", "name of the job, such as `serve-w1`, `link-sat`")),
        MetricField("cpu_ns", "ns", "CPU time since its start, of all its CPUs together"),
        MetricField("memory_bytes", "bytes", "resident memory; that of its control group if it has one"),
        in_virtual_time=_EVERY_FIVE_MINUTES,
    ),
    _measurement(
        "machine",
        "a machine as a whole",
        SECOND_NS,
        (_MACHINE,),
        MetricField("cpus", "1", "online CPUs"),
        MetricField("busy", "1", "share of all CPUs' time since the previous point that was not idle, 0 to 1"),
        MetricField("busy_ns", "ns", "CPU time not idle, of all CPUs; sum since the machine was started"),
        MetricField("idle_ns", "ns", "CPU time idle, waiting for disks included; sum since the machine was started"),
        MetricField("steal_ns", "ns", "CPU time that a hypervisor gave to others; sum since the machine was started"),
        MetricField("load_1m", "1", "load average of the last minute"),
        MetricField("memory_bytes", "bytes", "total memory"),
        MetricField("memory_available_bytes", "bytes", "memory that is available to programs without swapping"),
        MetricField(
            "backlog_dropped_packets",
            "packets",
            "dropped because net.core.netdev_max_backlog packets already waited for a processor; of all senders on "
            "the machine; sum since the machine was started",
        ),
        MetricField(
            "backlog_squeezes",
            "1",
            "times that a processor postponed waiting packets (net.core.netdev_budget); sum since the "
            "machine was started",
        ),
        MetricField("temperature_c", "°C", "temperature of the processors that are closest to their limit"),
        MetricField("temperature_max_c", "°C", "highest such temperature of this run until now"),
        MetricField("temperature_limit_c", "°C", "temperature from which those processors are slowed down"),
        MetricField("heat_looks", "1", "looks at the sensors; sum since the agent began"),
        MetricField(
            "hot_looks", "1", "looks that found a processor throttled or at its limit; sum since the agent began"
        ),
        MetricField(
            "low_voltage_looks",
            "1",
            "looks that found the supply voltage of a Raspberry Pi too low; sum since the agent began",
        ),
        in_virtual_time=_EVERY_FIVE_MINUTES,
    ),
    _measurement(
        "agent",
        "a machine's agent",
        SECOND_NS,
        (_MACHINE,),
        MetricField("cpu_ns", "ns", "CPU time since its start"),
        MetricField("memory_bytes", "bytes", "resident memory"),
        MetricField("jobs", "1", "programs that it runs now"),
        in_virtual_time=_EVERY_FIVE_MINUTES,
    ),
    _measurement(
        "clock",
        "a machine's clock: its state in the kernel (adjtimex(2)), and its offset from the clock of the run, measured "
        "over the agent's stream every ten seconds (in virtual time every five minutes)",
        SECOND_NS,
        (_MACHINE,),
        MetricField("synchronised", "1", "1: a program such as chrony disciplines the clock, else 0"),
        MetricField("estimated_error_ns", "ns", "by that program's estimate"),
        MetricField("maximum_error_ns", "ns", "estimated by that program; grows while there is no estimate"),
        MetricField("offset_ns", "ns", "this clock minus the run's"),
        MetricField("bound_ns", "ns", "largest error of the offset"),
        MetricField("rtt_ns", "ns", "round-trip time of the agent's stream, the shortest of eight"),
    ),
    _measurement(
        "switch_port",
        "a port of a switch, as counted by the switch (OpenFlow 1.3.5, 7.3.5.6)",
        SECOND_NS,
        (_SWITCH, ("port", "number of the port")),
        *_rx_tx_counters("the switch was started"),
        in_virtual_time=_EVERY_FIVE_MINUTES,
    ),
    _measurement(
        "flow_entries",
        "the flow entries of a switch that share a cookie: those of one segment of one app",
        SECOND_NS,
        (
            _SWITCH,
            ("app", "app that requested them: `delivery`, `latency`, `chain`, ..."),
            ("cookie", "16 hexadecimal digits"),
        ),
        MetricField("entries", "1", "number of entries"),
        MetricField("packets", "packets", "counted by them since each was installed"),
        MetricField("bytes", "bytes", "counted by them since each was installed"),
        in_virtual_time=_EVERY_FIVE_MINUTES,
    ),
    _measurement(
        "event",
        "an event of the run: a line of events.jsonl (except the figures of the test before the run) or a whistle",
        0,
        (
            ("kind", "type of the event: `step`, `change`, `swap`, `whistle`, `note`, `outcome`, ..."),
            ("state", "`begin`, `end` or `failed`, for events that have one"),
        ),
        MetricField("text", "text", "the event in one line"),
    ),
    _measurement(
        "metrics",
        "counts of the points themselves",
        SECOND_NS,
        (),
        MetricField("points", "1", "points of this run so far"),
        MetricField("left_out", "1", "fields left out so far: not a number, infinite, or beyond 64 bits"),
        MetricField("unread", "1", "times that the counters of a switch or machine could not be read"),
    ),
)
"""Every measurement but those that kinds of boxes declare."""

MEASUREMENT_BY_NAME = {measurement.name: measurement for measurement in MEASUREMENTS}


def schema_markdown(box_measurements: Iterable[Measurement]) -> str:
    """The tables of `atoll metrics names`; ``box_measurements``: those of kinds of boxes, which come last."""
    parts = ["| tag of every point | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in COMMON_TAGS.items())]
    for measurement in (*MEASUREMENTS, *box_measurements):
        period = f"every {measurement.every_ns / 1e6:g} ms" if measurement.every_ns else "when it happens"
        if measurement.in_virtual_time:
            period += f"; in virtual time {measurement.in_virtual_time}"
        sentences = f"{measurement.meaning[0].upper()}{measurement.meaning[1:]}. One point {period}."
        parts += ["", f"### {measurement.name}", fill(sentences, 100, break_on_hyphens=False), ""]
        parts += ["| | unit | |", "|---|---|---|"]
        parts += [f"| tag `{name}` | | {text} |" for name, text in measurement.tags]
        parts += [f"| `{field.name}` | {field.unit} | {field.meaning} |" for field in measurement.fields]
    return "\n".join(parts) + "\n"
