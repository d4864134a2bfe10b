# SPDX-License-Identifier: Apache-2.0
"""Handlers of requests that change a lab: plans, applies, changes of chains and latencies, runs, calibrations."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from atoll_controller.planner.description_warnings import description_warnings
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import lab_of
from atoll_core.description.validation_messages import suggest
from atoll_core.description.yaml_document import Document, label
from atoll_core.errors import DescriptionError, shown
from atoll_core.events.events import Note
from atoll_core.experiment.experiment import DIRECTIONS
from atoll_core.platforms import MININET
from atoll_daemon.http.api_models import (
    ApplyRequest,
    CalibrationRequest,
    ChainRequest,
    ChangeRequest,
    DescriptionRequest,
    DownRequest,
    LabRequest,
    LatencyRequest,
    RunParameters,
)
from atoll_daemon.http.auth import is_local
from atoll_daemon.http.experiment_bodies import (
    DescribedExperiment,
    as_body,
    chain_patch,
    described_by_body,
    described_by_file,
    no_chain_patch,
    warnings_json,
)
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.http.read_handlers import plan_answer
from atoll_daemon.http.request_parsing import parameters, read_body_document, read_object
from atoll_daemon.http.responses import answer, cancelled, json_answer, result_of, wants_lines
from atoll_daemon.lab_daemon import ApplyOptions, LabDaemon
from atoll_daemon.run_registry import RunRecord
from atoll_daemon.task_runner import JsonObject
from atoll_dashboards.influx.same_database import other_database
from atoll_testbed.box_connections import ConnectionPolicy
from atoll_testbed.run.run_request import RunOptions

Read = Callable[[], Awaitable[DescribedExperiment]]


# The lab


async def post_lab(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Bring a lab up."""
    asked = parameters(request, LabRequest)
    document = await read_body_document(request)
    lab = await asyncio.to_thread(lab_of, replace(document, file=label(Path(asked.file))), asked.set)

    async def work() -> JsonObject:
        return await daemon.bring_up(lab, asked.runtime)

    try:
        return await answer(request, daemon.bus, functools.partial(daemon.tasks.begin, "up", lab.network.name, work))
    finally:
        if daemon.testbed is None and daemon.tasks.busy is None:
            daemon.end.set()  # without a lab it must not keep the machine's lock


async def delete_lab(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """Take the lab down; the daemon ends with it."""
    asked = parameters(request, DownRequest)
    busy = daemon.tasks.busy
    if busy is not None and not asked.force:
        remedy = "wait until it ends; `atoll down --force` ends it and the lab"
        raise RequestError(409, f"the lab is busy with `{busy.what} {busy.about}`; {remedy}", exit_code=1)
    daemon.end.set()
    return {"was_up": daemon.testbed is not None}


# Plans and changes


async def post_plan(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The plan of an experiment as if none were applied to this lab; changes nothing."""
    read = await _reading(daemon, request, parameters(request, DescriptionRequest))
    described = await read()
    network = daemon.require_lab()[0].network

    def planned() -> dict[str, Any]:
        plan = make_plan(network, described.experiment, described.backend)
        return plan_answer(plan) | {"warnings": warnings_json(network, described)}

    return await asyncio.to_thread(planned)


async def post_diff(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """The changes that applying an experiment would make, with reasons; changes nothing."""
    read = await _reading(daemon, request, parameters(request, DescriptionRequest))
    return await _apply(
        daemon, request, read, ApplyOptions(dry_run=True, at_once=False, connections=ConnectionPolicy())
    )


async def post_apply(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Apply an experiment with the fewest changes, under traffic."""
    asked = parameters(request, ApplyRequest)
    how = ApplyOptions(asked.dry_run, asked.at_once, ConnectionPolicy.parse(asked.connections), asked.probe)
    return await _apply(daemon, request, await _reading(daemon, request, asked), how)


async def put_chain(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Change a chain under traffic, or add a branch."""
    how = _changing(request)
    wanted = await read_object(request, ChainRequest)
    name = request.match_info["name"]
    patch = chain_patch(name, wanted.chain, wanted.carries)
    return await _apply(daemon, request, _patching(daemon, lambda _: patch), how)


async def delete_chain(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Remove a branch; its traffic takes the remaining chains."""
    how = _changing(request)
    name = request.match_info["name"]
    return await _apply(daemon, request, _patching(daemon, lambda standing: no_chain_patch(name, standing)), how)


async def put_latency(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Change the latency of a world server under traffic."""
    how = _changing(request)
    wanted = await read_object(request, LatencyRequest)
    _require_one(wanted)
    patch = {"latency": {_server(daemon, request): wanted.class_ or wanted.rtt}}
    return await _apply(daemon, request, _patching(daemon, lambda _: patch), how)


async def delete_latency(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Remove the latency of a world server."""
    how = _changing(request)
    patch = {"latency": {_server(daemon, request): None}}
    return await _apply(daemon, request, _patching(daemon, lambda _: patch), how)


# Runs


async def post_run(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Start a run; it continues when the connection ends.

    With `Accept: application/x-ndjson` the answer is in lines, the run ends with the connection, and the status is
    200.
    """
    asked = parameters(request, RunParameters)
    _require_local(request, "runs", asked.runs)
    _require_local(request, "influx", asked.influx)
    read = await _reading(daemon, request, asked)
    daemon.tasks.require_idle()  # before the planning, which takes seconds
    described = await read()
    daemon.require_runtime(asked.runtime)
    runs = Path(asked.runs).resolve() if asked.runs else daemon.runs_folder
    options = RunOptions(described.backend, asked.metrics, asked.full_matrix)
    accepted = await daemon.accept_run(described, options, runs, analyse=asked.analyse)
    started_ns = asked.started_ns or time.time_ns()
    record = RunRecord(described.experiment.name, started_ns, described.experiment.duration.s, metrics=asked.metrics)
    record.warnings = warnings_json(daemon.require_lab()[0].network, described)

    async def work() -> JsonObject:
        if asked.metrics and asked.influx is not None and (other := other_database(asked.influx)):
            daemon.bus.publish(Note(other))
        return await daemon.run(accepted, record)

    def begin() -> asyncio.Task[JsonObject]:
        record.task = daemon.tasks.begin("run", described.experiment.name, work)
        record.task.add_done_callback(lambda task: record.over(task, time.time_ns()))
        return record.task

    if wants_lines(request):
        return await answer(request, daemon.bus, begin)
    task = begin()
    await record.named.wait()
    if not record.id:
        result_of(task)  # raises the error
    return json_answer(record.to_json(), 202, {"Location": f"/v1/runs/{record.id}"})


async def delete_run(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """Cancel a run; what it measured is kept."""
    record = daemon.runs.find(request.match_info["id"])
    if record.task is None or record.task.done():
        raise RequestError(409, f"run {record.id} is over: {record.state}", exit_code=1)
    await cancelled(record.task)
    return record.to_json()


async def post_calibration(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Calibrate every link against its configuration."""
    asked = parameters(request, CalibrationRequest)
    for name in asked.directions:
        if name not in DIRECTIONS:
            msg = f"?directions: unknown direction {shown(name)}; {suggest(name, DIRECTIONS, 'directions')}"
            raise RequestError(400, msg, where="?directions")
    described = await (await _reading(daemon, request, asked))()

    async def work() -> JsonObject:
        return await daemon.calibrate(described, asked.directions, asked.seconds)

    return await answer(
        request, daemon.bus, functools.partial(daemon.tasks.begin, "calibrate", described.experiment.name, work)
    )


# Shared by handlers


async def _reading(daemon: LabDaemon, request: web.Request, asked: DescriptionRequest) -> Read:
    """A function that makes an experiment from the request's body, for the lab's state when it is called."""
    _require_local(request, "file", asked.file)
    daemon.require_lab()
    document = await read_body_document(request)
    return functools.partial(_described, daemon, document, asked)


async def _described(daemon: LabDaemon, document: Document, asked: DescriptionRequest) -> DescribedExperiment:
    testbed, lab = daemon.require_lab()
    if asked.file is not None:
        network, found = await asyncio.to_thread(
            described_by_file, document, Path(asked.file), asked.set, asked.backend, lab
        )
        daemon.require_same_lab(network)
    else:
        found = await asyncio.to_thread(
            described_by_body, document, lab, testbed.network, daemon.applied, asked.set, asked.backend
        )
    if asked.strict and (doubtful := description_warnings(testbed.network, found.experiment, found.backend, MININET)):
        raise DescriptionError(doubtful)
    return found


def _patching(daemon: LabDaemon, patch: Callable[[DescribedExperiment], dict[str, Any]]) -> Read:
    """A function that makes an experiment from the applied one by a patch."""

    async def read() -> DescribedExperiment:
        return await _described(daemon, as_body(patch(daemon.require_applied())), DescriptionRequest())

    return read


async def _apply(daemon: LabDaemon, request: web.Request, read: Read, how: ApplyOptions) -> web.StreamResponse:
    """Apply the result of ``read``, which is called again if another experiment was applied meanwhile."""
    before = daemon.require_lab()[0].experiment
    described = await read()

    async def work() -> JsonObject:
        current = described if daemon.require_lab()[0].experiment is before else await read()
        return await daemon.apply(current, how)

    what = "diff" if how.dry_run else "apply"
    return await answer(
        request, daemon.bus, functools.partial(daemon.tasks.begin, what, described.experiment.name, work)
    )


def _changing(request: web.Request) -> ApplyOptions:
    asked = parameters(request, ChangeRequest)
    return ApplyOptions(
        asked.dry_run, at_once=False, connections=ConnectionPolicy.parse(asked.connections), probes=asked.probe
    )


def _require_local(request: web.Request, name: str, given: str | None) -> None:
    """Refuse a parameter that concerns local files unless the request is from a local user."""
    if given is not None and not is_local(request):
        msg = f"?{name}: concerns files of this machine and is not accepted over TCP; leave it out"
        raise RequestError(403, msg, where=f"?{name}")


def _require_one(wanted: LatencyRequest) -> None:
    if (wanted.class_ is None) == (wanted.rtt is None):
        raise RequestError(422, "give the latency either as class or as rtt", where="class")


def _server(daemon: LabDaemon, request: web.Request) -> str:
    """The world server in the request's path. Raises RequestError (404)."""
    server = request.match_info["server"]
    servers = [host.name for host in daemon.require_lab()[0].network.world_hosts]
    if server not in servers:
        msg = f"there is no world server {shown(server)}; {suggest(server, servers, 'world servers')}"
        raise RequestError(404, msg, exit_code=1)
    return server
