# SPDX-License-Identifier: Apache-2.0
"""RTTs to a population of servers, and a few latencies that represent them (docs/imports.md).

Of each target the median of its RTTs counts. Targets are sorted by it and cut into as many partitions of equal count as
there are world servers; each server has its partition's median.
"""

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from atoll_core.errors import DescriptionError, Diagnostic, shown

FEW_TARGETS = 20
"""With fewer in a partition its median moves noticeably with every target."""

DRAWS_HEADER = "target,draws"

_MOST_MISTAKES = 10
_LONGEST_LINE = 10_000  # characters of a line
_RTT_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?")
# iputils: "64 bytes from host (192.0.2.1): icmp_seq=1 ttl=55 time=23.1 ms"; the name is left out with -n, and words and
# the decimal point depend on the locale. Any text may precede it, such as the time with -D.
# Scamper has a comma after the address.
_REPLY = re.compile(
    r"(?:\((?P<named>[^\s()]+)\)|(?P<plain>[^\s(),]+)) ?[:,] (?:icmp_)?seq=\d+(?: (?:ttl|hlim)=\d+)? "
    r"[^\s=<]+[=<](?P<ms>\d+(?:[.,]\d+)?) ?ms"
)
_PING_LINE = re.compile(
    r"\bPING |--- \S+ .*---|\d+ .*, \d+ .*, .*\d%|rtt min/avg/max|round-trip min/avg/max|^ping \S+ to |"
    r"\bicmp_seq=\d+ |no answer yet|[Uu]nreachable|[Tt]ime to live exceeded|\bping: |DUP!|xmt/rcv/%loss|timed out|"
    r"^ICMP |: duplicate for \[|\S+ is alive$|: Name or service not known"
)
# fping: "192.0.2.1 : 23.1 - 24" (-C), "192.0.2.1 : [0], 64 bytes, 23.1 ms (..)" (-c), "192.0.2.1 is alive (23.1 ms)"
_FPING = re.compile(
    r"(?:\[[0-9.]+\] )?(?P<target>\S+) +(?:: (?P<series>(?:(?:\d+(?:\.\d+)?|-)(?: |$))+)|"
    r": \[\d+\], \d+ bytes, (?P<one>\d+(?:\.\d+)?) ms|is alive \((?P<alive>\d+(?:\.\d+)?) ms\))"
)
_TIME_OF_DAY = re.compile(r"\d{4}-\d\d-\d\d.*|\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?")
_OTHER_UNIT = re.compile(r"(?:rtt|latency|time)[ _(]+(?:s|sec|seconds|us|µs|ns)\b")
_RTT_NAMES = ("rtt_ms", "rtt", "rtt (ms)", "rtt ms", "ms", "latency_ms", "latency")
_TARGET_NAMES = ("target", "host", "hostname", "server", "address", "ip", "destination", "dst")
_NO_TARGETS = {"time", "timestamp", "date", "seq", "icmp_seq", "n", "ttl", "loss"}


@dataclass(frozen=True, slots=True)
class Rtts:
    """The RTT of each target in ms, those of lists without targets, and the unreadable lines."""

    by_target: dict[str, float]
    without_target: tuple[float, ...]
    mistakes: tuple[Diagnostic, ...]

    def sorted_ms(self, draws: Mapping[str, int] | None = None) -> tuple[float, ...]:
        """The RTTs, ascending: one a target, or with ``draws`` as many as the target was drawn."""
        if draws is None:
            return tuple(sorted([*self.without_target, *self.by_target.values()]))
        return tuple(sorted(rtt for target, rtt in self.by_target.items() for _ in range(draws.get(target, 0))))


def read_rtts(texts: Iterable[tuple[str, str]]) -> Rtts:
    """Read output of ping, fping and scamper, or lists of RTTs, from files, given as (name, text).

    A list has an RTT in milliseconds a line, or target and RTT with a comma between, a target any number of times; a
    first line without a number names the columns, of which there may be more. With semicolons between the columns,
    decimals may follow a comma. Empty lines and those that begin with # are ignored.
    """
    by_target: dict[str, list[float]] = {}
    without_target: list[float] = []
    mistakes: list[Diagnostic] = []
    for file, text in texts:
        columns: _Columns | None = None
        for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
            line = line.strip()  # noqa: PLW2901
            if not line or line.startswith("#"):
                continue
            if (reply := _REPLY.search(line)) and "DUP!" not in line:
                rtt = float(reply["ms"].replace(",", "."))
                by_target.setdefault(reply["named"] or reply["plain"], []).append(rtt)
                continue
            if reply := _FPING.match(line):
                texts_ms = (reply["series"] or reply["one"] or reply["alive"]).split()
                by_target.setdefault(reply["target"], []).extend(float(text) for text in texts_ms if text != "-")
                continue
            if _PING_LINE.search(line):
                continue
            try:
                if line.startswith("{"):
                    target, rtts = _scamper(line)
                    by_target.setdefault(target, []).extend(rtts)
                    continue
                cells = _cells(line)
                if columns is None:
                    columns = _columns(line, cells)
                    if columns.has_names:
                        continue
                target, rtt = columns.read(line, cells)
            except ValueError as error:
                mistakes.append(Diagnostic(file, number, f"{shown(line)} {error}"))
                if columns is None:
                    break
            else:
                (by_target.setdefault(target, []) if target else without_target).append(rtt)
    medians = {target: median(rtts) for target, rtts in by_target.items() if rtts}
    return Rtts(medians, tuple(without_target), tuple(mistakes[:_MOST_MISTAKES]))


def _scamper(line: str) -> tuple[str, list[float]]:
    """The target and its RTTs in ms, of ``scamper -O json``. Raises ValueError with the rest of a message."""
    try:
        result: dict[str, Any] = json.loads(line)
        replies: list[dict[str, Any]] = result.get("responses", []) if result.get("type") == "ping" else []
        rtts = [float(reply["rtt"]) for reply in replies if reply["from"] == result["dst"]]
        return str(result.get("dst", "")), rtts
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError("is no complete object of scamper's; write it with: scamper -O json") from None


def read_draws(name: str, text: str) -> dict[str, int]:
    """How often each target was drawn, from lines of both. Raises DescriptionError with each unreadable line."""
    draws: dict[str, int] = {}
    mistakes: list[Diagnostic] = []
    for number, line in enumerate(text.splitlines(), start=1):
        target, _, count = line.partition(",")
        if not line.strip() or line.startswith("#") or line == DRAWS_HEADER:
            continue
        if count.isascii() and count.isdigit() and target not in draws:
            draws[target] = int(count)
        else:
            mistakes.append(
                Diagnostic(name, number, f"{shown(line)} is not TARGET,DRAWS of another target; write 192.0.2.1,3")
            )
    if mistakes:
        raise DescriptionError(mistakes[:_MOST_MISTAKES])
    return draws


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a list."""

    count: int
    rtt: int
    target: int | None
    has_names: bool
    is_certain: bool = False  # the header names the column of targets or that of RTTs

    def read(self, line: str, cells: list[str]) -> tuple[str, float]:
        """The target, empty if there is none, and the RTT of a line. Raises ValueError with the rest of a message."""
        if len(cells) != self.count:
            first_line = f"the first line {'names' if self.has_names else 'has'} {self.count}"
            raise ValueError(f"has {len(cells)} columns, but {first_line}")
        target = "" if self.target is None else cells[self.target]
        rtt = cells[self.rtt].replace(",", ".") if ";" in line else cells[self.rtt]
        if not _RTT_NUMBER.fullmatch(rtt):
            if self.has_names:
                raise ValueError(f"has {shown(rtt)} as RTT; write milliseconds, such as 612.3, or remove the line")
            raise ValueError("is neither output of ping nor an RTT in milliseconds; write 612.3 or TARGET,612.3")
        if not self.is_certain and re.fullmatch(r"[0-9.]+", target) and target.count(".") < 3:
            hint = "with a decimal comma write {0}.{1}, or name the columns in a first line: target,rtt_ms"
            raise ValueError(f"is ambiguous: {hint.format(target, rtt)}")
        if _TIME_OF_DAY.fullmatch(target):
            raise ValueError(
                "begins with a time, not with a target; name the columns in a first line: time,target,rtt_ms"
            )
        return target, float(rtt)


def _columns(line: str, cells: list[str]) -> _Columns:
    """The columns by the first line of a list. Raises ValueError."""
    names = [cell.lower() for cell in cells]
    if any(character.isdigit() for character in line):
        if len(cells) > 2:
            raise ValueError(f"has {len(cells)} columns; name them in a first line, such as time,target,rtt_ms")
        return _Columns(len(cells), len(cells) - 1, 0 if len(cells) == 2 else None, has_names=False)
    if any(_OTHER_UNIT.match(name) for name in names):
        raise ValueError("names another unit; RTTs are in milliseconds, column rtt_ms")
    rtt, target = (
        next((names.index(name) for name in options if name in names), None) for options in (_RTT_NAMES, _TARGET_NAMES)
    )
    if len(cells) > 2 and (rtt is None or target is None):
        missing = "rtt_ms" if rtt is None else "target"
        raise ValueError(
            f"names {len(cells)} columns, none of them {missing}; a column target and a column rtt_ms are needed"
        )
    if len(cells) == 1:
        return _Columns(1, 0, None, has_names=True)
    is_certain = target is not None or (rtt is not None and _NO_TARGETS.isdisjoint(names))
    if rtt is None:
        rtt = 1 - (target or 0)
    return _Columns(len(cells), rtt, 1 - rtt if target is None else target, has_names=True, is_certain=is_certain)


def _cells(line: str) -> list[str]:
    [cells] = csv.reader([line], delimiter=";" if ";" in line else ",") if len(line) < _LONGEST_LINE else [[line]]
    return [cell.strip() for cell in cells]


def partitions(rtts_ms: tuple[float, ...], servers: int) -> list[tuple[float, ...]]:
    """RTTs in ascending order, cut into ``servers`` parts of equal count (within one)."""
    bounds = [index * len(rtts_ms) // servers for index in range(servers + 1)]
    return [rtts_ms[begin:end] for begin, end in pairwise(bounds)]


def server_rtts(rtts_ms: tuple[float, ...], servers: int) -> list[float]:
    """The median of each partition; ``rtts_ms`` holds at least one RTT for each server."""
    return [median(rtts) for rtts in partitions(rtts_ms, servers)]
