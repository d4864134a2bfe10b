# SPDX-License-Identifier: Apache-2.0
"""`shell`: Mininet's CLI on the lab that is up, at this terminal (or fed from a pipe)."""

import asyncio
import contextlib
import os
import shutil
import sys
import termios
import tty
from collections.abc import Generator
from typing import Any

from aiohttp import WSMsgType, WSServerHandshakeError

from atoll.keeper.client import connected
from atoll.model.errors import LabError

_END_OF_INPUT = b"\x04"  # Ctrl-D: what a terminal sends at the end of its input


def open_shell() -> None:
    """`atoll shell`."""
    asyncio.run(_shell())


async def _shell() -> None:
    async with connected() as keeper:
        if keeper is None:
            msg = "no lab is up; `atoll up LAB` starts one"
            raise LabError(msg)
        size = shutil.get_terminal_size()
        try:
            async with keeper.shell(size.columns, size.lines) as socket:
                with _raw_terminal():
                    typing = asyncio.create_task(_send_typed(socket))
                    try:
                        async for message in socket:
                            if message.type is WSMsgType.BINARY:
                                sys.stdout.buffer.write(message.data)
                                sys.stdout.buffer.flush()
                    finally:
                        typing.cancel()
        except WSServerHandshakeError as error:
            msg = f"the lab gave no shell ({error.status}): it may have one open already"
            raise LabError(msg) from None


async def _send_typed(socket: Any) -> None:
    loop = asyncio.get_running_loop()
    typed: asyncio.Queue[bytes] = asyncio.Queue()

    def take() -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        typed.put_nowait(data)
        if not data:
            loop.remove_reader(sys.stdin.fileno())

    loop.add_reader(sys.stdin.fileno(), take)
    try:
        while data := await typed.get():
            await socket.send_bytes(data)
        await socket.send_bytes(_END_OF_INPUT)
    finally:
        with contextlib.suppress(ValueError, OSError):
            loop.remove_reader(sys.stdin.fileno())


@contextlib.contextmanager
def _raw_terminal() -> Generator[None]:
    """Every key goes to the shell as typed, Ctrl-C included; the terminal is put back afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
