# SPDX-License-Identifier: Apache-2.0
"""Judge a run from its summary alone, so that the judgement can be repeated."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from atoll_analysis.figures.clocks import judge_clocks, judge_start
from atoll_analysis.figures.udp import judge_udp
from atoll_analysis.summary import Capture, LinkFigures, Summary, bounds, least_rate_bit_s, of_direction
from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction
from atoll_analysis.verdict.completeness import judge_completeness
from atoll_analysis.verdict.duplicate_addresses import judge_duplicates
from atoll_analysis.verdict.findings import Finding, FindingCode, caveat, reason
from atoll_analysis.verdict.flow_shares import judge_shares
from atoll_analysis.verdict.host_heat import judge_heat
from atoll_analysis.verdict.loss_agreement import compared_links, count_differs, disagreements, judge_unproven
from atoll_analysis.verdict.lost_outside import judge_lost_outside, likely_causes
from atoll_core.plural import counted

CHANGE_LATENESS_MS = 250.0
"""A change that late makes runs of one experiment differ by more than their traffic does."""
WHISTLE_LOSS_SHARE = 1e-3
"""With less loss, chance drops the start whistle in less than one run of a thousand: the path was wrong."""

_PREFIXES = {TO_ISLAND: "", TO_WORLD: "to the world, "}
"""Of findings, by direction."""

# A window is short of its plan by start-up jitter only, not by a client that was stopped.
_LEAST_MEASURED_SHARE = 0.99


def judge(summary: Summary) -> list[Finding]:
    """Return a finding for every figure beyond its bound; none: the run is valid."""
    losses = _in_each_direction(lambda direction: _losses(summary, direction))
    return [
        *(reason(FindingCode.FILE_DAMAGED, text) for text in summary.get("damaged_files", ())),
        *_cut_short(summary),
        *_latency(summary),
        *_lateness(summary),
        *_boxes(summary),
        *_captures(summary),
        *_changes(summary),
        *losses,
        *_in_each_direction(lambda way: judge_unproven(of_direction(summary, way).get("payload"), way)),
        *_bypassed(summary),
        *judge_completeness(summary),
        *judge_udp(summary.get("udp")),
        *judge_clocks(summary.get("clocks")),
        *judge_start(summary["start"]),
        *judge_duplicates(summary.get("duplicate_addresses", ())),
        *judge_shares(summary.get("flow_shares", {})),
        *judge_heat(summary.get("host_heat", {})),
        *judge_lost_outside(summary.get("lost_outside"), causes_are_named=bool(losses)),
    ]


def _in_each_direction(judge_direction: Callable[[Direction], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of both directions; those of the direction to the world say so."""
    return [
        replace(finding, text=f"{prefix}{finding.text}")
        for direction, prefix in _PREFIXES.items()
        for finding in judge_direction(direction)
    ]


def _cut_short(summary: Summary) -> Iterator[Finding]:
    duration = summary["duration_s"]
    if summary["cut_short"] is not None:
        yield reason(FindingCode.CUT_SHORT, summary["cut_short"])
    elif duration is None:
        yield reason(FindingCode.NOT_MEASURED, "nothing was measured: the run has no measurement window")
    elif duration < _LEAST_MEASURED_SHARE * summary["planned_s"]:
        text = f"cut short: {duration:.1f} s of {summary['planned_s']:g} s were measured"
        yield reason(FindingCode.CUT_SHORT, text)


def _latency(summary: Summary) -> Iterator[Finding]:
    for server, rtt in summary["terrestrial_rtt_ms"].items():
        excess_ms = rtt["measured"] - rtt["configured"]
        if abs(excess_ms) > rtt["tolerance"]:
            is_scatter = 0 < excess_ms <= rtt["tolerance"] + rtt.get("scatter", 0.0)
            yield reason(
                FindingCode.TERRESTRIAL_RTT_SCATTER if is_scatter else FindingCode.TERRESTRIAL_RTT,
                f"terrestrial RTT of {server} is {rtt['measured']:.2f} ms, configured {rtt['configured']:g} ms "
                f"± {rtt['tolerance']:.2f} ms",
            )


def _lateness(summary: Summary) -> Iterator[Finding]:
    """Return findings for departures later than scheduled, by their effect on queues and RTTs."""
    limits = bounds(summary)
    latest, p99, stalls = summary["lateness_max_ms"], summary["lateness_p99_ms"], summary.get("stalls") or 0
    if p99 is not None and p99 > (bound := limits["lateness_p99_ms"]):
        text = f"1 % of departures were later than {p99:.2f} ms, bound {bound:g} ms: the machine was too busy"
        yield reason(FindingCode.DEPARTURES_LATE, text)
    rtt_ms = summary.get("base_rtt_shortest_ms") or 0.0
    late_bound = max(limits["stall_ms"], limits["lateness_of_rtt"] * rtt_ms)
    if latest is not None and latest > late_bound:
        text = f"a departure was {latest:.2f} ms late, bound {late_bound:g} ms: the machine was too busy"
        yield reason(FindingCode.DEPARTURE_LATE, text)
    if not stalls:
        return
    stalled_ms = (summary.get("stalled_s") or 0.0) * 1e3
    bound_ms = limits["stalled_share"] * (summary["duration_s"] or 0.0) * 1e3
    yield Finding(
        FindingCode.STALLS,
        f"packets left links or delay boxes late: {counted(stalls, 'stall')}, {stalled_ms:.2f} ms in total, bound "
        f"{bound_ms:g} ms; largest lateness {latest or 0.0:.2f} ms, bound {late_bound:g} ms",
        is_reason=stalled_ms > bound_ms,
    )


def _boxes(summary: Summary) -> Iterator[Finding]:
    for box in summary["overloaded"]:
        yield reason(FindingCode.BOX_OVERLOADED, f"{box} lost packets at its own socket: the machine was too busy")
    if summary["oversize_packets"]:
        packets = counted(summary["oversize_packets"], "packet")
        text = f"{packets} larger than the MTU reached a box: some interface has offloads enabled"
        yield reason(FindingCode.PACKETS_OVER_MTU, text)
    if summary["unknown_vlan_packets"]:
        packets = counted(summary["unknown_vlan_packets"], "packet")
        text = f"a delay box dropped {packets} whose VLAN tag belongs to no latency class, bound 0"
        yield reason(FindingCode.UNKNOWN_VLAN, text)
    yield from _in_each_direction(lambda way: _over_rate(of_direction(summary, way).get("links", {})))


def _over_rate(links: Mapping[str, LinkFigures]) -> Iterator[Finding]:
    for box, link in links.items():
        if link["windows_over_rate"]:
            is_varying = least_rate_bit_s(link) < link["rate_bit_s"]
            rate = "rate at that time" if is_varying else f"{link['rate_bit_s'] / 1e6:g} Mbit/s"
            windows = counted(link["windows_over_rate"], "window")
            text = f"{box}: the capture behind it has {windows} of 100 ms above the link's {rate}, bound 0"
            yield reason(FindingCode.LINK_OVER_RATE, text)
        if link["scheduled_windows_over_rate"]:
            windows = counted(link["scheduled_windows_over_rate"], "window")
            yield reason(
                FindingCode.SCHEDULE_OVER_RATE,
                f"{box}: departures were scheduled above the link's rate in {windows} of 100 ms, bound 0: "
                "a bug of the emulator",
            )


def _bypassed(summary: Summary) -> Iterator[Finding]:
    """Return findings for boxes that end connections and did not see those that passed their chains.

    A connection that was established before the measurement began counts as completed only: one for each channel.
    """
    for box, ended in summary.get("ended_connections", {}).items():
        seen_by_box, completed = ended["counted"], ended["completed"]
        if completed and not seen_by_box:
            kind = ended["kind"].upper().replace("-", "_")
            yield reason(
                FindingCode.BOX_BYPASSED,
                f"{kind}_BYPASSED: {box} saw no connection, but {counted(completed, 'TCP connection')} on chains "
                f"through {box} completed: traffic bypasses it",
            )
        elif completed > seen_by_box + summary["channels"]:
            text = f"{box} saw {counted(seen_by_box, 'connection')}, but {completed} on chains through {box} completed"
            yield caveat(FindingCode.BOX_PARTLY_BYPASSED, f"{text}: some bypassed it")


def _captures(summary: Summary) -> Iterator[Finding]:
    if summary["duration_s"] is None:
        return  # nothing was measured, and that is a reason already
    for name, capture in summary["captures"].items():
        if capture["decoded"] is None:
            yield reason(FindingCode.CAPTURE_MISSING, f"capture {name} is missing")
            continue
        if capture["dropped"] is None:
            reason_text = f"because logs/capture-{name}.out has no counters"
            yield reason(
                FindingCode.CAPTURE_UNCOUNTED, f"capture {name}: whether packets were dropped is unknown, {reason_text}"
            )
        if dropped := capture["dropped"]:
            text = f"capture {name} is missing {counted(dropped, 'packet')}: its ring was full; bound 0"
            yield reason(FindingCode.CAPTURE_DROPPED, text)
        if capture["truncated"]:
            text = f"capture {name} ends within a packet: later packets are missing"
            yield reason(FindingCode.CAPTURE_TRUNCATED, text)
        if (missing := _undecoded(capture)) > 0:
            text = f"capture {name} is missing {counted(missing, 'packet')} that the capture counted, bound 0"
            yield reason(FindingCode.CAPTURE_INCOMPLETE, text)
    for name, whistle in summary["whistles"].items():
        if whistle["start"]:
            continue
        text = f"capture {name} does not contain the start whistle"
        # An upper bound, so that no run is invalid by chance: the chain that lost most. Pings also lose to blockages.
        loss = max(summary.get("path_loss") or 0.0, summary.get("ping_path_loss") or 0.0) if name == "island" else 0.0
        if loss:
            text += f", and the links lost {100 * loss:.3g} % of the packets, bound {100 * WHISTLE_LOSS_SHARE:g} %"
        yield Finding(FindingCode.WHISTLE_MISSING, text, is_reason=loss < WHISTLE_LOSS_SHARE)
    # The end whistle may be dropped by a full queue; before the link it must be there.
    if summary["whistles"].get("world", {}).get("end") is False:
        yield reason(FindingCode.WHISTLE_MISSING, "capture world does not contain the end whistle")


def _changes(summary: Summary) -> Iterator[Finding]:
    for change in summary["changes"]:
        name = f"change {change['number']} (at {change['planned_s']:g} s)"
        lateness_ms = change["lateness_ms"]
        if change["failure"] is not None:
            yield reason(FindingCode.CHANGE_FAILED, f"{name} failed: {change['failure']}")
        elif change["duration_s"] is None and summary["cut_short"] is None:
            yield reason(FindingCode.CHANGE_NOT_MADE, f"{name} was not made")
        elif lateness_ms is not None and lateness_ms > CHANGE_LATENESS_MS:
            text = f"{name} began {lateness_ms:.0f} ms late, bound {CHANGE_LATENESS_MS:g} ms: the machine was too busy"
            yield reason(FindingCode.CHANGE_LATE, text)


def _undecoded(capture: Capture) -> int:
    """The packets that a capture counted and its file does not have."""
    return (capture["captured"] or 0) - (capture["decoded"] or 0) - capture["other_frames"]


def losses_agree(summary: Summary, direction: Direction = TO_ISLAND) -> bool:
    """Return whether captures were compared with links and with each other, and all agree on the loss."""
    figures = of_direction(summary, direction)
    compared = figures["loss_bytes_captures"] is not None or compared_links(figures.get("stretches", ()))
    return bool(compared) and not _incomplete(summary) and not _disagreements(summary, direction)


def _incomplete(summary: Summary) -> set[str]:
    """The captures that do not have all packets."""
    captures = summary["captures"].items()
    return {name for name, each in captures if each["dropped"] or each["truncated"] or _undecoded(each) > 0}


def _disagreements(summary: Summary, direction: Direction) -> list[Finding]:
    """Return findings for differing losses, by section of a chain between captures, else of the whole chain.

    Losses of incomplete captures are not compared.
    """
    figures = of_direction(summary, direction)
    if not figures:
        return []
    incomplete = _incomplete(summary)
    ends_complete = incomplete.isdisjoint({"world", "island"})
    stretches, payload = figures.get("stretches", ()), figures.get("payload")  # absent from older summaries
    complete = [each for each in stretches if incomplete.isdisjoint({each["first"], each["last"]})]
    differing = disagreements(complete, payload if ends_complete else None)
    lost_by_captures, lost_by_links = figures["loss_bytes_captures"], figures["loss_bytes_link"]
    if differing or not ends_complete or lost_by_captures is None or lost_by_links is None:
        return differing
    # Links also drop probes, captures leave them out.
    if 0 <= lost_by_links - lost_by_captures <= summary["probed_bytes_max"]:
        return []
    count_text = count_differs("links", lost_by_links, summary["probed_bytes_max"])
    text = f"captures show a loss of {counted(lost_by_captures, 'byte')}, {count_text}"
    if lost_by_captures < 0:
        more = counted(-lost_by_captures, "byte")
        near, far = ("world", "island") if direction is TO_ISLAND else ("island", "world")
        text = f"packets were added between world and island: {far} captured {more} more than {near}, bound 0"
    return [reason(FindingCode.LOSS_DIFFERS, text)]


def _losses(summary: Summary, direction: Direction) -> list[Finding]:
    differing = _disagreements(summary, direction)
    if not differing:
        return []
    undrained = "" if summary["drained"] else " (the link had not drained when the captures ended)"
    causes = "".join(f"; likely cause: {cause}" for cause in likely_causes(summary.get("lost_outside")))
    return [*differing[:-1], replace(differing[-1], text=differing[-1].text + undrained + causes)]
