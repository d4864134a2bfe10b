# SPDX-License-Identifier: Apache-2.0
"""A process that says lines: taken as they come, or together from time to time."""

import asyncio
import time
from itertools import pairwise

from atoll_hosts.line_stream import LineProcess

EVERY_S = 0.4
SAID = 80
SAYS = f"for i in $(seq {SAID}); do echo $i; sleep 0.02; done"


def heard(command: str, every_s: float) -> list[tuple[float, bytes]]:
    """When each line was handed on, by the monotonic clock."""

    async def listen() -> list[tuple[float, bytes]]:
        lines: list[tuple[float, bytes]] = []
        process = LineProcess(lambda line: lines.append((time.monotonic(), line)), 100)
        await process.start(["sh", "-c", command])
        process.read_every(every_s)
        assert await process.wait() == "exit status 0"
        return lines

    return asyncio.run(listen())


def test_lines_read_from_time_to_time_come_together_and_all_of_them() -> None:
    lines = heard(SAYS, EVERY_S)
    assert [line for _, line in lines] == [str(number).encode() for number in range(1, SAID + 1)]
    begun_s = lines[0][0] + 1.5 * EVERY_S  # until then what comes may be an answer
    gaps = [after - before for (before, _), (after, _) in pairwise(lines) if after > begun_s]
    assert sum(gap > 0.01 for gap in gaps) < len(gaps) / 4


def test_more_than_a_pipe_holds_is_read_to_its_end() -> None:
    lines = heard("sleep 0.2; yes 123456789 | head -c 400000", 0.1)
    assert lines[-1][1] == b"123456789"
    assert len(lines) == 40_000


def test_what_is_asked_is_answered_at_once() -> None:
    """Whether it pauses or not, and its end is seen."""

    async def ask() -> None:
        answers: asyncio.Queue[bytes] = asyncio.Queue()
        process = LineProcess(answers.put_nowait, 100)
        await process.start(["cat"])
        process.read_every(0.1)
        await asyncio.sleep(0.2)
        process.write(b"first\n")
        assert await asyncio.wait_for(answers.get(), 10) == b"first"
        await asyncio.sleep(0.3)
        process.write(b"second\n")
        assert await asyncio.wait_for(answers.get(), 10) == b"second"
        process.read_every(0)
        process.write(b"third\n")
        assert await asyncio.wait_for(answers.get(), 10) == b"third"
        process.close_input()
        assert await asyncio.wait_for(process.wait(), 10) == "exit status 0"

    asyncio.run(ask())
