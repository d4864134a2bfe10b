# SPDX-License-Identifier: Apache-2.0
"""What the API tells of a lab, its switches and the experiment that stands: handlers that change nothing."""

import asyncio
import os
from importlib.metadata import version
from typing import Any

from aiohttp import web

from atoll_controller.fabric.flow_installer import table_of
from atoll_controller.fabric.switch_report import switch_reports
from atoll_controller.planner.diff import explained
from atoll_controller.planner.planner import plan_sha256
from atoll_controller.tracing.packet_trace import trace
from atoll_core.codec import to_json
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import LabError
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.flow_entry import FlowEntry, sort_key
from atoll_core.plan.plan import Plan
from atoll_daemon.http.api_models import Listening, Nothing, Probing, Tracing
from atoll_daemon.http.event_stream import serve_events
from atoll_daemon.http.experiment_bodies import carries_tree, latency_classes
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.http.lab_view import picture
from atoll_daemon.http.request_parsing import parameters
from atoll_daemon.lab_daemon import Keeper
from atoll_daemon.replays.replay_handlers import list_replays, tell_points, tell_replay
from atoll_testbed.testbed import while_up
from atoll_testbed.verification.live_trace import trace_live


def lab_json(keeper: Keeper) -> dict[str, Any] | None:
    """The lab in short; None when none is up."""
    testbed = keeper.testbed
    if testbed is None:
        return None
    network, controller = testbed.network, testbed.controller
    facts = testbed.place.describe()
    experiment = testbed.experiment
    return {
        "name": network.name,
        "file": network.file,
        "place": testbed.place.name,
        "datapath": facts.get("datapath"),
        "ovs": facts.get("ovs"),
        "inventory": facts.get("inventory"),
        "controller": controller.runtime,
        "switches": {
            switch.name: "up" if (state := controller.switches.get(switch.dpid)) and state.up else "down"
            for switch in network.switches
        },
        "experiment": experiment.name if experiment else None,
        "chain": list(experiment.chain.hops) if experiment else None,
        "failed": testbed.failed.result() if testbed.failed.done() else None,
    }


async def get_status(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """The keeper and its lab."""
    parameters(request, Nothing)
    busy = keeper.bench.busy
    return {
        "version": version("atoll"),
        "pid": os.getpid(),
        "for_run": keeper.for_run,
        "seq": keeper.events.seq,
        "listens": list(keeper.listens),
        "token_file": keeper.token_file,
        "busy": busy and {"what": busy.what, "about": busy.about, "since_ns": busy.since_ns},
        "lab": lab_json(keeper),
    }


async def get_lab(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """The lab with its machines and classes."""
    parameters(request, Nothing)
    network = keeper.require_lab()[0].network
    return {
        **(lab_json(keeper) or {}),
        "hosts": [
            {
                "name": host.name,
                "role": host.role.value,
                "address": str(host.address),
                "switch": host.interface.attached.switch,
                "port": host.interface.attached.port,
            }
            for host in network.hosts
        ],
        "boxes": [{"name": box.name, "kind": box.kind.value, "routed": box.routed} for box in network.boxes],
        "taps": [{"name": tap.name, "host": tap.host, "physical": tap.physical} for tap in network.taps],
        "latency_classes": _classes(network),
    }


async def get_picture(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """What it takes to draw the lab as it stands."""
    parameters(request, Nothing)
    testbed = keeper.require_lab()[0]
    run = keeper.runs.in_progress
    return picture(testbed.network, testbed.experiment, testbed.place.name, run and run.progress())


async def get_switches(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """All switches."""
    parameters(request, Nothing)
    testbed = keeper.require_lab()[0]
    return {"switches": to_json(await switch_reports(testbed.controller, testbed.network))}


async def get_switch(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """One switch."""
    wanted = _switch(keeper, request).name
    return next(report for report in (await get_switches(keeper, request))["switches"] if report["name"] == wanted)


async def get_entries(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """What a switch holds, read from it now."""
    parameters(request, Nothing)
    switch = _switch(keeper, request)
    testbed = keeper.require_lab()[0]
    table = await table_of(testbed.controller, switch)
    held = await testbed.controller.read(switch.dpid, switch.name, table)
    known = explained(held, testbed.plan.flows if testbed.plan else ())
    entries = sorted((entry for entry in known if isinstance(entry, FlowEntry)), key=sort_key)
    return {
        "switch": switch.name,
        "table": table,
        "entries": [to_json(entry) for entry in entries],
        "packets": list(await testbed.controller.packets(switch.dpid, entries, table)),
        "foreign": [to_json(entry) for entry in held if not isinstance(entry, FlowEntry)],
    }


async def get_counters(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """What a switch has counted, read from it now."""
    parameters(request, Nothing)
    switch = _switch(keeper, request)
    controller = keeper.require_lab()[0].controller
    table = await table_of(controller, switch)
    return {"switch": switch.name, "table": table, **await controller.counters(switch.dpid, table)}


async def get_boxes(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """The latest counters of links and delay boxes."""
    parameters(request, Nothing)
    keeper.require_lab()
    return {"boxes": keeper.boxes}


async def get_experiment(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """The experiment that stands."""
    parameters(request, Nothing)
    standing = keeper.require_standing()
    return {"name": standing.experiment.name, "backend": standing.backend, "description": standing.tree}


async def get_chains(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """Every chain that stands."""
    parameters(request, Nothing)
    chains = keeper.require_standing().experiment.chains
    return {
        "chains": [
            {"name": chain.name, "chain": list(chain.hops), "carries": carries_tree(chain.carries)} for chain in chains
        ]
    }


async def get_chain(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """One chain."""
    chains = {chain["name"]: chain for chain in (await get_chains(keeper, request))["chains"]}
    return _named(chains, request.match_info["name"], "chain")


async def get_latencies(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """Every world server's latency."""
    parameters(request, Nothing)
    experiment, network = keeper.require_standing().experiment, keeper.require_lab()[0].network
    rtts = {each.name: each.rtt.ns for _, each in latency_classes(network)}
    held = dict(experiment.latency)
    return {
        "servers": [
            {"server": host.name, "class": held.get(host.name), "rtt_ns": rtts.get(held.get(host.name, ""))}
            for host in network.world_hosts
        ],
        "classes": _classes(network),
    }


async def get_latency(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """One server's latency."""
    servers = {each["server"]: each for each in (await get_latencies(keeper, request))["servers"]}
    return _named(servers, request.match_info["server"], "world server")


async def get_plan(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """The plan that stands."""
    parameters(request, Nothing)
    keeper.require_standing()
    plan = keeper.require_lab()[0].plan
    if plan is None:
        raise LabError("the plan is just changing; ask again")
    return await asyncio.to_thread(plan_json, plan)


async def get_trace(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """The way of a packet through what stands."""
    asked = parameters(request, Tracing)
    experiment = keeper.require_standing().experiment
    testbed = keeper.require_lab()[0]
    entries = testbed.plan.flows if testbed.plan else ()
    found = await asyncio.to_thread(trace, testbed.network, experiment, entries, asked.src, asked.dst, asked.protocol)
    return to_json(found)


async def post_trace(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """The way of packets on the lab as it is, proven by probes."""
    asked = parameters(request, Probing)
    keeper.require_standing()
    testbed = keeper.require_lab()[0]
    found = await while_up(testbed, trace_live(testbed, asked.src, asked.dst, asked.protocol, asked.probes))
    return {"proven": found.proven, "lost": found.lost, "live": to_json(found)}


async def get_runs(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """All runs."""
    parameters(request, Nothing)
    return {"runs": keeper.runs.told()}


async def get_run(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """One run."""
    parameters(request, Nothing)
    return keeper.runs.find(request.match_info["id"]).told()


async def get_replays(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """Runs that can be watched again."""
    return await list_replays(keeper.replays, request)


async def get_replay(keeper: Keeper, request: web.Request) -> dict[str, Any]:
    """One of them."""
    return await tell_replay(keeper.replays, request)


async def get_replay_points(keeper: Keeper, request: web.Request) -> web.StreamResponse:
    """Its points."""
    return await tell_points(keeper.replays, request)


async def get_events(keeper: Keeper, request: web.Request) -> web.StreamResponse:
    """Events."""
    return await serve_events(request, keeper.events, parameters(request, Listening))


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan as it is answered."""
    return {"experiment": plan.experiment, "sha256": plan_sha256(plan), "plan": to_json(plan)}


def _switch(keeper: Keeper, request: web.Request) -> Switch:
    network = keeper.require_lab()[0].network
    return _named({switch.name: switch for switch in network.switches}, request.match_info["name"], "switch")


def _named(known: dict[str, Any], name: str, what: str) -> Any:
    if name not in known:
        msg = f"there is no {what} {name!r}; {suggest(name, known, f'{what}s')}"
        raise RequestError(404, msg, exit_code=1)
    return known[name]


def _classes(network: Network) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "delay_box": box,
            "rtt_ns": each.rtt.ns,
            "jitter_ns": each.jitter.ns,
            "vlan": each.vlan,
        }
        for box, each in latency_classes(network)
    ]
