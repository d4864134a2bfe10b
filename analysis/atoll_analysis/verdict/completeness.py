# SPDX-License-Identifier: Apache-2.0
"""Completeness of a measurement: flows of every client and server, pings, transfers."""

import errno
import math
import os
from collections.abc import Iterator

from atoll_analysis.figures.transfers import TransferFigures, counted_downloads
from atoll_analysis.summary import Summary, bounds, transfers_of
from atoll_analysis.verdict.findings import Finding, FindingCode, caveat, reason
from atoll_analysis.verdict.silence import CAVEAT_TRIES, FALSE_ALARM, SilenceFigures, chance, is_fault, judge_silences
from atoll_core.experiment.experiment import ONLY_TRANSFER
from atoll_core.plural import counted, first_of

FAILED_FLOWS_CAVEAT_SHARE = 0.01
_MOST_CAUSES = 3  # of failed flows
LEAST_PINGS_SHARE = 0.9
"""Share of the planned pings that must have been sent."""

# What a transfer has at least that must have begun.
_THREE_LOST_SYNS_S = 7.0  # three lost ones in succession, RFC 6298
_TRANSFER_RTTS = 10  # where the round trip is long
_FALSE_ALARM_OF_TRANSFERS = 1e-3  # of all of a run, which has few, but many connections that may fall silent

# Servers are drawn at random: (1 - 1/n)^20n < 2.1e-9 for a server to stay unseen.
_FLOWS_PER_SERVER = 20


def judge_completeness(summary: Summary) -> Iterator[Finding]:
    """Return findings for missing data; none for a run without a measurement, which is a finding by itself."""
    if summary["duration_s"] is None:
        return
    yield from _never_seen(summary)
    yield from _silences(summary)
    yield from _no_payload(summary)
    yield from _failed_flows(summary)
    yield from _pings(summary)
    if summary["cut_short"] is None:
        for name, transfer in transfers_of(summary).items():
            yield from _transfer(summary, name, transfer)


def _never_seen(summary: Summary) -> Iterator[Finding]:
    directions = [("from", summary["servers"], summary["flows_completed"])]
    if "to_world" in summary:
        directions = [
            (way, each["servers"], packets["all"]["flows"] if (packets := each.get("flow_packets")) else 0)
            for way, each in (("from", summary), ("to", summary["to_world"]))
        ]
    for way, servers, flows in directions:
        unseen = ", ".join(name for name, volume in servers.items() if not volume["goodput_bytes"])
        if unseen and flows > _FLOWS_PER_SERVER * len(servers):
            text = (
                f"the captures have no TCP payload {way} {unseen}, although {flows} flows "
                f"{'had some' if 'to_world' in summary else 'completed'}; `atoll trace` shows whether its packets pass "
                "the taps"
            )
            yield reason(FindingCode.SERVER_UNSEEN, text)


def _silences(summary: Summary) -> Iterator[Finding]:
    loss = summary.get("path_loss") or 0.0
    for silence, is_certain in judge_silences(summary.get("silences", ()), len(summary["clients"]), loss):
        text = _silence_text(silence, loss, has_uploads="to_world" in summary)
        yield Finding(FindingCode.HOST_SILENT, text, is_reason=is_certain)


def _silence_text(silence: SilenceFigures, loss: float, *, has_uploads: bool) -> str:
    came, waiting = ("reached", "channel") if silence["is_client"] else ("came from", "flow")
    came = "of a flow was seen at" if has_uploads else came
    tries = silence["tries"] if silence["successive"] >= CAVEAT_TRIES else 0  # fewer may be one burst of losses
    return (
        f"no TCP payload {came} {silence['host']} from {silence['from_s']:.1f} s to {silence['to_s']:.1f} s, though "
        f"{counted(silence['waiting'], waiting)} waited, the longest for {counted(silence['successive'], 'timeout')}: "
        f"{chance(tries, loss)}"
    )


def _no_payload(summary: Summary) -> Iterator[Finding]:
    """Not a byte of any flow. Tries are independent while pings were answered; otherwise it may be an outage."""
    tries, loss = summary.get("flow_tries"), summary.get("path_loss") or 0.0
    if tries is None:
        return
    is_answered = summary["ping_lost"] < summary["ping_sent"]
    pings = "although pings were answered" if is_answered else "and no ping was answered"
    flows = counted(_flows(summary), "flow")
    yield Finding(
        FindingCode.NO_PAYLOAD,
        f"no byte arrived in any of {flows}, {pings}; {counted(tries, 'timeout')}, and links lost "
        f"{loss:.2%} of all packets in both directions: {chance(tries, loss)}",
        is_reason=is_answered and is_fault(tries, loss),
    )


def _failed_flows(summary: Summary) -> Iterator[Finding]:
    """A change may reset the connections of stateful boxes that it moves traffic from or to: these are allowed."""
    flows = _flows(summary)
    allowed = summary.get("flows_failed_in_changes") or 0
    failed = summary["flows_failed"] - allowed
    limit = bounds(summary)["failed_flows"]
    if failed <= min(limit, FAILED_FLOWS_CAVEAT_SHARE) * flows:
        return
    is_invalid = failed > limit * flows
    bound = limit if is_invalid else FAILED_FLOWS_CAVEAT_SHARE
    given_up = summary.get("flows_silent")
    reason_text = f" ({given_up} given up after the timeout without a byte)" if given_up else ""
    in_changes = f", besides {allowed} in changes" if allowed else ""
    text = f"{failed} of {counted(flows, 'flow')} failed{reason_text}{in_changes}, bound {100 * bound:.3g} %"
    if causes := [_cause(name, count) for name, count in summary.get("flows_failed_by", {}).items()]:
        text += f": {first_of(causes, _MOST_CAUSES)}"
    yield Finding(FindingCode.FLOWS_FAILED, text, is_reason=is_invalid)


def _flows(summary: Summary) -> int:
    """The number of flows that were begun."""
    return summary["flows_completed"] + summary["flows_cut"] + summary["flows_failed"]


def _cause(error: str, count: int) -> str:
    number = getattr(errno, error, None)
    return f"{count} by {error}" + (f" ({os.strerror(number).lower()})" if number else "")


def _pings(summary: Summary) -> Iterator[Finding]:
    sent, lost, planned = summary["ping_sent"], summary["ping_lost"], summary.get("ping_planned")
    if planned and sent < LEAST_PINGS_SHARE * planned - 1 and summary["cut_short"] is None:
        least = f"at least {100 * LEAST_PINGS_SHARE:g} % must be"
        text = f"only {sent} of {counted(planned, 'planned ping')} were sent; {least}"
        yield reason(FindingCode.PINGS_UNSENT, text)
    path_loss = summary.get("ping_path_loss") or 0.0
    # Losses come in bursts, and a link's loss is of bytes that TCP sends at other times: twice the share is allowed.
    blocked = summary.get("ping_blocked_share") or 0.0
    allowed = min(1.0, 2 * path_loss + 0.01 + blocked)
    is_beyond = _is_beyond(lost, sent, allowed)
    if is_beyond or (lost == sent > 0 and allowed == 1.0):
        yield Finding(
            FindingCode.PINGS_LOST,
            f"{lost} of {counted(sent, 'ping')} were lost, and the links on their path dropped {path_loss:.2%} of all "
            f"packets{f' and were blocked for {blocked:.2%} of the time' if blocked else ''}, bound {allowed:.2%}",
            is_reason=is_beyond and lost == sent,
        )


def _is_beyond(count: int, n: int, share: float) -> bool:
    """Return whether ``count`` of ``n`` independent events is too large for their probability ``share``.

    By the Chernoff bound on the tail of the binomial distribution, with probability FALSE_ALARM of being wrong.
    """
    if not n or count <= share * n:
        return False
    p = count / n
    divergence = p * math.log(p / share) + ((1 - p) * math.log((1 - p) / (1 - share)) if p < 1 else 0.0)
    return n * divergence > -math.log(FALSE_ALARM)


def _transfer(summary: Summary, name: str, transfer: TransferFigures) -> Iterator[Finding]:
    """A transfer that is not finished is a matter of the experiment; one of which nothing came needs a reason."""
    received, room_s = transfer["received_bytes"], transfer["room_s"]
    if transfer["complete"]:
        return
    label = "the transfer" if name == ONLY_TRANSFER else f"transfer {name!r}"
    size = counted(transfer["bytes"], "byte")
    base_rtt_s = (summary["base_rtt_ms"] or 0.0) / 1e3
    within = "" if room_s is None else f" within {room_s:g} s"
    had_time = room_s is None or room_s > max(_THREE_LOST_SYNS_S, _TRANSFER_RTTS * base_rtt_s)
    reason_text = f"; {failure}" if (failure := transfer["failure"]) else ""
    tries, loss = transfer["tries"], summary.get("path_loss") or 0.0
    if received is None:
        text = f"{label} of {size} left no result{within}{reason_text}"
        yield Finding(FindingCode.TRANSFER_NO_RESULT, text, is_reason=had_time)
    elif received:
        text = f"{label} was not finished{within}: {received} of {size} arrived{reason_text}"
        if len(transfer["downloads"]) > 1:
            completed = [download["complete"] for download in counted_downloads(transfer["downloads"])]
            unfinished = f"{completed.count(False)} of {counted(len(completed), 'transfer')}"
            text = f"{label}: {unfinished} of {size} did not complete{reason_text}"
        yield caveat(FindingCode.TRANSFER_UNFINISHED, text)
    else:
        text = f"no byte of {label} of {size} arrived{within}"
        if tries is None:  # an older version analysed the run
            yield Finding(FindingCode.TRANSFER_NO_BYTE, text, is_reason=had_time)
            return
        text += f"; {counted(tries, 'timeout')} in succession, and links lost {loss:.2%} of all packets in both "
        text += f"directions: {chance(tries, loss)}{reason_text}"
        false_alarm = _FALSE_ALARM_OF_TRANSFERS / len(transfers_of(summary))
        yield Finding(FindingCode.TRANSFER_NO_BYTE, text, is_reason=is_fault(tries, loss, false_alarm))
