# SPDX-License-Identifier: Apache-2.0
"""The table of all requests of the API, from which the daemon's application and docs/openapi.json are made.

``python -m atoll_daemon.http.routes docs/openapi.json`` writes that file; a test fails if it is out of date.
"""

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from atoll_controller.fabric.switch_report import SwitchReport
from atoll_controller.tracing.packet_trace import PacketTrace
from atoll_daemon.http import api_models as models
from atoll_daemon.http import read_handlers as reads
from atoll_daemon.http import write_handlers as writes
from atoll_daemon.http.openapi import DESCRIPTION, Endpoint, document, document_text
from atoll_daemon.lab_daemon import LabDaemon

_READS = (409, 502)
_CHANGES = (408, 409, 413, 415, 422, 502, 503)
_task = partial(Endpoint, lines=True, errors=_CHANGES)


async def get_openapi(_daemon: LabDaemon, _request: web.Request) -> dict[str, Any]:
    """This document."""
    return await asyncio.to_thread(document, ROUTES)


ROUTES: tuple[Endpoint, ...] = (
    Endpoint("GET", "/v1/status", reads.get_status, "lab", models.StatusResponse),
    Endpoint("GET", "/v1/lab", reads.get_lab, "lab", models.InventoryResponse),
    Endpoint("DELETE", "/v1/lab", writes.delete_lab, "lab", models.EndResponse, models.DownRequest),
    Endpoint("GET", "/v1/switches", reads.get_switches, "switches", models.SwitchesResponse, errors=_READS),
    Endpoint("GET", "/v1/switches/{name}", reads.get_switch, "switches", SwitchReport, errors=_READS),
    Endpoint(
        "GET", "/v1/switches/{name}/entries", reads.get_entries, "switches", models.EntriesResponse, errors=_READS
    ),
    Endpoint(
        "GET", "/v1/switches/{name}/counters", reads.get_counters, "switches", models.CountersResponse, errors=_READS
    ),
    Endpoint("GET", "/v1/boxes", reads.get_boxes, "switches", models.BoxesResponse),
    Endpoint("GET", "/v1/experiment", reads.get_experiment, "experiment", models.ExperimentResponse),
    Endpoint("GET", "/v1/chains", reads.get_chains, "experiment", models.ChainsResponse),
    Endpoint("GET", "/v1/chains/{name}", reads.get_chain, "experiment", models.ChainResponse),
    _task(
        "PUT",
        "/v1/chains/{name}",
        writes.put_chain,
        "experiment",
        models.ChangesResponse,
        models.ChangeRequest,
        models.ChainRequest,
    ),
    _task(
        "DELETE", "/v1/chains/{name}", writes.delete_chain, "experiment", models.ChangesResponse, models.ChangeRequest
    ),
    Endpoint("GET", "/v1/latencies", reads.get_latencies, "experiment", models.LatenciesResponse),
    Endpoint("GET", "/v1/latencies/{server}", reads.get_latency, "experiment", models.LatencyResponse),
    _task(
        "PUT",
        "/v1/latencies/{server}",
        writes.put_latency,
        "experiment",
        models.ChangesResponse,
        models.ChangeRequest,
        models.LatencyRequest,
    ),
    _task(
        "DELETE",
        "/v1/latencies/{server}",
        writes.delete_latency,
        "experiment",
        models.ChangesResponse,
        models.ChangeRequest,
    ),
    Endpoint("GET", "/v1/picture", reads.get_picture, "lab", models.PictureResponse),
    Endpoint("GET", "/v1/plan", reads.get_plan, "experiment", models.PlanResponse),
    Endpoint(
        "POST",
        "/v1/plan",
        writes.post_plan,
        "experiment",
        models.PlanResponse,
        models.DescriptionRequest,
        DESCRIPTION,
        errors=_CHANGES,
    ),
    _task(
        "POST",
        "/v1/diff",
        writes.post_diff,
        "experiment",
        models.ChangesResponse,
        models.DescriptionRequest,
        DESCRIPTION,
    ),
    _task(
        "POST", "/v1/apply", writes.post_apply, "experiment", models.ChangesResponse, models.ApplyRequest, DESCRIPTION
    ),
    Endpoint("GET", "/v1/trace", reads.get_trace, "experiment", PacketTrace, models.TraceRequest, errors=(409, 422)),
    Endpoint(
        "POST",
        "/v1/trace",
        reads.post_trace,
        "experiment",
        models.LiveTraceResponse,
        models.ProbeRequest,
        errors=(409, 422, 502),
    ),
    Endpoint("GET", "/v1/runs", reads.get_runs, "runs", models.RunsResponse),
    _task(
        "POST", "/v1/runs", writes.post_run, "runs", models.RunResponse, models.RunParameters, DESCRIPTION, success=202
    ),
    Endpoint("GET", "/v1/runs/{id}", reads.get_run, "runs", models.RunResponse),
    Endpoint("DELETE", "/v1/runs/{id}", writes.delete_run, "runs", models.RunResponse),
    _task(
        "POST",
        "/v1/calibrations",
        writes.post_calibration,
        "runs",
        models.CalibrationResponse,
        models.CalibrationRequest,
        DESCRIPTION,
    ),
    Endpoint("GET", "/v1/replays", reads.get_replays, "runs", models.ReplaysResponse, errors=()),
    Endpoint("GET", "/v1/replays/{id}", reads.get_replay, "runs", models.ReplayResponse, errors=(422,)),
    Endpoint(
        "GET",
        "/v1/replays/{id}/points",
        reads.get_replay_points,
        "runs",
        models.PointsResponse,
        models.ReplayPointsRequest,
        errors=(),
    ),
    Endpoint("GET", "/v1/events", reads.get_events, "events", models.EventResponse, models.EventsRequest, errors=()),
    Endpoint("GET", "/v1/openapi.json", get_openapi, "events", dict, errors=()),
)
"""All requests that are allowed with the token."""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document_text(ROUTES), encoding="utf-8")
