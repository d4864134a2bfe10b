# SPDX-License-Identifier: Apache-2.0
"""What became of every packet of swap_guest: by captures at all ports, sequence number by sequence number."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.guests.swap_guest import UDP_PORTS

SWAPS = int(os.environ.get("ATOLL_SWAPS", "8"))
"""How many random ones each test makes: `make test-swaps` asks for a hundred."""

SEED = int(os.environ.get("ATOLL_SEED", "1"))
"""Of the random ones that change settings, too."""

_HEADER, _RECORD = 24, 16
_SHORTEST = 54
_CODER_PORT, _CODER_BYTES = 49500, 36  # outer IPv4 and UDP, and the header of a packet as it was
_SOURCES = (0xB0, 0xB3)
_MARGIN_NS = 50_000_000  # between a packet's stamp at its host and the switch taking it up, on a busy machine
_LONGEST_NS = 600_000_000  # a packet's stay in the lab: propagation, queue and as much again

Seqs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Seen:
    """The packets of one UDP stream at one place, in the order they came: sequence numbers and instants."""

    seq: Seqs
    t_ns: Seqs


def seen(path: Path, port: int) -> Seen:
    """What a capture has of the stream to this UDP port."""
    data = path.read_bytes()
    starts = np.fromiter(_records(data), np.int64)
    array = np.frombuffer(data, np.uint8)

    def number(at: Seqs, size: int, *, big: bool = True) -> Seqs:
        places = range(size) if big else range(size - 1, -1, -1)
        value = np.zeros(len(at), np.int64)
        for place in places:
            value = (value << 8) | array[at + place]
        return value

    lengths = number(starts + 8, 4, big=False)
    tagged = number(starts + _RECORD + 12, 2) == 0x8100
    frames = starts + _RECORD + np.where(tagged, 4, 0)
    lengths -= np.where(tagged, 4, 0)
    starts, frames, lengths = (each[lengths >= _SHORTEST] for each in (starts, frames, lengths))
    kind = array[np.minimum(frames + 42, len(array) - 1)]
    coded = (array[frames + 23] == 17) & (number(frames + 36, 2) == _CODER_PORT) & np.isin(kind, _SOURCES)
    coded &= lengths >= _SHORTEST + _CODER_BYTES
    frames = frames + np.where(coded, _CODER_BYTES, 0)
    ipv4 = coded | (number(frames + 12, 2) == 0x0800)
    ours = ipv4 & (array[frames + 23] == 17) & (number(frames + 36, 2) == port)
    starts, frames = starts[ours], frames[ours]
    t_ns = number(starts, 4, big=False) * 10**9 + number(starts + 4, 4, big=False)
    return Seen(number(frames + 46, 8), t_ns)


def _records(data: bytes) -> Iterator[int]:
    at = _HEADER
    while at + _RECORD <= len(data):
        yield at
        at += _RECORD + int.from_bytes(data[at + 8 : at + 12], "little")


@dataclass(frozen=True)
class Verdict:
    """Packets of one direction. ``in_link``: lost in the link, which counts them; the next four should be 0."""

    sent: int
    in_link: int
    lost: int
    duplicated: int
    mixed: int
    at_taps: int
    turned_under_way: int  # packets that were between the hosts when the edge shifted: each swap has some


def judge(out: Path, way: str) -> Verdict:
    """Hold every packet of a direction against the versions of the chain that it may have seen."""
    facts: dict[str, Any] = json.loads((out / "facts.json").read_text())
    port, to_island = UDP_PORTS[way], way == "to_island"
    near, far = ("w1", "i1") if to_island else ("i1", "w1")
    side, other = ("w", "i") if to_island else ("i", "w")
    start = seen(out / f"{near}-eth0-out.pcap", port)
    count = int(start.seq.max()) + 1
    sent_ns = np.full(count, -1, np.int64)
    sent_ns[start.seq] = start.t_ns

    stations = {name: _at(out, port, count, f"{name}-{side}", f"{name}-{side}2") for name in facts["routed"]}
    stations["sat"] = _at(out, port, count, f"sat-{side}")
    taps = {tap: _at(out, port, count, name)[0] for tap, name in (("tap-w", "cap-w-tap-w"), ("tap-i", "cap-i-tap-i"))}
    left = _at(out, port, count, f"sat-{other}", direction="out")[0]
    arrived = _at(out, port, count, f"{far}-eth0")[0]
    in_link = (stations["sat"][0] > 0) & (left == 0)

    versions, windows = _versions(facts)
    right = np.zeros(count, bool)
    tapped = np.zeros(count, bool)
    for hops, (first_ns, last_ns) in zip(versions, windows, strict=True):
        when = (sent_ns >= first_ns) & (sent_ns <= last_ns)
        boxes = [hop for hop in hops if hop in stations]
        cut = boxes[: boxes.index("sat") + 1] if to_island else boxes[boxes.index("sat") :]
        whole = _passed(stations, boxes if to_island else boxes[::-1])
        partly = in_link & _passed(stations, cut if to_island else cut[::-1])
        decoder = "coder-i" if to_island else "coder-w"
        others = [box for box in boxes if box != decoder]
        recovered = in_link & _passed(stations, others if to_island else others[::-1])
        matching = when & (whole | partly | recovered)
        right |= matching
        exact = np.ones(count, bool)
        for tap, counted in taps.items():
            exact &= counted == (tap in hops)
        tapped |= matching & (exact | in_link)
    delivered = arrived > 0
    return Verdict(
        sent=len(start.seq),
        in_link=int(in_link.sum()),
        lost=int((~delivered & ~in_link).sum()),
        duplicated=int((np.maximum.reduce([arrived, *(each[0] for each in stations.values())]) > 1).sum()),
        mixed=int((delivered & ~right).sum()),
        at_taps=int((delivered & right & ~tapped).sum()),
        turned_under_way=_under_way(facts, out, port, far, sent_ns),
    )


def _at(out: Path, port: int, count: int, *names: str, direction: str = "in") -> tuple[Seqs, Seqs]:
    """By sequence number: how often a place saw the packet, and when first."""
    found = [seen(path, port) for name in names if (path := out / f"{name}-{direction}.pcap").exists()]
    seq = np.concatenate([each.seq for each in found])
    t_ns = np.concatenate([each.t_ns for each in found])
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, seq, t_ns)
    return np.bincount(seq, minlength=count).astype(np.int64), first


def _passed(stations: dict[str, tuple[Seqs, Seqs]], boxes: list[str]) -> npt.NDArray[np.bool_]:
    """The packets that came to exactly these boxes, once each, in this order."""
    (counts, _), *_ = stations.values()
    right = np.ones(len(counts), bool)
    for name, (counted, _) in stations.items():
        right &= counted == (name in boxes)
    for one, then in pairwise(boxes):
        right &= stations[one][1] <= stations[then][1]  # in virtual time a box may take no time at all
    return right


def _versions(facts: dict[str, Any]) -> tuple[list[list[str]], list[tuple[int, int]]]:
    """Each version that stood, with the first and the last instant of a packet's sending that may have seen it.

    Packets may have turned, for a while, to one that was undone.
    """
    hops, windows = [facts["versions"][0]["hops"]], [(0, 0)]
    longest_ns = _LONGEST_NS + facts.get("held_ns", 0)
    for passed, (first_ns, last_ns) in _shifted(facts):
        windows[-1] = windows[-1][0], last_ns + _MARGIN_NS
        windows.append((first_ns - longest_ns, 0))
        hops.append(passed)
    windows[-1] = windows[-1][0], np.iinfo(np.int64).max
    for swap in (version["swap"] for version in facts["versions"][1:]):
        if swap["outcome"] == "old":
            hops += swap["passed"]
            windows += [(swap["began_ns"] - longest_ns, swap["ended_ns"] + _MARGIN_NS)] * len(swap["passed"])
    return hops, windows


def _shifted(facts: dict[str, Any]) -> Iterator[tuple[list[str], tuple[int, int]]]:
    """The chains that packets turned to, those that a swap only passes included, and when."""
    for swap in (version["swap"] for version in facts["versions"][1:]):
        if swap["outcome"] == "new":
            yield from ((hops, at) for hops, at in zip(swap["passed"], swap["shifts"], strict=False) if at is not None)


def _under_way(facts: dict[str, Any], out: Path, port: int, far: str, sent_ns: Seqs) -> int:
    """The fewest packets that were between the hosts while any swap shifted."""
    end = seen(out / f"{far}-eth0-in.pcap", port)
    left = sent_ns[end.seq]
    shifts = [began_ns for _, (began_ns, _) in _shifted(facts)]
    return min((int(((left < shift) & (end.t_ns > shift)).sum()) for shift in shifts), default=len(left))
