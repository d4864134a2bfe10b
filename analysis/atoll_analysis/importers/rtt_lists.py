# SPDX-License-Identifier: Apache-2.0
"""RTTs to a population of servers, and a few latencies that represent them (docs/imports.md).

Of each target the median of its RTTs counts. Targets are sorted by it and cut into as many partitions of equal count as
there are world servers; each server has its partition's median.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from atoll_core.errors import Diagnostic, shown

FEW_TARGETS = 20
"""With fewer in a partition its median moves noticeably with every target."""

_MOST_MISTAKES = 10
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?")
# iputils: "64 bytes from host (192.0.2.1): icmp_seq=1 ttl=55 time=23.1 ms"; the name is left out with -n
_REPLY = re.compile(r"bytes from (?:\S+ \((?P<named>[^)]+)\)|(?P<plain>[^\s:]+)):?.*? time[=<](?P<ms>[0-9.]+) ?ms")
_PING_LINE = re.compile(
    r"PING |--- .* ping statistics ---|\d+ packets transmitted|rtt min/avg/max|round-trip min/avg/max|From |"
    r"no answer yet|.*[Uu]nreachable|.*[Tt]ime to live exceeded|ping: |.*bytes from .*DUP!"
)


@dataclass(frozen=True, slots=True)
class Rtts:
    """The RTT of each target, in ms, ascending, and the unreadable lines."""

    ms: tuple[float, ...]
    mistakes: tuple[Diagnostic, ...]


def read_rtts(texts: Iterable[tuple[str, str]]) -> Rtts:
    """Read output of ping or lists of RTTs from files, given as (name, text).

    A list has an RTT in milliseconds a line, or target and RTT with a comma between, a target any number of times; a
    first line without a number names the columns. Empty lines and those that begin with # are ignored.
    """
    by_target: dict[str, list[float]] = {}
    alone: list[float] = []
    mistakes: list[Diagnostic] = []
    for file, text in texts:
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.strip()
            if not words or words.startswith("#") or _PING_LINE.match(words):
                continue
            if reply := _REPLY.search(words):
                by_target.setdefault(reply["named"] or reply["plain"], []).append(float(reply["ms"]))
                continue
            target, _, rtt = (part.strip() for part in words.rpartition(","))
            if _NUMBER.fullmatch(rtt):
                (by_target.setdefault(target, []) if target else alone).append(float(rtt))
            elif number > 1 or any(character.isdigit() for character in words):
                what = "neither a line of ping nor an RTT in milliseconds, alone or after a target and a comma"
                mistakes.append(Diagnostic(file, number, f"{shown(words)} is {what}"))
    found = sorted([*alone, *(median(rtts) for rtts in by_target.values())])
    return Rtts(tuple(found), tuple(mistakes[:_MOST_MISTAKES]))


def partitions(ms: tuple[float, ...], servers: int) -> list[tuple[float, ...]]:
    """RTTs in ascending order, cut into ``servers`` parts of equal count (within one)."""
    cuts = [index * len(ms) // servers for index in range(servers + 1)]
    return [ms[begin:end] for begin, end in pairwise(cuts)]


def server_rtts(ms: tuple[float, ...], servers: int) -> list[float]:
    """The median of each partition; ``ms`` holds at least one RTT for each server."""
    return [median(part) for part in partitions(ms, servers)]
