# SPDX-License-Identifier: Apache-2.0
"""`atoll shell`: Mininet's CLI on the running lab, at this terminal or with standard input as its script."""

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
from atoll_core.platforms import LabTarget
from atoll_daemon.client import DAEMON_DIED, request_refused, running_lab
from atoll_daemon.http.http_errors import no_lab_is_up
from atoll_daemon.socket_lock import daemon_holder

_LONGEST_SCRIPT_BYTES = 1 << 20  # bytes; it travels as one message


def open_shell(target: LabTarget) -> None:
    """`atoll shell`: returns at the end of the session. Raises LabError if no lab is up, or if it goes down."""
    if os.isatty(0):
        asyncio.run(_run_interactive(target))
        return
    if daemon_holder(target) is None:  # before standard input is read
        raise LabError(no_lab_is_up(target))
    asyncio.run(_run_script(target, _read_standard_input()))


def _read_standard_input() -> str:
    """Read standard input to its end, outside of an event loop so that Ctrl-C ends the wait."""
    try:
        with open(0, "rb", closefd=False) as stream:
            text = stream.read(_LONGEST_SCRIPT_BYTES + 1)
    except OSError as error:
        msg = f"cannot read standard input: {error.strerror}"
        raise AtollError(msg) from None
    if len(text) > _LONGEST_SCRIPT_BYTES:
        msg = f"the script on standard input is longer than {_LONGEST_SCRIPT_BYTES} bytes; run it in parts"
        raise AtollError(msg)
    return text.decode(errors="replace")


async def _run_script(target: LabTarget, script: str) -> None:
    async with _session(target, {"script": script}) as socket:
        await _print_output(socket)


async def _run_interactive(target: LabTarget) -> None:
    async with _session(target, _window_size()) as socket:
        with _raw_terminal(), _forwarding_resizes(socket):
            typing_task = asyncio.create_task(_send_typed(socket))
            try:
                await _print_output(socket)
            except LabError:
                os.write(1, b"\r\n")  # the error message begins on a new line
                raise
            finally:
                typing_task.cancel()
                await asyncio.wait([typing_task])


@contextlib.asynccontextmanager
async def _session(target: LabTarget, request: dict[str, Any]) -> AsyncGenerator[Any]:
    """The WebSocket of a shell that has been requested. Raises LabError if there can be none."""
    async with running_lab(target) as daemon:
        try:
            async with daemon.shell() as socket:
                await socket.send_json(request)
                yield socket
        except WSServerHandshakeError as error:
            msg = f"the daemon refused a shell: {error.status} {error.message}"
            raise LabError(msg) from None
        except ClientError:
            raise LabError(DAEMON_DIED) from None


async def _print_output(socket: Any) -> None:
    """Print the shell's output until it ends. Raises LabError."""
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            sys.stdout.buffer.write(message.data)
            sys.stdout.buffer.flush()
        elif message.type is WSMsgType.TEXT:
            answer = json.loads(message.data)
            if answer["type"] == "error":
                raise request_refused(answer)
            return
    raise LabError(DAEMON_DIED)


async def _send_typed(socket: Any) -> None:
    """Send keys as they are typed; ends the shell when the terminal is closed."""
    loop = asyncio.get_running_loop()
    keys_typed: asyncio.Queue[bytes] = asyncio.Queue()

    def read_keys() -> None:
        try:
            keys_typed.put_nowait(os.read(0, 4096))
        except OSError:  # EIO: the terminal hung up
            keys_typed.put_nowait(b"")

    loop.add_reader(0, read_keys)
    try:
        with contextlib.suppress(ClientError):  # the reader of the socket reports it
            while keys := await keys_typed.get():
                await socket.send_bytes(keys)
            await socket.close()
    finally:
        loop.remove_reader(0)


def _window_size() -> dict[str, Any]:
    size = os.get_terminal_size(0)  # shutil's would prefer COLUMNS and LINES
    return {"columns": size.columns, "rows": size.lines}


@contextlib.contextmanager
def _forwarding_resizes(socket: Any) -> Generator[None]:
    """Send every new window size of the terminal to the shell until the block ends."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def send() -> None:
        with contextlib.suppress(ClientError):
            await socket.send_json(_window_size())

    def on_resize() -> None:
        task = loop.create_task(send())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGWINCH, on_resize)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


@contextlib.contextmanager
def _raw_terminal() -> Generator[None]:
    """Set the terminal to raw mode, so that every key including Ctrl-C reaches the shell; restored afterwards."""
    settings = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, settings)
