# SPDX-License-Identifier: Apache-2.0
"""Clients and servers that fell silent during a run, as far as chance cannot explain it.

Flows are taken to begin as a Poisson process: of a client at a rate proportional to its channels, of a server at the
same rate as of any other, as servers are drawn uniformly. The rate is that of the flows which completed while clients
were seen. A host that is silent while n flows were to be expected is so by chance with probability exp(-n), if every
flow is seen. A TCP connection may also be silent while it waits for timeouts, each twice as long as the one before
(RFC 6298, 5.5); so a host is called silent only after more successive timeouts than its channels have by chance.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from atoll.analysis.summary import Summary, Volume

FALSE_ALARM = 1e-6
"""Probability with which a host that works is called silent in a run."""

_LEAST_FLOWS = -math.log(FALSE_ALARM)
# With one packet of ten lost, six losses in succession have the probability of FALSE_ALARM.
_SUCCESSIVE_LOSSES = 6
_LEAST_TIMEOUTS = 3
_INITIAL_TIMEOUT_S = 1.0  # RFC 6298, 2.1


@dataclass(frozen=True, slots=True)
class Silence:
    """A host of which nothing was seen at the begin or the end of a run."""

    host: str
    before: bool  # before its first payload rather than after its last one
    at_s: float  # its first or last payload
    flows: float  # to be expected in the time of its silence


def silences(summary: Summary) -> Iterator[Silence]:
    """The hosts that were silent too long to be so by chance."""
    placed = {name: count for name, count in summary["placement"].items() if count}
    seen_s = sum(count * _seen_s(summary["clients"].get(name)) for name, count in placed.items())
    if seen_s <= 0:
        return
    per_channel_s = summary["flows_completed"] / seen_s
    timeout_s = max(_INITIAL_TIMEOUT_S, 2 * _longest_rtt_s(summary))
    for name, count in placed.items():
        yield from _of(name, summary["clients"], count * per_channel_s, count, timeout_s, summary)
    servers = summary["servers"]
    channels = sum(placed.values())
    for name in servers:
        yield from _of(name, servers, channels * per_channel_s / len(servers), channels, timeout_s, summary)


def _of(
    name: str, hosts: Mapping[str, Volume], flows_per_s: float, channels: int, timeout_s: float, summary: Summary
) -> Iterator[Silence]:
    first_s, last_s = _seen(hosts.get(name))
    if first_s is None or last_s is None:
        return  # never seen: the verdict has a rule for that
    begin_s = min(first for first, _ in map(_seen, hosts.values()) if first is not None)
    end_s = max(last for _, last in map(_seen, hosts.values()) if last is not None)
    end_s = min(max(end_s, summary.get("ping_last_s") or 0.0), summary["duration_s"] or 0.0)
    timeouts = max(_LEAST_TIMEOUTS, math.ceil(_SUCCESSIVE_LOSSES / channels))
    least_s = timeout_s * (2**timeouts - 1)
    for before, at_s, gap_s in ((True, first_s, first_s - begin_s), (False, last_s, end_s - last_s)):
        if gap_s > least_s and gap_s * flows_per_s > _LEAST_FLOWS:
            yield Silence(name, before, at_s, gap_s * flows_per_s)


def _seen(volume: Volume | None) -> tuple[float | None, float | None]:
    """When payload was first and last seen; of older analyses nothing is known."""
    return (None, None) if volume is None else (volume.get("payload_first_s"), volume.get("payload_last_s"))


def _seen_s(volume: Volume | None) -> float:
    first_s, last_s = _seen(volume)
    return 0.0 if first_s is None or last_s is None else last_s - first_s


def _longest_rtt_s(summary: Summary) -> float:
    terrestrial_ms = max((rtt["configured"] for rtt in summary["terrestrial_rtt_ms"].values()), default=0.0)
    return ((summary["base_rtt_ms"] or 0.0) + (summary["sojourn_bound_ms"] or 0.0) + terrestrial_ms) / 1e3
