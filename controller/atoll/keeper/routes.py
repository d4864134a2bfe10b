# SPDX-License-Identifier: Apache-2.0
"""Every request the keeper answers, in one table: what is served is made of it, and so is docs/openapi.json.

``python -m atoll.keeper.routes docs/openapi.json`` writes that anew; a test fails when it is out of date.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

from atoll.control.inventory import SwitchReport
from atoll.keeper import answers, changing, reading, watched
from atoll.keeper.bodies import parameters
from atoll.keeper.keeper import Keeper
from atoll.keeper.openapi import document, document_text
from atoll.keeper.route import DESCRIPTION, Route

_READS = (409, 502)
_CHANGES = (408, 409, 413, 415, 422, 502, 503)


async def get_openapi(_: Keeper, request: web.Request) -> dict[str, Any]:
    """The API itself."""
    parameters(request, answers.Nothing)
    return await asyncio.to_thread(document, ROUTES)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/status", reading.get_status, "lab", "What is up and what it is doing", answers.StatusTold),
    Route("GET", "/v1/lab", reading.get_lab, "lab", "The lab, its machines and latency classes", answers.InventoryTold),
    Route(
        "DELETE",
        "/v1/lab",
        changing.delete_lab,
        "lab",
        "Take the lab down; the keeper ends with it",
        answers.EndTold,
        query=answers.Ending,
    ),
    Route(
        "GET",
        "/v1/switches",
        reading.get_switches,
        "switches",
        "All switches: who they say they are, whether they are connected, what they hold",
        answers.SwitchesTold,
        errors=_READS,
    ),
    Route(
        "GET",
        "/v1/switches/{name}",
        reading.get_switch,
        "switches",
        "One switch",
        SwitchReport,
        errors=_READS,
    ),
    Route(
        "GET",
        "/v1/switches/{name}/entries",
        reading.get_entries,
        "switches",
        "The flow entries that a switch holds, read from it now",
        answers.EntriesTold,
        errors=_READS,
    ),
    Route(
        "GET",
        "/v1/switches/{name}/counters",
        reading.get_counters,
        "switches",
        "What a switch's ports and entries have counted, read from it now",
        answers.CountersTold,
        errors=_READS,
    ),
    Route(
        "GET",
        "/v1/boxes",
        reading.get_boxes,
        "switches",
        "The latest counters of every link and delay box",
        answers.BoxesTold,
    ),
    Route(
        "GET",
        "/v1/experiment",
        reading.get_experiment,
        "experiment",
        "The experiment that stands, as one writes it",
        answers.ExperimentTold,
    ),
    Route("GET", "/v1/chains", reading.get_chains, "experiment", "Every chain that stands", answers.ChainsTold),
    Route("GET", "/v1/chains/{name}", reading.get_chain, "experiment", "One chain", answers.ChainTold),
    Route(
        "PUT",
        "/v1/chains/{name}",
        changing.put_chain,
        "experiment",
        "Change a chain under traffic, or add a branch",
        answers.ChangesTold,
        query=answers.Changing,
        body=answers.ChainAsked,
        lines=True,
        errors=_CHANGES,
    ),
    Route(
        "DELETE",
        "/v1/chains/{name}",
        changing.delete_chain,
        "experiment",
        "Remove a branch; its traffic takes the chains that are left",
        answers.ChangesTold,
        query=answers.Changing,
        lines=True,
        errors=_CHANGES,
    ),
    Route(
        "GET",
        "/v1/latencies",
        reading.get_latencies,
        "experiment",
        "Latencies of all world servers, and the classes there are",
        answers.LatenciesTold,
    ),
    Route(
        "GET",
        "/v1/latencies/{server}",
        reading.get_latency,
        "experiment",
        "The latency of a world server",
        answers.LatencyTold,
    ),
    Route(
        "PUT",
        "/v1/latencies/{server}",
        changing.put_latency,
        "experiment",
        "Change the latency of a world server under traffic",
        answers.ChangesTold,
        query=answers.Changing,
        body=answers.LatencyAsked,
        lines=True,
        errors=_CHANGES,
    ),
    Route(
        "DELETE",
        "/v1/latencies/{server}",
        changing.delete_latency,
        "experiment",
        "Delay a world server no more",
        answers.ChangesTold,
        query=answers.Changing,
        lines=True,
        errors=_CHANGES,
    ),
    Route(
        "GET",
        "/v1/picture",
        reading.get_picture,
        "lab",
        "What it takes to draw the lab: hosts, chains, links, latencies, the run in progress",
        watched.PictureTold,
    ),
    Route("GET", "/v1/plan", reading.get_plan, "experiment", "The plan that stands", answers.PlanTold),
    Route(
        "POST",
        "/v1/plan",
        changing.post_plan,
        "experiment",
        "The plan of an experiment, on this lab if it held nothing; changes nothing",
        answers.PlanTold,
        query=answers.Describing,
        body=DESCRIPTION,
        errors=_CHANGES,
    ),
    Route(
        "POST",
        "/v1/diff",
        changing.post_diff,
        "experiment",
        "What applying an experiment would change, with reasons; changes nothing",
        answers.ChangesTold,
        query=answers.Describing,
        body=DESCRIPTION,
        lines=True,
        errors=_CHANGES,
    ),
    Route(
        "POST",
        "/v1/apply",
        changing.post_apply,
        "experiment",
        "Bring the lab to an experiment by the smallest change, under traffic",
        answers.ChangesTold,
        query=answers.Applying,
        body=DESCRIPTION,
        lines=True,
        errors=_CHANGES,
    ),
    Route(
        "GET",
        "/v1/trace",
        reading.get_trace,
        "experiment",
        "The way of a packet between two hosts",
        answers.TraceTold,
        query=answers.Tracing,
        errors=(409, 422),
    ),
    Route(
        "POST",
        "/v1/trace",
        reading.post_trace,
        "experiment",
        "Prove the way between two hosts by probe packets",
        answers.ProofTold,
        query=answers.Probing,
        errors=(409, 422, 502),
        note="Whatever else is going on, a run as well.",
    ),
    Route("GET", "/v1/runs", reading.get_runs, "runs", "The runs of this keeper, the last one first", answers.RunsTold),
    Route(
        "POST",
        "/v1/runs",
        changing.post_run,
        "runs",
        "Start a run; it goes on when the connection ends",
        answers.RunTold,
        query=answers.Running,
        body=DESCRIPTION,
        lines=True,
        success=202,
        errors=_CHANGES,
        note="Answered in lines (`Accept: application/x-ndjson`), the run ends with the connection, and the status is "
        "200.",
    ),
    Route("GET", "/v1/runs/{id}", reading.get_run, "runs", "A run: state, step, figures, summary", answers.RunTold),
    Route(
        "DELETE",
        "/v1/runs/{id}",
        changing.delete_run,
        "runs",
        "Cancel a run; what it measured is kept",
        answers.RunTold,
    ),
    Route(
        "POST",
        "/v1/calibrations",
        changing.post_calibration,
        "runs",
        "Hold every link of an experiment against its settings",
        answers.CalibrationTold,
        query=answers.Calibrating,
        body=DESCRIPTION,
        lines=True,
        errors=_CHANGES,
    ),
    Route(
        "GET",
        "/v1/replays",
        reading.get_replays,
        "runs",
        "Runs that can be watched again, those being made included: the latest two hundred",
        watched.ReplaysTold,
        errors=(),
        note="Those in `runs` where `atoll up` (or `atoll watch`) was called, and what the keeper has made.",
    ),
    Route(
        "GET",
        "/v1/replays/{id}",
        reading.get_replay,
        "runs",
        "All of such a run but its points",
        watched.ReplayTold,
        errors=(422,),
    ),
    Route(
        "GET",
        "/v1/replays/{id}/points",
        reading.get_replay_points,
        "runs",
        "Its metric points as JSON lines, about a second each, in the order in which they were written",
        watched.PointsTold,
        query=watched.Replaying,
        errors=(),
    ),
    Route(
        "GET",
        "/v1/events",
        reading.get_events,
        "events",
        "What happens: JSON lines, or a WebSocket if the request asks for one",
        answers.EventTold,
        query=answers.Listening,
        errors=(),
    ),
    Route(
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
