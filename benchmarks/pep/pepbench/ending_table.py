# SPDX-License-Identifier: Apache-2.0
"""Connections with every ending in turn through two boxes and a lossy link between them: what became of each."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from atoll_core.errors import AtollError
from atoll_hosts.job import Job
from pepbench.ways import MULTIPLEXED, PEPSAL, PEPSAL_SETTINGS, SPLIT, start_pepsal
from tests.guests.pep_peer import ENDINGS, RIGHT
from tests.support.agent_lab import machines
from tests.support.pep_lab import SETTINGS, Proxied, behind_another, connected, lose_packets, multiplexed, start

_SILENCE = {"silence_ns": 4_000_000_000, "flush_ns": 60_000_000_000}
_AT_ONCE = 400
_AT_ONCE_PEPSAL = 50  # with more it dies, and its box routes


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of connections, by their endings, and what the programs of both boxes have left; none: one died.

    Memory is what the second half of the connections has added: the first one fills what allocators keep.
    """

    endings: Mapping[str, Mapping[str, int]]
    descriptors: int | None
    memory_bytes: int | None


async def ended(way: str, count: int, pepsal: Path | None, directory: Path) -> Ended:
    """So many connections one way, in two halves."""
    at_once = _AT_ONCE_PEPSAL if way == PEPSAL else _AT_ONCE
    counts = {name: Counter[str]() for name in ENDINGS}
    async with _boxes(way, pepsal, directory) as (pep, jobs):
        held = [[await _held(pep, job) for job in jobs]]
        for first, until in pairwise((0, count // 2, count)):
            for name, counted in (await pep.endings(until - first, at_once, first)).items():
                counts[name].update(counted)
            if way != PEPSAL:
                await pep.settled()
            held.append([await _held(pep, job) for job in jobs])
    endings = {name: dict(counted) for name, counted in counts.items()}
    before, half, after = ([sum(one[what] for one in each) for what in (0, 1)] for each in held)
    if not all(any(each) for each in held[-1]):
        return Ended(endings, None, None)
    return Ended(endings, after[0] - before[0], after[1] - half[1])


@asynccontextmanager
async def _boxes(way: str, pepsal: Path | None, directory: Path) -> AsyncGenerator[tuple[Proxied, list[Job]]]:
    settings = PEPSAL_SETTINGS if way == PEPSAL else SETTINGS
    async with machines(directory) as lab:
        pep, other = await behind_another(lab, 1500, settings, settings)
        await pep.server()
        await lose_packets(pep, other)
        if way == PEPSAL:
            if not pepsal:
                raise AtollError("PEPsal is not here")
            yield pep, await start_pepsal(pep, pepsal, other)
            return
        given = {side: multiplexed(side) if way == MULTIPLEXED else {} for side in ("world", "island")}
        far = await start(lab, "other", other, **_SILENCE, **given["island"])
        near = await pep.start(**_SILENCE, **given["world"])
        if way == MULTIPLEXED:
            await connected(pep)
        yield pep, [near, far]


async def _held(pep: Proxied, job: Job) -> tuple[int, int]:
    """Descriptors and resident memory of a process (proc(5)); nothing of one that has died."""
    descriptors = len((await pep.lab.run(None, f"ls /proc/{job.pid}/fd", check=False)).split())
    kilobytes = (await pep.lab.run(None, f"grep VmRSS /proc/{job.pid}/status", check=False)).split()
    return descriptors, int(kilobytes[1]) * 1024 if kilobytes else 0


def table(by_way: Mapping[str, Ended]) -> str:
    """A row for each ending, a column for each way."""
    ways = list(by_way)
    rows = [[name, *(_cell(by_way[way].endings[name]) for way in ways)] for name in ENDINGS]
    rows.append(["descriptors left", *(_left(by_way[way].descriptors, "{}") for way in ways)])
    rows.append(
        [
            "memory of both programs, second half, MiB",
            *(_left(by_way[way].memory_bytes, "{:+.1f}", 1 << 20) for way in ways),
        ]
    )
    counts = [sum(sum(each.values()) for each in by_way[way].endings.values()) for way in ways]
    head = ["ending", *(f"{way}: {count:,} connections" for way, count in zip(ways, counts, strict=True))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---", *("---:" for _ in ways)], *rows])


def _left(count: int | None, shown: str, unit: int = 1) -> str:
    return "a program has died" if count is None else shown.format(count / unit if unit > 1 else count)


def _cell(counted: Mapping[str, int]) -> str:
    others = [f"{count:,} with {how}" for how, count in counted.items() if how != RIGHT]
    return ", ".join([f"{counted.get(RIGHT, 0):,} {RIGHT}", *others])


WAYS = (SPLIT, MULTIPLEXED, PEPSAL)
