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
from atoll_core.description.loader import parse_lab
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
    chain_patch,
    described_by_body,
    described_by_file,
    patch_document,
    removal_patch,
    warnings_json,
)
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.http.read_handlers import plan_answer, world_server
from atoll_daemon.http.request_parsing import parameters, read_body_document, read_model
from atoll_daemon.http.responses import answer, cancel_task, json_answer, result_of, wants_lines
from atoll_daemon.lab_daemon import ApplyOptions, LabDaemon
from atoll_daemon.run_registry import RunRecord
from atoll_daemon.task_runner import JsonObject, Work
from atoll_dashboards.influx.influx_settings import database_mismatch
from atoll_testbed.box_connections import ConnectionPolicy
from atoll_testbed.run.run_request import RunOptions

Reader = Callable[[], Awaitable[DescribedExperiment]]


# The lab


async def post_lab(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Bring a lab up."""
    query = parameters(request, LabRequest)
    document = await read_body_document(request)
    lab = await asyncio.to_thread(parse_lab, replace(document, file=label(Path(query.file))), query.set)

    async def work() -> JsonObject:
        return await daemon.bring_up(lab, query.runtime)

    try:
        return await _perform(daemon, request, "up", lab.network.name, work)
    finally:
        if daemon.testbed is None and daemon.tasks.busy is None:
            daemon.end.set()  # without a lab it must not keep the machine's lock


async def delete_lab(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """Take the lab down; the daemon ends with it."""
    query = parameters(request, DownRequest)
    busy = daemon.tasks.busy
    if busy is not None and not query.force:
        remedy = "wait until it ends; `atoll down --force` ends it and the lab"
        raise RequestError(409, f"the lab is busy with `{busy.what} {busy.about}`; {remedy}", exit_code=1)
    daemon.end.set()
    return {"was_up": daemon.testbed is not None}


# Plans and changes


async def post_plan(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The plan of an experiment as if none were applied to this lab; changes nothing."""
    read = await _experiment_reader(daemon, request, parameters(request, DescriptionRequest))
    described = await read()
    network = daemon.require_lab()[0].network

    def planned() -> dict[str, Any]:
        plan = make_plan(network, described.experiment, described.backend)
        return plan_answer(plan) | {"warnings": warnings_json(network, described)}

    return await asyncio.to_thread(planned)


async def post_diff(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """The changes that applying an experiment would make, with reasons; changes nothing."""
    read = await _experiment_reader(daemon, request, parameters(request, DescriptionRequest))
    options = ApplyOptions(dry_run=True, at_once=False, connections=ConnectionPolicy())
    return await _apply(daemon, request, read, options)


async def post_apply(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Apply an experiment with the fewest changes, under traffic."""
    query = parameters(request, ApplyRequest)
    options = ApplyOptions(query.dry_run, query.at_once, ConnectionPolicy.parse(query.connections), query.probe)
    return await _apply(daemon, request, await _experiment_reader(daemon, request, query), options)


async def put_chain(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Change a chain under traffic, or add a branch."""
    options = _change_options(request)
    body = await read_model(request, ChainRequest)
    patch = chain_patch(request.match_info["name"], body.chain, body.carries)
    return await _apply(daemon, request, _patch_reader(daemon, lambda _: patch), options)


async def delete_chain(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Remove a branch; its traffic takes the remaining chains."""
    options = _change_options(request)
    name = request.match_info["name"]
    return await _apply(daemon, request, _patch_reader(daemon, lambda applied: removal_patch(name, applied)), options)


async def put_latency(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Change the latency of a world server under traffic."""
    options = _change_options(request)
    latency = await read_model(request, LatencyRequest)
    if (latency.class_ is None) == (latency.rtt is None):
        raise RequestError(422, "give the latency either as class or as rtt", where="class")
    patch = {"latency": {world_server(daemon, request): latency.class_ or latency.rtt}}
    return await _apply(daemon, request, _patch_reader(daemon, lambda _: patch), options)


async def delete_latency(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Remove the latency of a world server."""
    options = _change_options(request)
    patch = {"latency": {world_server(daemon, request): None}}
    return await _apply(daemon, request, _patch_reader(daemon, lambda _: patch), options)


# Runs


async def post_run(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Start a run; it continues when the connection ends.

    With `Accept: application/x-ndjson` the answer is in lines, the run ends with the connection, and the status is
    200.
    """
    query = parameters(request, RunParameters)
    _require_local(request, "runs", query.runs)
    _require_local(request, "influx", query.influx)
    read = await _experiment_reader(daemon, request, query)
    daemon.tasks.require_idle()  # before the planning, which takes seconds
    described = await read()
    daemon.require_runtime(query.runtime)
    runs = Path(query.runs).resolve() if query.runs else daemon.runs_folder
    options = RunOptions(described.backend, query.metrics, query.full_matrix)
    planned = await daemon.plan_run(described, options, runs)
    started_ns = query.started_ns or time.time_ns()
    record = RunRecord(described.experiment.name, started_ns, described.experiment.duration.s, metrics=query.metrics)
    record.warnings = warnings_json(daemon.require_lab()[0].network, described)

    async def work() -> JsonObject:
        if query.metrics and query.influx is not None and (mismatch := database_mismatch(query.influx)):
            daemon.bus.publish(Note(mismatch))
        return await daemon.run(described, planned, runs, record, analyse=query.analyse)

    def begin() -> asyncio.Task[JsonObject]:
        record.task = daemon.tasks.begin("run", described.experiment.name, work)
        record.task.add_done_callback(lambda task: record.set_end(task, time.time_ns()))
        return record.task

    if wants_lines(request):
        return await answer(request, daemon.bus, begin)
    task = begin()
    await record.has_id.wait()
    if not record.id:
        result_of(task)  # raises the error
    return json_answer(record.to_json(), 202, {"Location": f"/v1/runs/{record.id}"})


async def delete_run(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """Cancel a run; what it measured is kept."""
    record = daemon.runs.find(request.match_info["id"])
    if record.task is None or record.task.done():
        raise RequestError(409, f"run {record.id} is over: {record.state}", exit_code=1)
    await cancel_task(record.task)
    return record.to_json()


async def post_calibration(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Calibrate every link against its configuration."""
    query = parameters(request, CalibrationRequest)
    for name in query.directions:
        if name not in DIRECTIONS:
            msg = f"?directions: unknown direction {shown(name)}; {suggest(name, DIRECTIONS, 'directions')}"
            raise RequestError(400, msg, where="?directions")
    described = await (await _experiment_reader(daemon, request, query))()

    async def work() -> JsonObject:
        return await daemon.calibrate(described, query.directions, query.seconds)

    return await _perform(daemon, request, "calibrate", described.experiment.name, work)


# Shared by handlers


async def _experiment_reader(daemon: LabDaemon, request: web.Request, query: DescriptionRequest) -> Reader:
    """A function that makes an experiment from the request's body, for the lab's state when it is called."""
    _require_local(request, "file", query.file)
    daemon.require_lab()
    document = await read_body_document(request)
    return functools.partial(_described, daemon, document, query)


async def _described(daemon: LabDaemon, document: Document, query: DescriptionRequest) -> DescribedExperiment:
    testbed, lab = daemon.require_lab()
    if query.file is not None:
        network, described = await asyncio.to_thread(
            described_by_file, document, Path(query.file), query.set, query.backend, lab
        )
        daemon.require_same_lab(network)
    else:
        described = await asyncio.to_thread(
            described_by_body, document, lab, testbed.network, daemon.applied, query.set, query.backend
        )
    if query.strict and (
        warnings := description_warnings(testbed.network, described.experiment, described.backend, MININET)
    ):
        raise DescriptionError(warnings)
    return described


def _patch_reader(daemon: LabDaemon, patch: Callable[[DescribedExperiment], dict[str, Any]]) -> Reader:
    """A function that makes an experiment from the applied one by a patch."""

    async def read() -> DescribedExperiment:
        return await _described(daemon, patch_document(patch(daemon.require_applied())), DescriptionRequest())

    return read


async def _apply(daemon: LabDaemon, request: web.Request, read: Reader, options: ApplyOptions) -> web.StreamResponse:
    """Apply the result of ``read``, which is called again if another experiment was applied meanwhile."""
    before = daemon.require_lab()[0].experiment
    described = await read()

    async def work() -> JsonObject:
        current = described if daemon.require_lab()[0].experiment is before else await read()
        return await daemon.apply(current, options)

    return await _perform(daemon, request, "diff" if options.dry_run else "apply", described.experiment.name, work)


async def _perform(daemon: LabDaemon, request: web.Request, what: str, about: str, work: Work) -> web.StreamResponse:
    return await answer(request, daemon.bus, functools.partial(daemon.tasks.begin, what, about, work))


def _change_options(request: web.Request) -> ApplyOptions:
    query = parameters(request, ChangeRequest)
    return ApplyOptions(
        query.dry_run, at_once=False, connections=ConnectionPolicy.parse(query.connections), probes=query.probe
    )


def _require_local(request: web.Request, name: str, value: str | None) -> None:
    """Refuse a parameter that concerns local files unless the request is from a local user."""
    if value is not None and not is_local(request):
        msg = f"?{name}: concerns files of this machine and is not accepted over TCP; leave it out"
        raise RequestError(403, msg, where=f"?{name}")
