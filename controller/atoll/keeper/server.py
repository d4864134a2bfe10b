# SPDX-License-Identifier: Apache-2.0
"""The keeper: one process that owns one testbed from `up` to `down` and serves its API.

Long requests answer with a stream of JSON lines, the last of which is ``done`` or ``error``. A run is a
task of the request that asked for it: when the connection ends, the run is cancelled.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from atoll.control.inventory import switch_reports
from atoll.experiment.calibrate import calibrate
from atoll.experiment.connections import Connections
from atoll.experiment.request import create_run
from atoll.experiment.run import Run
from atoll.experiment.testbed import Testbed, changes_json, while_up
from atoll.keeper.address import bind_keeper_socket, may_talk, peer
from atoll.keeper.shell import serve_shell
from atoll.model.codec import from_json, to_json
from atoll.model.errors import AtollError, LabError
from atoll.model.experiment import Experiment
from atoll.model.network import Network
from atoll.model.plan import Backend
from atoll.model.switch import Runtime
from atoll.openflow.collector import relax_collector

_MAX_BODY = 16 * 1024 * 1024
_NO_LAB = "no lab is up; `atoll up LAB` starts one"
_SHUTDOWN_S = 2.0

Emit = Callable[[dict[str, Any]], None]
Work = Callable[[Emit], Awaitable[dict[str, Any]]]


class Keeper:
    """State and handlers. ``for_run``: started by a run for itself, ends with its starter."""

    def __init__(self, *, for_run: bool) -> None:
        self._for_run = for_run
        self._testbed: Testbed | None = None
        self._busy: dict[str, Any] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._end = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    def application(self) -> web.Application:
        """The API as an aiohttp application."""
        app = web.Application(middlewares=[_errors_as_json, _only_our_user], client_max_size=_MAX_BODY)
        app.add_routes(
            [
                web.get("/status", self._status),
                web.get("/switches", self._switches),
                web.post("/up", self._up),
                web.post("/apply", self._apply),
                web.post("/run", self._run),
                web.post("/calibrate", self._calibrate),
                web.post("/down", self._down),
                web.get("/shell", self._shell),
            ]
        )
        return app

    async def serve(self, listener: Any) -> None:
        """Serve until `down`, a signal, the end of the starter or the end of the lab; then take the lab down."""
        runner = web.AppRunner(
            self.application(), handler_cancellation=True, shutdown_timeout=_SHUTDOWN_S, access_log=None
        )
        await runner.setup()
        await web.SockSite(runner, listener).start()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._end.set)
        if self._for_run:
            self._spawn(self._end_with_starter())
        await self._end.wait()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._testbed is not None:
            await self._testbed.stop()
        await runner.cleanup()

    # Handlers

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(self._describe())

    async def _switches(self, _: web.Request) -> web.Response:
        if self._testbed is None:
            return web.json_response({"error": _NO_LAB}, status=409)
        reports = await switch_reports(self._testbed.controller, self._testbed.network)
        return web.json_response({"switches": to_json(reports)})

    def _describe(self) -> dict[str, Any]:
        testbed = self._testbed
        return {
            "pid": os.getpid(),
            "for_run": self._for_run,
            "busy": self._busy,
            "lab": None
            if testbed is None
            else {
                "name": testbed.network.name,
                "file": testbed.network.file,
                "network": to_json(testbed.network),
                "datapath": testbed.lab.datapath,
                "ovs": testbed.lab.ovs_version,
                "controller": testbed.controller.runtime,
                "switches": {
                    switch.name: "up" if testbed.controller.switches[switch.dpid].up else "down"
                    for switch in testbed.network.switches
                    if switch.dpid in testbed.controller.switches
                },
                "experiment": testbed.experiment.name if testbed.experiment else None,
                "chain": list(testbed.experiment.chain.hops) if testbed.experiment else None,
            },
        }

    async def _up(self, request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        network = _placed(from_json(Network, body["network"]))
        runtime = Runtime(body.get("runtime", Runtime.OS_KEN))

        async def work(emit: Emit) -> dict[str, Any]:
            if self._testbed is not None:
                _require_runtime(self._require_lab(network), body.get("runtime"))
                return {"already": True}
            self._testbed = await Testbed.start(network, lambda text: emit({"type": "progress", "text": text}), runtime)
            self._spawn(self._end_with_lab(self._testbed))
            return {"already": False}

        try:
            return await self._stream(request, "up", {"lab": network.name}, work)
        finally:
            if self._testbed is None and self._busy is None:
                self._end.set()  # or it would hold the machine's lock for nothing

    async def _apply(self, request: web.Request) -> web.StreamResponse:
        body, experiment, network, backend = await _asked(request)

        async def work(emit: Emit) -> dict[str, Any]:
            testbed = self._require_lab(network)
            plan, changes = await testbed.apply(
                experiment,
                backend,
                dry_run=bool(body["dry_run"]),
                at_once=bool(body.get("at_once", False)),
                connections=Connections.parse(body.get("connections", "reset")),
                tell=emit,
            )
            return {
                "changes": changes_json(changes),
                "lines": [str(change) for change in changes],
                "experiment": plan.experiment,
            }

        return await self._stream(request, "apply", {"experiment": experiment.name}, work)

    async def _run(self, request: web.Request) -> web.StreamResponse:
        body, experiment, network, backend = await _asked(request)

        async def work(emit: Emit) -> dict[str, Any]:
            testbed = self._require_lab(network)
            _require_runtime(testbed, body.get("runtime"))
            run_dir = create_run(Path(body["runs"]), network, experiment, backend, "mininet", time.time_ns())
            emit({"type": "run", "run_dir": str(run_dir.path)})
            run = Run(testbed, experiment, run_dir, emit, backend)
            await run.measure(body["started_ns"])
            return {"run_dir": str(run_dir.path), "summary": await run.analyse() if body["analyse"] else None}

        return await self._stream(request, "run", {"experiment": experiment.name}, work)

    async def _calibrate(self, request: web.Request) -> web.StreamResponse:
        body, experiment, network, backend = await _asked(request)
        wanted, seconds = [str(name) for name in body["directions"]], float(body["seconds"])

        async def work(emit: Emit) -> dict[str, Any]:
            testbed = self._require_lab(network)
            await testbed.apply(experiment, backend, at_once=True)
            found = await while_up(
                testbed,
                calibrate(testbed, experiment, wanted, seconds, lambda text: emit({"type": "progress", "text": text})),
            )
            return {"calibration": to_json(found)}

        return await self._stream(request, "calibrate", {"experiment": experiment.name}, work)

    async def _down(self, _: web.Request) -> web.Response:
        self._end.set()
        return web.json_response({"ok": True})

    async def _shell(self, request: web.Request) -> web.StreamResponse:
        return await serve_shell(request, self._testbed)

    # Plumbing

    def _require_lab(self, network: Network) -> Testbed:
        testbed = self._testbed
        if testbed is None:
            raise LabError(_NO_LAB)
        if testbed.failed.done():
            raise LabError(testbed.failed.result())
        if testbed.network != network:
            up = f"{testbed.network.name}, {testbed.network.file}"
            msg = f"the lab that is up ({up}) is not {network.file} as it reads now; `atoll down` first"
            raise LabError(msg)
        return testbed

    async def _end_with_lab(self, testbed: Testbed) -> None:
        reason = await asyncio.shield(testbed.failed)
        # A request in progress learns of it first: it has its own measurements to keep.
        await self._idle.wait()
        sys.stderr.write(f"keeper: {reason}\n")
        self._end.set()

    async def _end_with_starter(self) -> None:
        """The starter holds the other end of standard input for as long as it lives."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        with contextlib.suppress(OSError):
            while await reader.read(4096):
                pass
        self._end.set()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stream(self, request: web.Request, what: str, about: dict[str, Any], work: Work) -> web.StreamResponse:
        if self._busy is not None:
            busy = f"{self._busy['what']} {self._busy.get('experiment') or self._busy.get('lab')}"
            return web.json_response({"error": f"the lab is busy with `{busy}`; one at a time"}, status=409)
        self._busy = {"what": what, **about, "since_ns": time.time_ns()}
        self._idle.clear()
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        task = asyncio.create_task(_outcome(work, lines.put_nowait))
        self._tasks.add(task)
        try:
            await response.prepare(request)
            while True:
                line = await lines.get()
                await response.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
                if line["type"] in ("done", "error"):
                    break
        except ConnectionError:
            pass
        finally:
            task.cancel()
            await asyncio.wait([task])
            self._tasks.discard(task)
            self._busy = None
            self._idle.set()
        return response


def _placed(network: Network) -> Network:
    """The network with the whole path of its file: who asks later may be in another directory than who began."""
    return replace(network, file=os.path.abspath(network.file))  # noqa: PTH100 (Path.absolute keeps `..`)


def _require_runtime(testbed: Testbed, wanted: str | None) -> None:
    if wanted is not None and wanted != testbed.runtime:
        msg = f"the lab that is up has {testbed.runtime} as its controller's runtime, not {wanted}; `atoll down` first"
        raise LabError(msg)


async def _asked(request: web.Request) -> tuple[dict[str, Any], Experiment, Network, Backend]:
    """The body of a request about an experiment, and what every such body names."""
    body: dict[str, Any] = await request.json()
    return (
        body,
        from_json(Experiment, body["experiment"]),
        from_json(Network, body["network"]),
        Backend(body["backend"]),
    )


async def _outcome(work: Work, emit: Emit) -> None:
    try:
        emit({"type": "done", **await work(emit)})
    except AtollError as error:
        emit({"type": "error", "message": str(error), "exit_code": error.exit_code})
    except asyncio.CancelledError:
        emit({"type": "error", "message": "cancelled", "exit_code": 1})
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours must not leave the verb waiting
        traceback.print_exc()
        message = f"internal error in the keeper: {type(error).__name__}: {error}"
        emit({"type": "error", "message": message, "exit_code": 1})


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.json_response({"error": f"{request.method} {request.path}: {error.reason}"}, status=error.status)
    except (KeyError, TypeError, ValueError) as error:  # a body that is not what docs/contracts.md says
        return web.json_response({"error": f"{request.method} {request.path}: bad request: {error}"}, status=400)


@web.middleware
async def _only_our_user(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    transport = request.transport
    if transport is None:
        return web.json_response({"error": "the connection has ended"}, status=400)
    _, uid = peer(transport.get_extra_info("socket"))
    if not may_talk(uid):
        return web.json_response({"error": "this lab belongs to another user"}, status=403)
    return await handler(request)


def main(arguments: list[str]) -> int:
    """Entry point of ``python -m atoll.keeper``."""
    parser = argparse.ArgumentParser(prog="atoll.keeper", description=__doc__)
    parser.add_argument("--for-run", action="store_true", help="end when standard input ends")
    options = parser.parse_args(arguments)
    try:
        listener = bind_keeper_socket()
    except AtollError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code

    relax_collector()

    async def keep() -> None:
        await Keeper(for_run=options.for_run).serve(listener)

    sys.stdout.write(json.dumps({"type": "ready", "pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    asyncio.run(keep())
    return 0
