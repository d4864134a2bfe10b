# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboards, one function each; ``make dashboards`` writes their files."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

from grafana_foundation_sdk.builders.timeseries import Panel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from atoll_core.lab.box_kind import BoxKind
from atoll_dashboards.grafana.grafana_client import FOLDER
from atoll_dashboards.grafana.grafana_widgets import (
    WIDTH,
    dashboard_page,
    event_table,
    figure_panel,
    plot,
    setting_panel,
    variable,
)
from atoll_dashboards.grafana.influxql import Series, tag_values

_BITS = 8  # of a byte
_fine_plot = functools.partial(plot, interval="100ms")
_fine_figure = functools.partial(figure_panel, interval="100ms")
_TO_ISLAND = {"direction": "to_island"}
_NOT_FROM_0 = "not from 0"
_CAUSES = {
    "queue": "queue full",
    "low_priority": "low-priority queue full",
    "loss": "loss model",
    "aqm": "AQM",
    "blocked": "blocked",
    "unsent": "overload",
}


def overview() -> Dashboard:
    """A run at a glance."""
    link, to_island = Series("link", ("box", "direction")), Series("link", ("box",), _TO_ISLAND)
    config = Series("link_config", ("box",), _TO_ISLAND)
    load, transfer = Series("load"), Series("transfer", ("transfer",))
    ping = Series("ping", ("target",), label="to $tag_target")
    return dashboard_page(
        "atoll-overview",
        "atoll: Overview",
        "Overview of a run: the link, the service that the island gets, and the events.",
        [
            _fine_figure(
                "Link, island-bound", "bps", to_island.rate("out_bytes", _BITS), text="IP bytes that passed the link"
            ),
            _fine_figure("Queue, most", "bytes", to_island.level("queue_max_bytes", "max"), text="island-bound"),
            _fine_figure("Drops", "pps", to_island.rate("dropped_packets"), text="all causes, to the island"),
            figure_panel(
                "Goodput",
                "bps",
                load.total_rate("received_bytes", _BITS),
                text="TCP payload of all channels to the island",
            ),
            figure_panel("Flows open", "none", load.total("active"), text="of all channels"),
            _fine_figure("Ping", "ns", ping.level("rtt_ns"), text="round-trip time, queue included"),
            _fine_plot(
                "Link rate",
                "bps",
                link.rate("out_bytes", _BITS),
                config.level("rate_bit_s", "last", legend="configured"),
                text="IP bytes that pass the link, and its configured rate",
            ),
            _fine_plot(
                "Queue",
                "bytes",
                to_island.level("queue_max_bytes", "max", legend="most"),
                config.level("queue_bytes", "last", legend="capacity"),
                text="largest queue of the link to the island",
            ),
            plot(
                "Goodput",
                "bps",
                load.total_rate("received_bytes", _BITS, legend="channels"),
                transfer.total_rate("received_bytes", _BITS),
                load.total_rate("sent_bytes", _BITS, legend="channels, uploads"),
                transfer.total_rate("sent_bytes", _BITS, legend="upload"),
                text="TCP payload that island clients have received, and that uploads have sent",
                stacked=True,
            ),
            _fine_plot(
                "Ping",
                "ns",
                ping.level("rtt_ns", "max"),
                text="round-trip time through the queue: base + 8 queue / rate; the axis does not begin at 0",
                axis=_NOT_FROM_0,
            ),
            event_table("Events", "steps, changes, swaps, whistles and notes, latest first"),
        ],
    )


def satellite_link() -> Dashboard:
    """The link in detail."""
    where = {"box": "$box"}
    link = Series("link", ("box", "direction"), where)
    config = Series("link_config", ("box", "direction"), where)
    return dashboard_page(
        "atoll-link",
        "atoll: Satellite link",
        "A satellite link, both directions: rate, queue, drops by cause, lateness of the emulator.",
        [
            _fine_plot(
                "Rate",
                "bps",
                link.rate("out_bytes", _BITS, legend="passed"),
                config.level("rate_bit_s", "last", legend="configured"),
                text="IP bytes per second that passed the link (lost packets excluded), and the configured rate",
            ),
            _fine_plot(
                "Offered",
                "bps",
                link.rate("in_bytes", _BITS),
                text="packets that arrive at the link, including those it drops",
            ),
            _fine_plot(
                "Queue",
                "bytes",
                link.level("queue_max_bytes", "max", legend="most"),
                link.level("queue_bytes"),
                config.level("queue_bytes", "last", legend="capacity"),
                text="bytes in the queue now, and the largest queue of each interval",
            ),
            _fine_plot(
                "Packets",
                "pps",
                link.rate("in_packets", legend="arrived"),
                link.rate("out_packets", legend="sent"),
                text="arrived and sent on",
            ),
            *(_drops_by_cause(direction, to) for direction, to in (("to_island", "island"), ("to_world", "world"))),
            _fine_plot(
                "Low-priority queue",
                "bytes",
                link.level("low_priority_queue_max_bytes", "max", legend="most"),
                link.level("low_priority_queue_bytes"),
                text="of packets marked LE, if there is such a queue: bytes now, and the largest of each interval",
            ),
            _fine_plot(
                "Low-priority packets",
                "pps",
                link.rate("low_priority_in_packets", legend="arrived"),
                link.rate("low_priority_sent_packets", legend="sent"),
                text="packets marked LE (RFC 8622): arrived for their queue, and sent from it",
            ),
            _fine_plot(
                "Under way",
                "none",
                link.level("held_packets"),
                text="packets within the link: waiting, being serialised, propagating",
            ),
            _fine_plot(
                "Idle",
                "percentunit",
                link.rate("idle_ns", 1e-9),
                text="share of time in which the transmitter had nothing to send (link engine only)",
            ),
            _fine_plot(
                "Lateness",
                "ns",
                link.level("lateness_max_ns", "max"),
                text="largest lateness of a departure; more than 5 ms is a stall",
                span=WIDTH,
            ),
        ],
        [variable("box", "Link", tag_values("link", "box", run="$run"))],
    )


def _drops_by_cause(direction: str, end: str) -> Panel:
    """Of the chosen links in one direction, which is ``end`` somewhere."""
    link = Series("link", ("box",), {"box": "$box", "direction": direction}, label="$tag_box:")
    return _fine_plot(
        f"Drops by cause, to the {end}",
        "pps",
        *(link.rate(f"dropped_{name}_packets", legend=cause) for name, cause in _CAUSES.items()),
        text="full queues, loss model, AQM, blockage; overload: the emulator's interface did not accept the packet",
    )


def world_latencies() -> Dashboard:
    """The world servers' latencies and the delay boxes' classes."""
    classes = Series("delay_class", ("class",))
    ping = Series("ping", ("target",))
    return dashboard_page(
        "atoll-latencies",
        "atoll: World latencies",
        "Terrestrial latency of each world server, configured and measured. Traffic and packets in flight of each "
        "latency class. Lateness of the delay boxes.",
        [
            setting_panel(
                "Terrestrial RTT by world server",
                "ns",
                Series("latency_config", ("host",)).level("rtt_ns", "last"),
                Series("latency_check", ("host",)).level("measured_ns", "last", legend="measured"),
                text=(
                    "terrestrial round-trip time. Lines: configured (a step is a change of the latency). Dots: "
                    "measured by the test before the run"
                ),
                interval="100ms",
                no_data="no data: the run is older than this measurement, or the time range does not include the run",
            ),
            plot("Into classes", "bps", classes.rate("in_bytes", _BITS), text="both directions"),
            plot("Out of classes", "bps", classes.rate("out_bytes", _BITS), text="both directions"),
            plot("Packets", "pps", classes.rate("out_packets"), text="sent on, both directions"),
            plot("Held", "none", classes.level("held_packets"), text="packets being delayed"),
            plot(
                "Lateness",
                "ns",
                classes.level("lateness_max_ns", "max"),
                text="largest lateness of a departure (link engine only)",
            ),
            plot(
                "Of no class",
                "pps",
                Series("delay_box", ("box",)).rate("unknown_vlan_packets"),
                text=(
                    "frames without the VLAN tag of a class, which the delay box discards; a lab without faults has "
                    "none"
                ),
            ),
            plot(
                "Ping",
                "ns",
                ping.level("rtt_ns", "min")._replace(legend="least, to $tag_target"),
                ping.level("rtt_ns", "max")._replace(legend="most, to $tag_target"),
                text=(
                    "round-trip time of the ping series, which has no terrestrial latency; the axis does not begin at 0"
                ),
                span=WIDTH,
                axis=_NOT_FROM_0,
            ),
        ],
    )


def hosts_and_load() -> Dashboard:
    """Bytes that servers send and clients receive, and counters of interfaces."""
    where = {"host": "$host"}
    load, server = Series("load", ("host",), where), Series("server", ("host",), where)
    interface = Series("interface", ("host", "interface"), where)
    tcp, udp = (Series(name, ("host",), where) for name in ("tcp", "udp"))
    job = Series("job", ("job",), where)
    machine, agent, clock = (Series(name, ("machine",)) for name in ("machine", "agent", "clock"))
    return dashboard_page(
        "atoll-hosts",
        "atoll: Hosts & load",
        "World servers, island clients and boxes: flows, bytes, interfaces, captures; TCP, CPU, memory and clocks of "
        "their machines.",
        [
            plot("Flows open", "none", load.level("active"), text="by client", stacked=True),
            plot("Flows completed", "ops", load.rate("flows_completed"), text="in a second, by client"),
            plot("Received", "bps", load.rate("received_bytes", _BITS), text="TCP payload by client", stacked=True),
            plot("Flows failed", "ops", load.rate("flows_failed"), text="in a second, by client"),
            plot(
                "Given to TCP",
                "bps",
                server.rate("sent_bytes", _BITS),
                text="by server; bytes in socket buffers, not yet sent, are included",
            ),
            plot("Connections", "none", server.level("active"), text="open, by server", stacked=True),
            plot(
                "Interfaces, received",
                "bps",
                interface.rate("rx_bytes", _BITS),
                text="Ethernet bytes, as the kernel counts",
            ),
            plot(
                "Interfaces, sent",
                "bps",
                interface.rate("tx_bytes", _BITS),
                text="Ethernet bytes, as the kernel counts",
            ),
            plot(
                "Interfaces, lost",
                "pps",
                interface.rate("rx_dropped", legend="in"),
                interface.rate("tx_dropped", legend="out"),
                interface.rate("rx_errors", legend="in, errors"),
                interface.rate("tx_errors", legend="out, errors"),
                text="a lab without faults has none: only the link drops packets",
            ),
            plot(
                "Packets that wait for a processor",
                "pps",
                machine.rate("backlog_dropped_packets", legend="dropped"),
                machine.rate("backlog_squeezes", legend="postponed (times)"),
                text=(
                    "dropped because net.core.netdev_max_backlog was reached; no link counts these drops; a lab "
                    "without faults has none"
                ),
            ),
            plot(
                "Sockets, lost",
                "pps",
                tcp.rate("listen_drops", legend="connections not accepted"),
                tcp.rate("backlog_dropped", legend="TCP, backlog"),
                tcp.rate("receive_queue_dropped", legend="TCP, receive queue"),
                udp.rate("receive_buffer_errors", legend="UDP, receive buffer"),
                text="connections and packets for which a program's socket had no room; a lab without faults has none",
            ),
            plot(
                "Captures",
                "pps",
                Series("capture", ("point",)).rate("captured_packets"),
                Series("capture", ("point",)).rate("dropped_packets", legend="lost"),
                text="packets captured, and packets missing because the kernel's ring was full",
            ),
            plot(
                "TCP, retransmitted",
                "ops",
                tcp.rate("retransmitted_segments"),
                tcp.rate("timeouts", legend="time-outs"),
                text="retransmitted segments per second, and retransmission time-outs",
            ),
            plot("TCP, segments", "ops", tcp.rate("out_segments"), text="sent in a second"),
            plot("TCP, connections", "none", tcp.level("established"), text="established", stacked=True),
            plot(
                "Machines, busy",
                "percentunit",
                machine.level("busy"),
                machine.rate("steal_ns", 1e-9, legend="stolen, CPUs"),
                text=(
                    "share of the time of all CPUs; stolen: CPUs that the hypervisor gave to other machines, 0 is best"
                ),
            ),
            plot(
                "Machines, memory",
                "bytes",
                machine.level("memory_available_bytes", "min", legend="available"),
                machine.level("memory_bytes", "max"),
                text="installed memory, and memory available to programs",
            ),
            plot(
                "Machines, load",
                "none",
                machine.level("load_1m"),
                machine.level("cpus", "max", legend="CPUs"),
                text="load average of the last minute, and the number of CPUs",
            ),
            plot("Programs, CPU", "percentunit", job.rate("cpu_ns", 1e-9), text="1: a CPU of its own"),
            plot("Programs, memory", "bytes", job.level("memory_bytes", "max"), text="resident"),
            plot(
                "Agents",
                "percentunit",
                agent.rate("cpu_ns", 1e-9),
                text="CPU time of atoll's own processes; 1: one CPU fully used",
            ),
            plot(
                "Clocks",
                "ns",
                clock.level("offset_ns", legend="less this machine"),
                clock.level("bound_ns")._replace(legend="$tag_machine, known to"),
                text="offset of each machine's clock from the run's clock, measured over the agent's connection",
                axis="offset",
            ),
        ],
        [variable("host", "Host", tag_values("interface", "host", run="$run"))],
    )


def switches_and_flows() -> Dashboard:
    """Counters of the switches."""
    where = {"switch": "$switch"}
    port = Series("switch_port", ("switch", "port"), where, label="$tag_switch/$tag_port")
    entries = Series("flow_entries", ("switch", "app"), where)
    return dashboard_page(
        "atoll-switches",
        "atoll: Switches & flows",
        "Ports and flow entries, as the switches count them.",
        [
            plot("Ports, received", "bps", port.rate("rx_bytes", _BITS), text="Ethernet bytes"),
            plot("Ports, sent", "bps", port.rate("tx_bytes", _BITS), text="Ethernet bytes"),
            plot(
                "Ports, lost",
                "pps",
                port.rate("rx_dropped", legend="in"),
                port.rate("tx_dropped", legend="out"),
                port.rate("rx_errors", legend="in, errors"),
                port.rate("tx_errors", legend="out, errors"),
                text="none in a sound lab",
            ),
            plot(
                "Flow entries",
                "none",
                entries.total("entries"),
                text="number of entries on each switch, by the app that requested them",
            ),
            plot(
                "Packets by entries",
                "pps",
                entries.total_rate("packets"),
                text="packets counted by the entries of each app",
            ),
            plot(
                "Bytes by entries",
                "bps",
                entries.total_rate("bytes", _BITS),
                text="bytes counted by the entries of each app",
            ),
            plot(
                "Counters that could not be read",
                "none",
                Series("metrics").level("unread", "last", legend="so far"),
                text="causes: the controller restarts, or a switch or a machine does not answer",
                span=WIDTH,
            ),
        ],
        [variable("switch", "Switch", tag_values("switch_port", "switch", run="$run"))],
    )


def run_comparison() -> Dashboard:
    """Runs side by side."""
    link = Series("link", ("run", "box"), _TO_ISLAND)
    load = Series("load", ("run",))
    return dashboard_page(
        "atoll-comparison",
        "atoll: Run comparison",
        "Runs side by side, from the start of their measurements. `atoll metrics load --times aligned RUN...` aligns "
        "them; runs in virtual time are always aligned.",
        [
            plot("Link rate", "bps", link.rate("out_bytes", _BITS), text="island-bound"),
            plot("Queue", "bytes", link.level("queue_max_bytes", "max"), text="largest queue, to the island"),
            plot("Drops", "pps", link.rate("dropped_packets"), text="to the island, all causes"),
            plot(
                "Ping",
                "ns",
                Series("ping", ("run",)).level("rtt_ns"),
                text="round-trip time, mean; the axis does not begin at 0",
                axis=_NOT_FROM_0,
            ),
            plot(
                "Goodput",
                "bps",
                load.total_rate("received_bytes", _BITS),
                text="TCP payload of all channels to the island",
            ),
            plot("Flows open", "none", load.total("active"), text="of all channels"),
        ],
        runs=True,
        begin="2026-01-01T00:00:00.000Z",
        end="2026-01-01T00:10:00.000Z",
    )


DASHBOARDS: tuple[Callable[[], Dashboard], ...] = (
    overview,
    satellite_link,
    world_latencies,
    hosts_and_load,
    switches_and_flows,
    run_comparison,
)


_UNITS = {"bytes": "bytes", "ns": "ns"}  # Grafana's units; other fields are plain numbers
_RATES = {"bytes": ("bps", _BITS), "packets": ("pps", 1), "ns": ("percentunit", 1e-9)}  # of sums, with the factor


def boxes_of_kind(kind: BoxKind) -> Dashboard:
    """The figures of boxes of a kind, a panel for each."""
    of_box = Series(kind.name, ("box",), {"box": "$box"})
    panels = [
        *(
            _fine_plot(figure.name, unit, of_box.rate(figure.name, factor), text=figure.meaning)
            for figure in kind.counters
            for unit, factor in [_RATES.get(figure.unit, ("ops", 1))]
        ),
        *(
            _fine_plot(level.name, _UNITS.get(level.unit, "none"), of_box.level(level.name), text=level.meaning)
            for level in kind.levels
        ),
    ]
    return dashboard_page(
        f"atoll-{kind.name}",
        f"atoll: {kind.name}",
        f"Counters of boxes of kind {kind.name} per second, and their other figures.",
        panels,
        [variable("box", "Box", tag_values(kind.name, "box", run="$run"))],
    )


def files() -> dict[str, str]:
    """The text of each dashboard, by the name of its file; kinds of boxes with figures have one each."""
    dashboards = {page.__name__.replace("_", "-") + ".json": page() for page in DASHBOARDS}
    dashboards |= {f"{kind.name}.json": boxes_of_kind(kind) for kind in BoxKind.registered.values() if kind.measurement}
    return {
        name: json.dumps(dashboard, cls=JSONEncoder, indent=1, sort_keys=True) + "\n"
        for name, dashboard in dashboards.items()
    }


def write(folder: Path) -> None:
    """Write them all."""
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(FOLDER)
