# SPDX-License-Identifier: Apache-2.0
"""Clients and servers that fell silent during a run, if packet loss cannot explain it.

A host is silent from its last new TCP payload to the end, or from the begin to its first. That alone proves nothing:
all channels may be busy with large flows of others. What counts is what waited for the host meanwhile: the flows that
clients began to a server, the channels of a client. Each of them tries again after timeouts, each twice as long as the
one before (RFC 6298, 5.5), and remains without an answer by chance only if every try was lost.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from atoll_analysis.figures.path_delays import Interval

FALSE_ALARM = 1e-6
"""Probability with which a host that works is called silent in a run."""
UNLIKELY = 1e-3
"""Below this probability, what cannot be judged is a caveat."""

# Losses come in bursts, in which all flows lose a try at once: so many tries must have had no answer.
LEAST_TRIES, CAVEAT_TRIES = 3, 2
_INITIAL_TIMEOUT_S = 1.0  # RFC 6298, 2.1
_TIMEOUT_RTTS = 3  # a first timeout is SRTT + 4 RTTVAR = 3 RTTs, RFC 6298, 2.2


class SilenceFigures(TypedDict):
    """The flows or channels that waited for a host while no new TCP payload came from it or reached it."""

    host: str  # the host
    is_client: bool  # it is an island client; else a world server
    never: bool  # nothing came in the whole run
    from_s: float  # begin of the silence, from the start of the measurement
    to_s: float  # end of the silence, from the start of the measurement
    waiting: int  # flows begun to a server, or channels of a client
    tries: int  # attempts of all of them without an answer
    successive: int  # most attempts in a row of one of them


@dataclass(frozen=True, slots=True)
class PayloadSpan:
    """When new TCP payload of a host was seen first and last, and when a link on its way was blocked."""

    first_s: float | None
    last_s: float | None
    blocked_intervals: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowLog:
    """A flow as a client logged it, that got no payload or was open for longer than its server was seen."""

    client: str
    channel: int
    server: str
    start_s: float
    end_s: float
    received_bytes: int
    failed: bool


def timeout_s(longest_rtt_ms: float) -> float:
    """A connection's first timeout, at most."""
    return max(_INITIAL_TIMEOUT_S, _TIMEOUT_RTTS * longest_rtt_ms / 1e3)


def tries(from_s: float, to_s: float, blocked_intervals: Iterable[Interval], first_timeout_s: float) -> int:
    """How often a sender tried for certain, and could have been answered, with its path not blocked.

    After a blockage a sender waits up to as long again: its tries go on as they were timed from the blockage's begin.
    """

    def tries_until(instant_s: float) -> float:
        return math.log2(max(0.0, instant_s - begin_s) / first_timeout_s + 1)

    begin_s = end_of_block_s = from_s
    for blocked_s, unblocked_s in blocked_intervals:
        if blocked_s < to_s and from_s < 2 * unblocked_s - blocked_s + first_timeout_s:
            begin_s, end_of_block_s = min(begin_s, blocked_s), max(end_of_block_s, min(unblocked_s, to_s))
    return max(0, math.floor(tries_until(to_s)) - math.ceil(tries_until(end_of_block_s)))


def silences(
    servers: Mapping[str, PayloadSpan],
    clients: Mapping[str, PayloadSpan],
    channels: Mapping[str, int],
    flows: Sequence[FlowLog],
    end_s: float,
    first_timeout_s: float,
    idle_s: Mapping[str, float],
    path_loss: float,
) -> list[SilenceFigures]:
    """The silences in which something was tried at least twice in succession, and hosts that were never seen.

    ``end_s``: until when the lab is known to have carried packets; ``idle_s``: how long a channel may pause, by client.
    """
    begin_s = min(
        (span.first_s for span in (*servers.values(), *clients.values()) if span.first_s is not None), default=0.0
    )
    has_one_client = sum(count > 0 for count in channels.values()) == 1
    figures: list[SilenceFigures] = []

    def add(host: str, span: PayloadSpan, gap: Interval, counts: list[int], *, is_client: bool) -> None:
        longest, never = max(counts, default=0), span.first_s is None
        if longest >= CAVEAT_TRIES or (never and is_client and counts):
            figures.append(SilenceFigures(
                host=host, is_client=is_client, never=never, from_s=gap[0], to_s=gap[1],
                waiting=len(counts), tries=sum(counts), successive=longest,
            ))  # fmt: skip

    for name, span in servers.items():
        for gap in _gaps(span, begin_s, end_s):
            counts = [
                max(flow.failed, tries(flow.start_s, min(flow.end_s, gap[1]), span.blocked_intervals, first_timeout_s))
                for flow in _waiting(name, gap, flows, has_one_client=has_one_client)
            ]
            add(name, span, gap, counts, is_client=False)
    silent_servers = {silence["host"] for silence in figures if probability(silence, path_loss) < UNLIKELY}
    for name, span in clients.items():
        for gap in _gaps(span, begin_s, end_s):
            stuck = {
                flow.channel
                for flow in flows
                if flow.client == name and flow.server in silent_servers and flow.end_s > gap[0]
            }
            count = tries(gap[0] + idle_s[name], gap[1], span.blocked_intervals, first_timeout_s)
            add(name, span, gap, [count] * max(0, channels.get(name, 0) - len(stuck)), is_client=True)
    return figures


def _gaps(span: PayloadSpan, begin_s: float, end_s: float) -> list[Interval]:
    if span.first_s is None or span.last_s is None:
        return [(begin_s, end_s)]
    return [(begin, end) for begin, end in ((begin_s, span.first_s), (span.last_s, end_s)) if begin < end]


def _waiting(server: str, gap: Interval, flows: Sequence[FlowLog], *, has_one_client: bool) -> list[FlowLog]:
    """Flows to a server that waited in its silence, but for those of the client with the most.

    A client that broke down waits for servers, too: its waits do not count against a server that no other client
    waits for.
    """
    waiting = [
        flow for flow in flows if flow.server == server and not flow.received_bytes and gap[0] < flow.start_s < gap[1]
    ]
    if has_one_client:
        return waiting
    by_client = [[flow for flow in waiting if flow.client == client] for client in {flow.client for flow in waiting}]
    return [flow for group in sorted(by_client, key=len)[:-1] for flow in group]


def probability(silence: SilenceFigures, path_loss: float) -> float:
    """Of such a silence, at most; 1 if it is too short to be judged."""
    return unanswered_probability(silence["tries"], path_loss) if silence["successive"] >= CAVEAT_TRIES else 1.0


def unanswered_probability(count: int, path_loss: float) -> float:
    """The probability that so many tries remain without an answer, at most.

    Twice the share is granted for losses in bursts, and twice the probability, as another channel may have been within
    a longer timeout already when the silence began.
    """
    return min(1.0, 2 * (2 * path_loss + 0.01)) ** count


def chance(count: int, path_loss: float) -> str:
    """Return as text how many runs have such a silence by chance."""
    share = unanswered_probability(count, path_loss)
    if count == 0:
        return "too short to judge"
    if share == 1:
        return "the links lost too many packets to judge"
    if share < FALSE_ALARM:
        return f"by chance in less than one run of {1 / FALSE_ALARM:,.0f}"
    return f"by chance in one run of {float(f'{1 / share:.2g}'):,.0f} at most"


def is_fault(count: int, path_loss: float, false_alarm: float = FALSE_ALARM) -> bool:
    """Whether so many tries of one connection remain without an answer too rarely for it to be chance."""
    return count >= LEAST_TRIES and unanswered_probability(count, path_loss) < false_alarm


def _evidence(silence: SilenceFigures, path_loss: float) -> float:
    """Minus the logarithm of its probability."""
    return -math.log(unanswered_probability(1, path_loss)) * silence["tries"]


def judge_silences(figures: Sequence[SilenceFigures], clients: int, loss: float) -> list[tuple[SilenceFigures, bool]]:
    """Silences that are not chance, with whether that is sure; several of the clients count together."""
    certain = [s for s in figures if s["successive"] >= LEAST_TRIES and _evidence(s, loss) > -math.log(FALSE_ALARM)]
    noticed = [silence for silence in figures if silence not in certain and probability(silence, loss) < UNLIKELY]
    joint = _joint_silences([silence for silence in noticed if silence["is_client"]], clients, loss)
    shown = (silence for silence in figures if silence in certain or silence in noticed or silence["never"])
    return [(silence, silence in certain or silence in joint) for silence in shown]


def _joint_silences(noticed: list[SilenceFigures], clients: int, path_loss: float) -> list[SilenceFigures]:
    """The most of them that are not silent at once by chance: Fisher's method, for any choice of so many."""
    order = sorted(noticed, key=lambda silence: -_evidence(silence, path_loss))
    for count in range(len(order), 1, -1):
        total = sum(_evidence(silence, path_loss) for silence in order[:count])
        tail = sum(math.exp(k * math.log(total) - math.lgamma(k + 1) - total) for k in range(count))
        if math.comb(clients, count) * tail < FALSE_ALARM:
            return order[:count]
    return []
