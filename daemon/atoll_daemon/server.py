# SPDX-License-Identifier: Apache-2.0
"""The daemon's process: serves the API on its Unix socket, and on TCP ports on request."""

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import WSMessage, WSMsgType, web

from atoll_core.errors import AtollError, LabError
from atoll_core.garbage_collection import relax_garbage_collection
from atoll_core.platforms import HARDWARE, LabTarget
from atoll_daemon.http import write_handlers
from atoll_daemon.http.api_models import LabRequest, PortRequest, Request
from atoll_daemon.http.auth import AccessControl, is_local, local_only_error
from atoll_daemon.http.http_app import HttpHandler, add_page, errors_as_json, is_page, make_runner
from atoll_daemon.http.http_errors import RequestError, no_lab_is_up
from atoll_daemon.http.openapi import Handler
from atoll_daemon.http.request_parsing import MOST_BODY_BYTES, parameters, read_model
from atoll_daemon.http.responses import json_answer
from atoll_daemon.http.routes import ROUTES
from atoll_daemon.http.tcp_listener import ListenAddress, ServedPort, serve_locally
from atoll_daemon.lab_daemon import LabDaemon
from atoll_daemon.socket_lock import bind_daemon_socket
from atoll_emulation.mininet_lab.emulated_lab import LabShell
from atoll_testbed.testbed import Testbed

# Not the hard limit, often a million: Mininet's mnexec, started for each host, closes as many one by one.
_MOST_DESCRIPTORS = 1 << 16


class Server:
    """Serves the API of a :class:`LabDaemon`."""

    def __init__(self, daemon: LabDaemon) -> None:
        self._daemon = daemon
        self._access = AccessControl()
        self._ports: list[ServedPort] = []
        self._runner = make_runner(self._application())

    async def serve(self, listener: socket.socket) -> None:
        """Serve until `down`, a signal, the end of the starting run or of the lab; then take the lab down."""
        await self._runner.setup()
        if self._runner.server is None:
            raise LabError("the daemon cannot be served")
        unix_server = await serve_locally(listener, self._runner.server)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._daemon.end.set)
        if self._daemon.for_run:
            self._daemon.spawn(self._end_with_parent())
        await self._daemon.end.wait()
        for port in self._ports:
            port.close()
        await self._daemon.stop()
        self._daemon.events.close()
        unix_server.close()  # its name is the lock of this machine's lab
        await self._runner.cleanup()

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[errors_as_json, self._authorize], client_max_size=MOST_BODY_BYTES)
        for route in ROUTES:
            app.router.add_route(route.method, route.path, self._wrap(route.handler, route.query))
        add_page(app)
        # Requests of local commands only: they name files, or belong to the user at a terminal.
        app.router.add_post("/v1/lab", _local_only(self._wrap(write_handlers.post_lab, LabRequest)))
        app.router.add_post("/v1/ports", _local_only(self._open_port))
        app.router.add_get("/v1/shell", _local_only(self._shell))
        return app

    def _wrap(self, handler: Handler, query: type[Request]) -> HttpHandler:
        """Serve requests by a handler, which reads their parameters itself if it has any."""

        async def serve(request: web.Request) -> web.StreamResponse:
            if query is Request:
                parameters(request, Request)  # raises for any
            answer = await handler(self._daemon, request)
            return answer if isinstance(answer, web.StreamResponse) else json_answer(answer)

        return serve

    @web.middleware
    async def _authorize(self, request: web.Request, handler: HttpHandler) -> web.StreamResponse:
        self._access.authorize(request, public=is_page(request))
        return await handler(request)

    async def _open_port(self, request: web.Request) -> web.StreamResponse:
        """Listen on a TCP port as well; the answer has its URL."""
        parameters(request, Request)
        body = await read_model(request, PortRequest)
        address = ListenAddress.parse(body.address)
        same_host = [port for port in self._ports if replace(port.address, port=address.port) == address]
        port = next((port for port in same_host if address.port in (0, port.address.port)), None)
        if port is None:
            server = self._runner.server
            if server is None:
                raise RequestError(503, "the daemon is ending", exit_code=1)
            port = await ServedPort.open(address, server)
            self._ports.append(port)
        self._access.set_token(body.token)
        self._access.host_names.add(address.host.lower())
        self._daemon.listens = [port.address.url for port in self._ports]
        self._daemon.token_file = body.token_file
        return json_answer({"url": port.address.url})

    async def _shell(self, request: web.Request) -> web.StreamResponse:
        return await serve_shell(request, self._daemon)

    async def _end_with_parent(self) -> None:
        """End when standard input is closed: the starting run has its other end open as long as it lives."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        with contextlib.suppress(OSError):
            while await reader.read(4096):
                pass
        self._daemon.end.set()


def _local_only(handler: HttpHandler) -> HttpHandler:
    """Serve a request on the Unix socket only."""

    async def serve(request: web.Request) -> web.StreamResponse:
        if not is_local(request):
            raise local_only_error()
        return await handler(request)

    return serve


def _raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors, often 1024, for all connections, agents and logs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_MOST_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def main(arguments: list[str]) -> int:
    """Entry point of ``python -m atoll_daemon``."""
    parser = argparse.ArgumentParser(prog="atoll_daemon", description=__doc__)
    parser.add_argument("--for-run", action="store_true", help="end when standard input ends")
    parser.add_argument("--inventory", type=Path, help="the inventory of a lab of real machines, an absolute path")
    options = parser.parse_args(arguments)
    target = LabTarget(HARDWARE, options.inventory) if options.inventory else LabTarget()
    try:
        listener = bind_daemon_socket(target)
    except AtollError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code

    relax_garbage_collection()
    _raise_descriptor_limit()

    async def serve_lab() -> int:
        daemon = LabDaemon(target, for_run=options.for_run)
        if not options.for_run:
            os.chdir("/")  # so that the file system of the current directory can be unmounted
        await Server(daemon).serve(listener)
        return 1 if daemon.testbed is not None and daemon.testbed.failed.done() else 0

    ready: dict[str, Any] = {"type": "ready", "pid": os.getpid()}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    return asyncio.run(serve_lab())


_LONGEST_SCRIPT_BYTES = 16 * 1024 * 1024  # a script is one message


async def serve_shell(request: web.Request, daemon: LabDaemon) -> web.WebSocketResponse:
    """Serve a shell until the session or the connection ends."""
    socket = web.WebSocketResponse(max_msg_size=_LONGEST_SCRIPT_BYTES)
    await socket.prepare(request)
    opening = await socket.receive()
    if opening.type is not WSMsgType.TEXT:
        return socket
    if daemon.testbed is None:
        await _end_shell(socket, no_lab_is_up(daemon.target))
        return socket
    try:
        shell = await _open_shell(daemon.testbed, json.loads(opening.data))
    except LabError as error:  # a lab of real machines has no Mininet
        await _end_shell(socket, str(error))
        return socket
    output_task = asyncio.create_task(_forward_output(shell, socket))
    try:
        async for message in socket:
            await _forward_input(message, shell)
    finally:
        output_task.cancel()
        await asyncio.shield(shell.close())  # this handler may be cancelled here, by the end of the connection
    return socket


async def _open_shell(testbed: Testbed, opening: dict[str, Any]) -> LabShell:
    if "script" in opening:
        return await testbed.lab.run_script(opening["script"])
    return await testbed.lab.open_shell(opening["columns"], opening["rows"])


async def _forward_input(message: WSMessage, shell: LabShell) -> None:
    if message.type is WSMsgType.BINARY:
        await shell.write(message.data)
    elif message.type is WSMsgType.TEXT:
        size = json.loads(message.data)
        await shell.resize(size["columns"], size["rows"])


async def _forward_output(shell: LabShell, socket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):  # the client has disconnected
        while output := await shell.read():
            await socket.send_bytes(output)
        await _end_shell(socket, shell.refusal)


async def _end_shell(socket: web.WebSocketResponse, reason: str | None) -> None:
    """Send the last message, which says how the session ended."""
    end = {"type": "done"} if reason is None else {"type": "error", "message": reason, "exit_code": LabError.exit_code}
    await socket.send_json(end)
    await socket.close()
