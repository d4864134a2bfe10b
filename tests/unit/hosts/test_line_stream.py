# SPDX-License-Identifier: Apache-2.0
"""A process that says lines: taken as they come, or together from time to time."""

import asyncio

from atoll_hosts.line_stream import LineProcess

EVERY_S = 0.2
SAID = 100
SAYS = f"for i in $(seq {SAID}); do echo $i; sleep 0.01; done"


async def heard(command: str, every_s: float) -> list[tuple[float, bytes]]:
    """When each line was handed on. Lines that are read together have the same time."""
    loop = asyncio.get_running_loop()
    lines: list[tuple[float, bytes]] = []
    together_s: list[float] = []

    def take(line: bytes) -> None:
        if not together_s:
            together_s.append(loop.time())
            loop.call_soon(together_s.clear)
        lines.append((together_s[0], line))

    process = LineProcess(take, 100)
    await process.start(["sh", "-c", command])
    process.read_every(every_s)
    assert await process.wait() == "exit status 0"
    return lines


async def test_lines_read_from_time_to_time_come_together_and_all_of_them() -> None:
    lines = await heard(SAYS, EVERY_S)
    assert [line for _, line in lines] == [str(number).encode() for number in range(1, SAID + 1)]
    begun_s = lines[0][0] + EVERY_S  # until then what comes may be an answer
    reads = sorted({at_s for at_s, _ in lines if at_s > begun_s})
    assert len(reads) <= (reads[-1] - reads[0]) / EVERY_S + 2


async def test_more_than_a_pipe_holds_is_read_to_its_end() -> None:
    lines = await heard("sleep 0.2; yes 123456789 | head -c 400000", 0.1)
    assert lines[-1][1] == b"123456789"
    assert len(lines) == 40_000


async def test_an_answer_is_read_as_it_arrives() -> None:
    """However rarely other lines are read; and the end is noticed."""
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    process = LineProcess(answers.put_nowait, 100)
    await process.start(["cat"])
    process.read_every(3600)
    for line in (b"first", b"second"):
        process.write(line + b"\n")
        assert await answers.get() == line
    process.read_every(0)
    process.write(b"third\n")
    assert await answers.get() == b"third"
    process.close_input()
    assert await process.wait() == "exit status 0"
