# SPDX-License-Identifier: Apache-2.0
"""The table of all requests of the API, from which the daemon's application and docs/openapi.json are made.

``python -m atoll_daemon.http.routes docs/openapi.json`` writes that file; a test fails if it is out of date.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from atoll_controller.fabric.switch_report import SwitchReport
from atoll_daemon.http import api_models, read_handlers, write_handlers
from atoll_daemon.http.endpoint import DESCRIPTION, Endpoint
from atoll_daemon.http.openapi import document, document_text
from atoll_daemon.http.request_parsing import parameters
from atoll_daemon.lab_daemon import LabDaemon

_READS = (409, 502)
_CHANGES = (408, 409, 413, 415, 422, 502, 503)


async def get_openapi(_: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The API itself."""
    parameters(request, api_models.NoParameters)
    return await asyncio.to_thread(document, ROUTES)


ROUTES: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/status",
        read_handlers.get_status,
        "lab",
        "The daemon, its lab, and the task in progress",
        api_models.StatusResponse,
    ),
    Endpoint(
        "GET",
        "/v1/lab",
        read_handlers.get_lab,
        "lab",
        "The lab, its machines and latency classes",
        api_models.InventoryResponse,
    ),
    Endpoint(
        "DELETE",
        "/v1/lab",
        write_handlers.delete_lab,
        "lab",
        "Take the lab down; the daemon ends with it",
        api_models.EndResponse,
        query=api_models.DownRequest,
    ),
    Endpoint(
        "GET",
        "/v1/switches",
        read_handlers.get_switches,
        "switches",
        "All switches: identity, connection state, installed and free flow entries",
        api_models.SwitchesResponse,
        errors=_READS,
    ),
    Endpoint(
        "GET",
        "/v1/switches/{name}",
        read_handlers.get_switch,
        "switches",
        "One switch",
        SwitchReport,
        errors=_READS,
    ),
    Endpoint(
        "GET",
        "/v1/switches/{name}/entries",
        read_handlers.get_entries,
        "switches",
        "The flow entries of a switch, read from it now",
        api_models.EntriesResponse,
        errors=_READS,
    ),
    Endpoint(
        "GET",
        "/v1/switches/{name}/counters",
        read_handlers.get_counters,
        "switches",
        "The counters of a switch's ports and entries, read from it now",
        api_models.CountersResponse,
        errors=_READS,
    ),
    Endpoint(
        "GET",
        "/v1/boxes",
        read_handlers.get_boxes,
        "switches",
        "The latest counters of every link and delay box",
        api_models.BoxesResponse,
    ),
    Endpoint(
        "GET",
        "/v1/experiment",
        read_handlers.get_experiment,
        "experiment",
        "The applied experiment as YAML",
        api_models.ExperimentResponse,
    ),
    Endpoint(
        "GET",
        "/v1/chains",
        read_handlers.get_chains,
        "experiment",
        "All chains of the applied experiment",
        api_models.ChainsResponse,
    ),
    Endpoint("GET", "/v1/chains/{name}", read_handlers.get_chain, "experiment", "One chain", api_models.ChainResponse),
    Endpoint(
        "PUT",
        "/v1/chains/{name}",
        write_handlers.put_chain,
        "experiment",
        "Change a chain under traffic, or add a branch",
        api_models.ChangesResponse,
        query=api_models.ChangeRequest,
        body=api_models.ChainRequest,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "DELETE",
        "/v1/chains/{name}",
        write_handlers.delete_chain,
        "experiment",
        "Remove a branch; its traffic takes the remaining chains",
        api_models.ChangesResponse,
        query=api_models.ChangeRequest,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "GET",
        "/v1/latencies",
        read_handlers.get_latencies,
        "experiment",
        "Latencies of all world servers, and all latency classes",
        api_models.LatenciesResponse,
    ),
    Endpoint(
        "GET",
        "/v1/latencies/{server}",
        read_handlers.get_latency,
        "experiment",
        "The latency of a world server",
        api_models.LatencyResponse,
    ),
    Endpoint(
        "PUT",
        "/v1/latencies/{server}",
        write_handlers.put_latency,
        "experiment",
        "Change the latency of a world server under traffic",
        api_models.ChangesResponse,
        query=api_models.ChangeRequest,
        body=api_models.LatencyRequest,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "DELETE",
        "/v1/latencies/{server}",
        write_handlers.delete_latency,
        "experiment",
        "Remove the latency of a world server",
        api_models.ChangesResponse,
        query=api_models.ChangeRequest,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "GET",
        "/v1/picture",
        read_handlers.get_picture,
        "lab",
        "The data to draw the lab: hosts, chains, links, latencies, the run in progress",
        api_models.PictureResponse,
    ),
    Endpoint(
        "GET",
        "/v1/plan",
        read_handlers.get_plan,
        "experiment",
        "The plan of the applied experiment",
        api_models.PlanResponse,
    ),
    Endpoint(
        "POST",
        "/v1/plan",
        write_handlers.post_plan,
        "experiment",
        "The plan of an experiment as if none were applied to this lab; changes nothing",
        api_models.PlanResponse,
        query=api_models.DescriptionRequest,
        body=DESCRIPTION,
        errors=_CHANGES,
    ),
    Endpoint(
        "POST",
        "/v1/diff",
        write_handlers.post_diff,
        "experiment",
        "The changes that applying an experiment would make, with reasons; changes nothing",
        api_models.ChangesResponse,
        query=api_models.DescriptionRequest,
        body=DESCRIPTION,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "POST",
        "/v1/apply",
        write_handlers.post_apply,
        "experiment",
        "Apply an experiment with the fewest changes, under traffic",
        api_models.ChangesResponse,
        query=api_models.ApplyRequest,
        body=DESCRIPTION,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "GET",
        "/v1/trace",
        read_handlers.get_trace,
        "experiment",
        "The path of a packet between two hosts",
        api_models.TraceResponse,
        query=api_models.TraceRequest,
        errors=(409, 422),
    ),
    Endpoint(
        "POST",
        "/v1/trace",
        read_handlers.post_trace,
        "experiment",
        "Verify the path between two hosts by probe packets",
        api_models.LiveTraceResponse,
        query=api_models.ProbeRequest,
        errors=(409, 422, 502),
        note="Possible at any time, also during a run.",
    ),
    Endpoint(
        "GET",
        "/v1/runs",
        read_handlers.get_runs,
        "runs",
        "The runs of this daemon, latest first",
        api_models.RunsResponse,
    ),
    Endpoint(
        "POST",
        "/v1/runs",
        write_handlers.post_run,
        "runs",
        "Start a run; it continues when the connection ends",
        api_models.RunResponse,
        query=api_models.RunParameters,
        body=DESCRIPTION,
        lines=True,
        success=202,
        errors=_CHANGES,
        note="With `Accept: application/x-ndjson` the answer is in lines, the run ends with the connection, and the "
        "status is 200.",
    ),
    Endpoint(
        "GET",
        "/v1/runs/{id}",
        read_handlers.get_run,
        "runs",
        "A run: state, step, figures, summary",
        api_models.RunResponse,
    ),
    Endpoint(
        "DELETE",
        "/v1/runs/{id}",
        write_handlers.delete_run,
        "runs",
        "Cancel a run; what it measured is kept",
        api_models.RunResponse,
    ),
    Endpoint(
        "POST",
        "/v1/calibrations",
        write_handlers.post_calibration,
        "runs",
        "Calibrate every link against its configuration",
        api_models.CalibrationResponse,
        query=api_models.CalibrationRequest,
        body=DESCRIPTION,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "GET",
        "/v1/replays",
        read_handlers.get_replays,
        "runs",
        "Runs that can be replayed, including the run in progress: the latest two hundred",
        api_models.ReplaysResponse,
        errors=(),
        note="Runs in `runs` in the directory of `atoll up` (or `atoll watch`), and all runs of the daemon.",
    ),
    Endpoint(
        "GET",
        "/v1/replays/{id}",
        read_handlers.get_replay,
        "runs",
        "A run that can be replayed, without its points",
        api_models.ReplayResponse,
        errors=(422,),
    ),
    Endpoint(
        "GET",
        "/v1/replays/{id}/points",
        read_handlers.get_replay_points,
        "runs",
        "Metric points of a run as JSON lines of about a second each, in the order in which they were written",
        api_models.PointsResponse,
        query=api_models.ReplayPointsRequest,
        errors=(),
    ),
    Endpoint(
        "GET",
        "/v1/events",
        read_handlers.get_events,
        "events",
        "Events: JSON lines, or a WebSocket if the request asks for one",
        api_models.EventResponse,
        query=api_models.EventsRequest,
        errors=(),
    ),
    Endpoint(
        "GET",
        "/v1/openapi.json",
        get_openapi,
        "events",
        "This document",
        dict,
        errors=(),
    ),
)
"""All requests that are allowed with the token."""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document_text(ROUTES), encoding="utf-8")
