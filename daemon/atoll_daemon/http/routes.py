# SPDX-License-Identifier: Apache-2.0
"""Every request the daemon answers, in one table: what is served is made of it, and so is docs/openapi.json.

``python -m atoll_daemon.http.routes docs/openapi.json`` writes that anew; a test fails when it is out of date.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from atoll_controller.fabric.switch_report import SwitchReport
from atoll_daemon.http import api_models, read_handlers, watch_models, write_handlers
from atoll_daemon.http.endpoint import DESCRIPTION, Endpoint
from atoll_daemon.http.openapi import document, document_text
from atoll_daemon.http.request_parsing import parameters
from atoll_daemon.lab_daemon import LabDaemon

_READS = (409, 502)
_CHANGES = (408, 409, 413, 415, 422, 502, 503)


async def get_openapi(_: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The API itself."""
    parameters(request, api_models.Nothing)
    return await asyncio.to_thread(document, ROUTES)


ROUTES: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/status",
        read_handlers.get_status,
        "lab",
        "What is up and what it is doing",
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
        query=api_models.Ending,
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
        "The flow entries that a switch holds, read from it now",
        api_models.EntriesResponse,
        errors=_READS,
    ),
    Endpoint(
        "GET",
        "/v1/switches/{name}/counters",
        read_handlers.get_counters,
        "switches",
        "What a switch's ports and entries have counted, read from it now",
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
        "Every chain that stands",
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
        query=api_models.Changing,
        body=api_models.ChainAsked,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "DELETE",
        "/v1/chains/{name}",
        write_handlers.delete_chain,
        "experiment",
        "Remove a branch; its traffic takes the chains that are left",
        api_models.ChangesResponse,
        query=api_models.Changing,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "GET",
        "/v1/latencies",
        read_handlers.get_latencies,
        "experiment",
        "Latencies of all world servers, and the classes there are",
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
        query=api_models.Changing,
        body=api_models.LatencyAsked,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "DELETE",
        "/v1/latencies/{server}",
        write_handlers.delete_latency,
        "experiment",
        "Delay a world server no more",
        api_models.ChangesResponse,
        query=api_models.Changing,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "GET",
        "/v1/picture",
        read_handlers.get_picture,
        "lab",
        "What it takes to draw the lab: hosts, chains, links, latencies, the run in progress",
        watch_models.PictureResponse,
    ),
    Endpoint("GET", "/v1/plan", read_handlers.get_plan, "experiment", "The plan that stands", api_models.PlanResponse),
    Endpoint(
        "POST",
        "/v1/plan",
        write_handlers.post_plan,
        "experiment",
        "The plan of an experiment, on this lab if it held nothing; changes nothing",
        api_models.PlanResponse,
        query=api_models.Describing,
        body=DESCRIPTION,
        errors=_CHANGES,
    ),
    Endpoint(
        "POST",
        "/v1/diff",
        write_handlers.post_diff,
        "experiment",
        "What applying an experiment would change, with reasons; changes nothing",
        api_models.ChangesResponse,
        query=api_models.Describing,
        body=DESCRIPTION,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "POST",
        "/v1/apply",
        write_handlers.post_apply,
        "experiment",
        "Bring the lab to an experiment by the smallest change, under traffic",
        api_models.ChangesResponse,
        query=api_models.Applying,
        body=DESCRIPTION,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "GET",
        "/v1/trace",
        read_handlers.get_trace,
        "experiment",
        "The way of a packet between two hosts",
        api_models.TraceTold,
        query=api_models.Tracing,
        errors=(409, 422),
    ),
    Endpoint(
        "POST",
        "/v1/trace",
        read_handlers.post_trace,
        "experiment",
        "Prove the way between two hosts by probe packets",
        api_models.ProofResponse,
        query=api_models.Probing,
        errors=(409, 422, 502),
        note="Whatever else is going on, a run as well.",
    ),
    Endpoint(
        "GET",
        "/v1/runs",
        read_handlers.get_runs,
        "runs",
        "The runs of this daemon, the last one first",
        api_models.RunsResponse,
    ),
    Endpoint(
        "POST",
        "/v1/runs",
        write_handlers.post_run,
        "runs",
        "Start a run; it goes on when the connection ends",
        api_models.RunResponse,
        query=api_models.RunRequest,
        body=DESCRIPTION,
        lines=True,
        success=202,
        errors=_CHANGES,
        note="Answered in lines (`Accept: application/x-ndjson`), the run ends with the connection, and the status is "
        "200.",
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
        query=api_models.Calibrating,
        body=DESCRIPTION,
        lines=True,
        errors=_CHANGES,
    ),
    Endpoint(
        "GET",
        "/v1/replays",
        read_handlers.get_replays,
        "runs",
        "Runs that can be watched again, those being made included: the latest two hundred",
        watch_models.ReplaysResponse,
        errors=(),
        note="Those in `runs` where `atoll up` (or `atoll watch`) was called, and what the daemon has made.",
    ),
    Endpoint(
        "GET",
        "/v1/replays/{id}",
        read_handlers.get_replay,
        "runs",
        "All of such a run but its points",
        watch_models.ReplayResponse,
        errors=(422,),
    ),
    Endpoint(
        "GET",
        "/v1/replays/{id}/points",
        read_handlers.get_replay_points,
        "runs",
        "Its metric points as JSON lines, about a second each, in the order in which they were written",
        watch_models.PointsResponse,
        query=watch_models.Replaying,
        errors=(),
    ),
    Endpoint(
        "GET",
        "/v1/events",
        read_handlers.get_events,
        "events",
        "What happens: JSON lines, or a WebSocket if the request asks for one",
        api_models.EventResponse,
        query=api_models.Listening,
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
"""What anybody may ask who may ask at all."""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(document_text(ROUTES), encoding="utf-8")
