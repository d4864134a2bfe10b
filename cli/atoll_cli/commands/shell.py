# SPDX-License-Identifier: Apache-2.0
"""`shell`: Mininet's CLI on the lab that is up, at this terminal, or with standard input as its script."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncGenerator, Generator
from typing import Any

from aiohttp import ClientError, WSMsgType, WSServerHandshakeError

from atoll_core.errors import AtollError, LabError
from atoll_daemon.client import KEEPER_DIED, DaemonDiedError, RequestRefusedError, connected
from atoll_daemon.http.http_errors import no_lab_is_up
from atoll_daemon.socket_lock import daemon_holder

_LONGEST_SCRIPT = 1 << 20  # bytes; it travels as one message


def open_shell() -> None:
    """`atoll shell`: returns at the end of the session; LabError when there is none, or the lab ends before it."""
    if os.isatty(0):
        asyncio.run(_converse())
        return
    if daemon_holder() is None:  # said before anybody writes a script
        raise LabError(no_lab_is_up())
    asyncio.run(_run_script(_standard_input()))


def _standard_input() -> str:
    """All of it. Outside of any event loop, so that Ctrl-C ends the wait for it."""
    try:
        with open(0, "rb", closefd=False) as stream:
            text = stream.read(_LONGEST_SCRIPT + 1)
    except OSError as error:
        msg = f"cannot read standard input: {error.strerror}"
        raise AtollError(msg) from None
    if len(text) > _LONGEST_SCRIPT:
        msg = f"standard input is longer than {_LONGEST_SCRIPT} bytes; run it in parts"
        raise AtollError(msg)
    return text.decode(errors="replace")


async def _run_script(script: str) -> None:
    async with _session({"script": script}) as socket:
        await _print_to_the_end(socket)


async def _converse() -> None:
    async with _session(_window()) as socket:
        with _raw_terminal(), _telling_resizes(socket):
            typing = asyncio.create_task(_send_typed(socket))
            try:
                await _print_to_the_end(socket)
            except LabError:
                os.write(1, b"\r\n")  # what is said about it gets a line of its own
                raise
            finally:
                typing.cancel()
                await asyncio.wait([typing])


@contextlib.asynccontextmanager
async def _session(asked: dict[str, Any]) -> AsyncGenerator[Any]:
    """The WebSocket on which a shell was asked for; LabError for whatever is against it."""
    async with connected() as daemon:
        if daemon is None:
            raise LabError(no_lab_is_up())
        try:
            async with daemon.shell() as socket:
                await socket.send_json(asked)
                yield socket
        except WSServerHandshakeError as error:
            msg = f"the daemon gave no shell: {error.status} {error.message}"
            raise LabError(msg) from None
        except ClientError:
            raise DaemonDiedError(KEEPER_DIED) from None


async def _print_to_the_end(socket: Any) -> None:
    """Print what the shell prints; returns at its end. RefusedError, KeeperDiedError."""
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            sys.stdout.buffer.write(message.data)
            sys.stdout.buffer.flush()
        elif message.type is WSMsgType.TEXT:
            last = json.loads(message.data)
            if last["type"] == "error":
                raise RequestRefusedError(last["message"], last["exit_code"])
            return
    raise DaemonDiedError(KEEPER_DIED)


async def _send_typed(socket: Any) -> None:
    """Send keys as they are typed; leaves the shell when the terminal is gone."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Queue[bytes] = asyncio.Queue()

    def take() -> None:
        try:
            typed.put_nowait(os.read(0, 4096))
        except OSError:  # EIO: it hung up
            typed.put_nowait(b"")

    loop.add_reader(0, take)
    try:
        with contextlib.suppress(ClientError):  # the reader of the socket says it
            while keys := await typed.get():
                await socket.send_bytes(keys)
            await socket.close()
    finally:
        loop.remove_reader(0)


def _window() -> dict[str, Any]:
    size = os.get_terminal_size(0)  # shutil's would believe COLUMNS and LINES
    return {"columns": size.columns, "rows": size.lines}


@contextlib.contextmanager
def _telling_resizes(socket: Any) -> Generator[None]:
    """While this holds, the shell learns of every new size of the terminal's window."""
    loop = asyncio.get_running_loop()
    telling: set[asyncio.Task[None]] = set()

    async def tell() -> None:
        with contextlib.suppress(ClientError):
            await socket.send_json(_window())

    def resized() -> None:
        task = loop.create_task(tell())
        telling.add(task)
        task.add_done_callback(telling.discard)

    loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


@contextlib.contextmanager
def _raw_terminal() -> Generator[None]:
    """Every key goes to the shell as typed, Ctrl-C included; the terminal is put back afterwards."""
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
