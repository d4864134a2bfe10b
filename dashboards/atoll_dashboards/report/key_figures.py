# SPDX-License-Identifier: Apache-2.0
"""The key figures of a run, in the order of a researcher's questions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from atoll_analysis.figures.clocks import START_SPREAD_MS
from atoll_analysis.figures.losses import CAUSES
from atoll_analysis.figures.transfers import TransferFigures, counted_downloads
from atoll_analysis.summary import LinkFigures, Summary, mean_rate_bit_s, of_direction, transfers_of
from atoll_analysis.tables.box_counters import LostFigures
from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction
from atoll_analysis.verdict.verdict import losses_agree
from atoll_core.experiment.experiment import ONLY_TRANSFER
from atoll_core.plural import counted, significant
from atoll_core.units import Rate, Size
from atoll_dashboards.report.number_format import NOT_MEASURED, count, figure, octets, percent, rate

_PACKET_BEING_SENT = "; plus the packet being sent"  # it has left the queue


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One figure with its name and its reference value."""

    name: str
    text: str
    remark: str = ""


def key_figures(summary: Summary) -> tuple[KeyFigure, ...]:
    """The key figures of a run. Those that were not measured are left out, except goodput, loss, transfer and UDP."""
    link = summary["links"].get(summary["bottleneck"] or "")
    name_text = f" ({summary['bottleneck']})" if len(summary["links"]) > 1 else ""
    rate_text = f"of {_rate(link)}{name_text}" if link else ""
    transfers = [_transfer(name, transfer) for name, transfer in transfers_of(summary).items()]
    figures = (
        *_regime(summary),
        KeyFigure("goodput", rate(summary["goodput_mbit_s"]), _goodput(summary)),
        KeyFigure("throughput", rate(summary["throughput_mbit_s"]), "IP bytes reaching the island"),
        KeyFigure("utilisation", percent(summary["utilisation"]), rate_text),
        KeyFigure("loss to the island", percent(summary["loss_fraction"], 2), _losses(summary)),
        *_causes("lost to the island", link.get("losses") if link else None),
        *_bursts(summary),
        *_behind_coders(summary),
        *_low_priority(summary),
        *_causes("lost to the world", link.get("losses_to_world") if link else None),
        *_to_world(summary),
        KeyFigure(
            "queue at most",
            octets(summary["queue_max_bytes"]),
            f"of {Size(link['queue_bytes'])}{name_text}" if link else "",
        ),
        *_queue_sojourn(link),
        *_standing_queue(summary),
        *_ping_sojourn(summary),
        KeyFigure("largest ping sojourn", figure(summary["sojourn_max_ms"], "ms", 1), _bound(summary)),
        KeyFigure(
            "base RTT",
            figure(summary["base_rtt_ms"], "ms", 1),
            f"{count(summary['ping_lost'])} of {count(summary['ping_sent'])} pings lost"
            if summary["ping_sent"]
            else "",
        ),
        KeyFigure("queue full", figure(summary["queue_full_s"], "s", 1), "there was no room for a full-size packet"),
        KeyFigure("link idle", figure(summary["idle_s"], "s", 1), "nothing to send"),
        *_flows(summary),
        *_groups(summary),
        *transfers,
        *_changes(summary),
        KeyFigure("UDP received", *_udp(summary)),
        KeyFigure("clients began", *_start(summary)),
        KeyFigure("fairness", *_fairness(summary)),
        *_flow_shares(summary),
        KeyFigure(
            "lateness at most",
            figure(summary["lateness_max_ms"], "ms"),
            f"p99 {figure(summary['lateness_p99_ms'], 'ms')}{_stalls(summary)}",
        ),
    )
    required = {
        "goodput": True,
        "loss to the island": bool(summary["links"]),
        **dict.fromkeys((row.name for row in transfers), True),
        "UDP received": summary.get("udp"),
    }
    return tuple(row for row in figures if row.text != NOT_MEASURED or required.get(row.name))


def _to_world(summary: Summary) -> Iterator[KeyFigure]:
    """The figures of the other direction; none without uploads."""
    if (figures := summary.get("to_world")) is None:
        return
    link = figures["links"].get(figures["bottleneck"] or "")
    if regime := figures["regime"]:
        yield KeyFigure("regime to the world", regime["regime"] or "not known", regime["because"])
    yield KeyFigure("goodput to the world", rate(figures["goodput_mbit_s"]), "new TCP payload reaching the world")
    yield KeyFigure("throughput to the world", rate(figures["throughput_mbit_s"]), "IP bytes reaching the world")
    rate_text = f"of {_rate(link)}" if link else ""
    yield KeyFigure("utilisation to the world", percent(figures["utilisation"]), rate_text)
    remark = _losses(summary, TO_WORLD)
    yield KeyFigure("loss to the world", percent(figures["loss_fraction"], 2), remark)
    queue_text = f"of {Size(link['queue_bytes'])}" if link else ""
    yield KeyFigure("queue at most to the world", octets(figures["queue_max_bytes"]), queue_text)
    yield from _queue_sojourn(link, " to the world")
    if queue := figures["standing_queue"]:
        yield KeyFigure("standing queue to the world", percent(queue["share"]), "of the time")


def _queue_sojourn(link: LinkFigures | None, direction: str = "") -> Iterator[KeyFigure]:
    """Of all packets of the link, where the backend measures it; its bins are 1/16 wide."""
    sojourn = link.get("sojourn") if link else None  # absent from older summaries
    if sojourn is None:
        return
    p50, p95, p99 = (significant(sojourn[percentile], 2) for percentile in ("p50_ms", "p95_ms", "p99_ms"))
    mean = "" if sojourn["mean_ms"] is None else f"mean {figure(sojourn['mean_ms'], '', 1)}, "
    remark = f"maximum over all packets; {mean}p50 {p50}, p95 {p95}, p99 {p99} ms (percentiles within 6 %)"
    yield KeyFigure(f"queue sojourn{direction}", figure(sojourn["max_ms"], "ms", 1), remark)


_REGIMES = {  # docs/regimes.md
    "pre-oscillation": "flows leave room on the link: ",
    "oscillation": "the queue fills and empties in turn: ",
    "congestion": "flows want more than the link has: ",
}


def _regime(summary: Summary) -> Iterator[KeyFigure]:
    """None without a link, or if an older version analysed the run."""
    if regime := summary.get("regime"):
        meaning = _REGIMES.get(regime["regime"] or "", "")
        yield KeyFigure("regime", regime["regime"] or "not known", meaning + regime["because"])


def _standing_queue(summary: Summary) -> Iterator[KeyFigure]:
    if queue := summary.get("standing_queue"):
        mean = f"; its mean then is {octets(queue['mean_bytes'])}, {figure(queue['mean_ms'], 'ms', 1)}"
        least, window = octets(queue["least_bytes"]), figure(queue["window_s"], "s", 1)
        remark = f"of the time (bytes above {least} that stay {window}){mean if queue['share'] else ''}"
        yield KeyFigure("standing queue", percent(queue["share"]), remark)


def _ping_sojourn(summary: Summary) -> Iterator[KeyFigure]:
    if sojourn := summary.get("ping_sojourn"):
        mean, p95, p99 = (figure(sojourn[column], "", 1) for column in ("mean_ms", "p95_ms", "p99_ms"))
        yield KeyFigure("ping sojourn p50", figure(sojourn["p50_ms"], "ms", 1), f"mean {mean}, p95 {p95}, p99 {p99}")


def _bursts(summary: Summary) -> Iterator[KeyFigure]:
    """None if nothing was lost, or no captures show it."""
    losses = summary.get("loss_bursts", {}).get(summary["bottleneck"] or "")
    if losses and losses["lost"]:
        remark = (
            f"of {counted(losses['lost'], 'packet')}; {figure(losses['mean'], '', 1)} in a row on average, at most "
        )
        yield KeyFigure("lost in bursts", percent(losses["burst_share"]), f"{remark}{count(losses['longest'])}")


def _behind_coders(summary: Summary) -> Iterator[KeyFigure]:
    """Packets that stayed lost, of each chain with coders; none where no capture shows it."""
    for chain, bursts in summary.get("residual_bursts", {}).items():
        name_text = f", chain {chain}" if summary["chains"] else ""
        share = percent(bursts["lost"] / bursts["packets"] if bursts["packets"] else None, 3)
        runs_text = f"; {figure(bursts['mean'], '', 1)} in a row on average, at most {count(bursts['longest'])}"
        remark = f"of {counted(bursts['packets'], 'packet')} at the taps outside the coders"
        remark += runs_text if bursts["lost"] else ""
        yield KeyFigure(f"lost behind coders{name_text}", f"{count(bursts['lost'])}, {share}", remark)


def _low_priority(summary: Summary) -> Iterator[KeyFigure]:
    """The packets marked LE of each link that has a queue for them."""
    for link, figures in summary.get("low_priority", {}).items():  # absent from older summaries
        name_text = f", {link}" if len(summary["links"]) > 1 else ""
        wait_text = f"; waited {figure(figures['sojourn']['p95_ms'], 'ms', 1)} (p95)" if figures["sojourn"] else ""
        remark = f"sent of {count(figures['in_packets'])}; queue at most {octets(figures['queue_max_bytes'])} of "
        remark += f"{Size(figures['queue_bytes'])}{wait_text}"
        yield KeyFigure(f"low-priority packets{name_text}", count(figures["sent_packets"]), remark)


def _causes(name: str, losses: Mapping[str, LostFigures] | None) -> Iterator[KeyFigure]:
    """Packets that the link lost in one direction, by cause, if it lost any and the backend distinguishes causes.

    ``losses`` None: an older version analysed the run.
    """
    lost = {CAUSES[cause]: figures["packets"] for cause, figures in (losses or {}).items()}
    if any(lost.values()):
        by_cause = ", ".join(f"{cause} {count(packets)}" for cause, packets in lost.items() if packets)
        yield KeyFigure(name, count(sum(lost.values())), by_cause)


def _flows(summary: Summary) -> Iterator[KeyFigure]:
    """None without channels."""
    if not summary["channels"]:
        return
    completed = summary["flows_completed"]
    mean = f"; mean {octets(summary['mean_flow_bytes'])}" if completed else ""
    to_island = "" if "to_world" in summary else "to the island, "
    yield KeyFigure("flows completed", count(completed), f"{to_island}one each connection{mean}")
    window, concurrency = summary.get("initial_window"), summary.get("concurrency")  # absent from older summaries
    if window and window["flows_share"] is not None:
        remark = f"of them, {percent(window['bytes_share'])} of their bytes: at most {octets(window['bytes'])}"
        yield KeyFigure("in the initial window", percent(window["flows_share"]), remark)
    yield from _flow_packets(summary)
    if concurrency:
        most = summary["concurrent_flows_max"]
        growth = "; they grow steadily" if concurrency["grows"] else ""
        remark = f"on average, p95 {figure(concurrency['p95'], '', 1)}, at most {count(most)}{growth}"
        yield KeyFigure("open flows", figure(concurrency["mean"], "", 1), remark)


def _groups(summary: Summary) -> Iterator[KeyFigure]:
    """The goodput of each group of clients."""
    for name, group in (summary.get("groups") or {}).items():
        flows = f"{counted(group['flows_completed'], 'flow')} completed"
        mean = f", mean {octets(group['mean_flow_bytes'])}" if group["flows_completed"] else ""
        remark = f"goodput of {', '.join(group['clients'])}: {counted(group['channels'], 'channel')}, {flows}{mean}"
        yield KeyFigure(f"group {name}", rate(group["goodput_mbit_s"]), remark)


def _flow_packets(summary: Summary) -> Iterator[KeyFigure]:
    """Packets and rates of flows; of those up to 40 MB only if others were larger."""
    packets = summary.get("flow_packets", {})
    for name, figures in packets.items():
        if name != "all" and figures["flows"] == packets["all"]["flows"]:
            continue
        scope = "" if name == "all" else f", flows {name}"
        gap_text = f"; {figure(figures['gap_p50_ms'], 'ms', 1)} between two of them"
        yield KeyFigure(
            f"packets of a flow{scope}",
            figure(figures["packets_p50"], "", 1),
            f"median, p95 {figure(figures['packets_p95'], '', 1)}{gap_text}",
        )
        below = (figures["bytes_below_4_mbit_s_share"], figures["bytes_below_8_mbit_s_share"])
        yield KeyFigure(
            f"bytes below 4 Mbit/s{scope}",
            percent(below[0]),
            f"in flows of this rate; below 8 Mbit/s {percent(below[1])}; peak of a flow over 1 s "
            f"{rate(figures['peak_mbit_s'])}",
        )


def _changes(summary: Summary) -> Iterator[KeyFigure]:
    """The number of scheduled changes that were made, if there were any, and the slowest beyond its drain."""
    if summary["changes"]:
        done = [change["beyond_drain_ms"] for change in summary["changes"] if change["beyond_drain_ms"] is not None]
        slowest = f"at most {figure(max(done) / 1e3, 's')} beyond the drain" if done else ""
        yield KeyFigure("changes made", f"{len(done)} of {len(summary['changes'])}", slowest)


def _start(summary: Summary) -> tuple[str, str]:
    start = summary.get("start")  # absent from older summaries
    if start is None:
        return NOT_MEASURED, ""
    bound_ms = start["clock_bound_ms"]
    clocks = "" if bound_ms is None else f", clocks known to ± {figure(bound_ms, 'ms')}"
    lateness = f"p50 {figure(start['late_p50_ms'], 'ms')}, at most {figure(start['late_max_ms'], 'ms')} late"
    return figure(start["spread_ms"], "ms"), f"apart, bound {START_SPREAD_MS:g} ms; {lateness}{clocks}"


def _stalls(summary: Summary) -> str:
    stalls = summary.get("stalls")  # absent from older summaries
    return f"; {counted(stalls, 'stall')}, {figure((summary['stalled_s'] or 0.0) * 1e3, 'ms')} in all" if stalls else ""


def _rate(link: LinkFigures) -> str:
    mean_bit_s = mean_rate_bit_s(link)
    return str(Rate(mean_bit_s)) if mean_bit_s == link["rate_bit_s"] else f"{rate(mean_bit_s / 1e6)} in the mean"


def _goodput(summary: Summary) -> str:
    if summary["goodput_mbit_s"] is not None:
        return "new TCP payload reaching the island"
    return "no capture shows it" if summary["arrival"] is None else "the measurement did not begin or end"


def _losses(summary: Summary, direction: Direction = TO_ISLAND) -> str:
    figures = of_direction(summary, direction)
    link_bytes, captures_bytes = figures["loss_bytes_link"], figures["loss_bytes_captures"]
    if figures["loss_fraction"] is None:
        return (
            "the link reported no counts for the whole measurement"
            if link_bytes is None
            else "no packet came to the link"
        )
    if link_bytes is None or summary["duration_s"] is None:
        return ""
    if losses_agree(summary, direction):
        return f"{octets(link_bytes)}; captures agree"
    if captures_bytes is None:
        return f"{octets(link_bytes)} by the link's count"
    if captures_bytes < 0:
        end = "island" if direction is TO_ISLAND else "world"
        return f"{octets(link_bytes)}; captures show {octets(-captures_bytes)} more at the {end}"
    return f"{octets(link_bytes)}; captures say {octets(captures_bytes)}"


def _bound(summary: Summary) -> str:
    bound = summary["sojourn_bound_ms"]
    if bound is None:
        return ""
    to_island, to_world = summary.get("sojourn_bound_to_island_ms"), summary.get("sojourn_bound_to_world_ms")
    if to_island is None or to_world is None:  # an older summary, of the queues to the island only
        return f"full queue (8 x bytes / rate) {figure(bound, 'ms', 1)}{_PACKET_BEING_SENT}"
    bounds_text = f"{figure(to_island, '', 1)} to the island + {figure(to_world, '', 1)} back"
    return f"full queues (8 x bytes / rate) {bounds_text}{_PACKET_BEING_SENT}"


def _udp(summary: Summary) -> tuple[str, str]:
    udp = summary.get("udp")  # absent from older summaries
    if udp is None:
        return NOT_MEASURED, ""
    if udp["received_mbit_s"] is None:
        return NOT_MEASURED, "not every receiver reported what it received"
    lost, jitter = percent(udp["loss_fraction"], 2), figure(udp["jitter_ms"], "ms")
    reordered = count(udp["reordered_packets"])
    remark = f"of {rate(udp['sent_mbit_s'])}; {lost} lost, jitter {jitter}, {reordered} out of order"
    shares = [volume["share"] for volume in udp.get("clients", {}).values() if volume["share"] is not None]
    losses = [v["loss_fraction"] for v in udp.get("clients", {}).values() if v["loss_fraction"] is not None]
    if shares:
        remark += f"; by client {percent(min(shares))} to {percent(max(shares))} of it"
    if losses:
        remark += f", {percent(min(losses), 2)} to {percent(max(losses), 2)} lost within flows"
    return rate(udp["received_mbit_s"]), remark


def _transfer(name: str, transfer: TransferFigures) -> KeyFigure:
    label = name if name == ONLY_TRANSFER else f"transfer {name}"
    return KeyFigure(label, figure(transfer["seconds"], "s"), "; ".join(_transfer_remarks(name, transfer)))


def _transfer_remarks(name: str, transfer: TransferFigures) -> Iterator[str]:
    size, received, downloads = Size(transfer["bytes"]), transfer["received_bytes"], transfer["downloads"]
    if len(downloads) > 1:
        completed = [download["complete"] for download in counted_downloads(downloads)]
        yield f"median of {counted(len(completed), 'transfer')} of {size}, {sum(completed)} complete"
        if transfer["mbit_s"]:
            yield figure(transfer["mbit_s"], "Mbit/s")
        if transfer["skipped"]:
            yield f"{counted(transfer['skipped'], 'start')} left out"
    elif transfer["complete"]:
        yield f"{size}, {figure(transfer['mbit_s'], 'Mbit/s')}"
    else:
        yield f"not finished: {octets(received)} of {size}" if received is not None else f"of {size}: no result"
    if name != ONLY_TRANSFER:
        yield f"{transfer['sender']} to {transfer['receiver']}, chain {', then '.join(transfer['chains'])}"


def _fairness(summary: Summary) -> tuple[str, str]:
    """Runs that were analysed before waits were measured have an index that could only be 1."""
    wait_ms = summary.get("longest_wait_ms")
    if wait_ms is None:
        return NOT_MEASURED, ""
    index = "Jain's fairness index of the completed share of each channel's requested bytes"
    remark = f"{index}; a ready channel waited at most {figure(wait_ms, 'ms')}"
    return figure(summary["fairness"], "", 3), remark


def _flow_shares(summary: Summary) -> Iterator[KeyFigure]:
    """Deviation of the flows of servers and of clients from equal shares; none without flows, or of older summaries."""
    for role, test in (summary.get("flow_shares") or {}).items():
        deviations = test["deviations"].values()
        remark = (
            f"largest deviation from an equal share of {counted(test['flows'], 'flow')}; p = {test['p']:.2g}; "
            f"the least that this run finds is {percent(test['least_found'])}"
        )
        yield KeyFigure(f"flows by {role.removesuffix('s')}", percent(max(map(abs, deviations))), remark)
