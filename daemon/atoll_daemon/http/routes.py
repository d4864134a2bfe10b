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

_READ_ERRORS = (409, 502)
_CHANGE_ERRORS = (408, 409, 413, 415, 422, 502, 503)
_task = partial(Endpoint, lines=True, errors=_CHANGE_ERRORS)


async def get_openapi(_daemon: LabDaemon, _request: web.Request) -> dict[str, Any]:
    """This document."""
    return await asyncio.to_thread(document, ROUTES)


ROUTES: tuple[Endpoint, ...] = (
    Endpoint("GET", "/v1/status", reads.get_status, models.StatusResponse),
    Endpoint("GET", "/v1/lab", reads.get_lab, models.InventoryResponse),
    Endpoint("DELETE", "/v1/lab", writes.delete_lab, models.EndResponse, models.DownRequest),
    Endpoint("GET", "/v1/switches", reads.get_switches, models.SwitchesResponse, errors=_READ_ERRORS),
    Endpoint("GET", "/v1/switches/{name}", reads.get_switch, SwitchReport, errors=_READ_ERRORS),
    Endpoint("GET", "/v1/switches/{name}/entries", reads.get_entries, models.EntriesResponse, errors=_READ_ERRORS),
    Endpoint("GET", "/v1/switches/{name}/counters", reads.get_counters, models.CountersResponse, errors=_READ_ERRORS),
    Endpoint("GET", "/v1/boxes", reads.get_boxes, models.BoxesResponse),
    Endpoint("GET", "/v1/experiment", reads.get_experiment, models.ExperimentResponse),
    Endpoint("GET", "/v1/chains", reads.get_chains, models.ChainsResponse),
    Endpoint("GET", "/v1/chains/{name}", reads.get_chain, models.ChainResponse),
    _task(
        "PUT", "/v1/chains/{name}", writes.put_chain, models.ChangesResponse, models.ChangeRequest, models.ChainRequest
    ),
    _task("DELETE", "/v1/chains/{name}", writes.delete_chain, models.ChangesResponse, models.ChangeRequest),
    Endpoint("GET", "/v1/latencies", reads.get_latencies, models.LatenciesResponse),
    Endpoint("GET", "/v1/latencies/{server}", reads.get_latency, models.LatencyResponse),
    _task(
        "PUT",
        "/v1/latencies/{server}",
        writes.put_latency,
        models.ChangesResponse,
        models.ChangeRequest,
        models.LatencyRequest,
    ),
    _task("DELETE", "/v1/latencies/{server}", writes.delete_latency, models.ChangesResponse, models.ChangeRequest),
    Endpoint("GET", "/v1/picture", reads.get_picture, models.PictureResponse),
    Endpoint("GET", "/v1/plan", reads.get_plan, models.PlanResponse),
    Endpoint(
        "POST",
        "/v1/plan",
        writes.post_plan,
        models.PlanResponse,
        models.DescriptionRequest,
        DESCRIPTION,
        errors=_CHANGE_ERRORS,
    ),
    _task("POST", "/v1/diff", writes.post_diff, models.ChangesResponse, models.DescriptionRequest, DESCRIPTION),
    _task("POST", "/v1/apply", writes.post_apply, models.ChangesResponse, models.ApplyRequest, DESCRIPTION),
    Endpoint("GET", "/v1/trace", reads.get_trace, PacketTrace, models.TraceRequest, errors=(409, 422)),
    Endpoint(
        "POST", "/v1/trace", reads.post_trace, models.LiveTraceResponse, models.ProbeRequest, errors=(409, 422, 502)
    ),
    Endpoint("GET", "/v1/runs", reads.get_runs, models.RunsResponse),
    _task("POST", "/v1/runs", writes.post_run, models.RunResponse, models.RunParameters, DESCRIPTION, success=202),
    Endpoint("GET", "/v1/runs/{id}", reads.get_run, models.RunResponse),
    Endpoint("DELETE", "/v1/runs/{id}", writes.delete_run, models.RunResponse),
    _task(
        "POST",
        "/v1/calibrations",
        writes.post_calibration,
        models.CalibrationResponse,
        models.CalibrationRequest,
        DESCRIPTION,
    ),
    Endpoint("GET", "/v1/replays", reads.get_replays, models.ReplaysResponse, errors=()),
    Endpoint("GET", "/v1/replays/{id}", reads.get_replay, models.ReplayResponse, errors=(422,)),
    Endpoint(
        "GET",
        "/v1/replays/{id}/points",
        reads.get_replay_points,
        models.PointsResponse,
        models.ReplayPointsRequest,
        errors=(),
    ),
    Endpoint("GET", "/v1/events", reads.get_events, models.EventResponse, models.EventsRequest, errors=()),
    Endpoint("GET", "/v1/openapi.json", get_openapi, dict, errors=()),
)
"""All requests that are allowed with the token."""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document_text(ROUTES), encoding="utf-8")
