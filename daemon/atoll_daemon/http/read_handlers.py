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
from atoll_daemon.lab_daemon import LabDaemon
from atoll_daemon.replays.replay_handlers import list_replays, tell_points, tell_replay
from atoll_testbed.testbed import while_up
from atoll_testbed.verification.live_trace import trace_live


def lab_json(daemon: LabDaemon) -> dict[str, Any] | None:
    """The lab in short; None when none is up."""
    testbed = daemon.testbed
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


async def get_status(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The daemon and its lab."""
    parameters(request, Nothing)
    busy = daemon.bench.busy
    return {
        "version": version("atoll"),
        "pid": os.getpid(),
        "for_run": daemon.for_run,
        "seq": daemon.events.seq,
        "listens": list(daemon.listens),
        "token_file": daemon.token_file,
        "busy": busy and {"what": busy.what, "about": busy.about, "since_ns": busy.since_ns},
        "lab": lab_json(daemon),
    }


async def get_lab(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The lab with its machines and classes."""
    parameters(request, Nothing)
    network = daemon.require_lab()[0].network
    return {
        **(lab_json(daemon) or {}),
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


async def get_picture(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """What it takes to draw the lab as it stands."""
    parameters(request, Nothing)
    testbed = daemon.require_lab()[0]
    run = daemon.runs.in_progress
    return picture(testbed.network, testbed.experiment, testbed.place.name, run and run.progress())


async def get_switches(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """All switches."""
    parameters(request, Nothing)
    testbed = daemon.require_lab()[0]
    return {"switches": to_json(await switch_reports(testbed.controller, testbed.network))}


async def get_switch(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """One switch."""
    wanted = _switch(daemon, request).name
    return next(report for report in (await get_switches(daemon, request))["switches"] if report["name"] == wanted)


async def get_entries(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """What a switch holds, read from it now."""
    parameters(request, Nothing)
    switch = _switch(daemon, request)
    testbed = daemon.require_lab()[0]
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


async def get_counters(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """What a switch has counted, read from it now."""
    parameters(request, Nothing)
    switch = _switch(daemon, request)
    controller = daemon.require_lab()[0].controller
    table = await table_of(controller, switch)
    return {"switch": switch.name, "table": table, **await controller.counters(switch.dpid, table)}


async def get_boxes(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The latest counters of links and delay boxes."""
    parameters(request, Nothing)
    daemon.require_lab()
    return {"boxes": daemon.boxes}


async def get_experiment(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The experiment that stands."""
    parameters(request, Nothing)
    standing = daemon.require_standing()
    return {"name": standing.experiment.name, "backend": standing.backend, "description": standing.tree}


async def get_chains(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """Every chain that stands."""
    parameters(request, Nothing)
    chains = daemon.require_standing().experiment.chains
    return {
        "chains": [
            {"name": chain.name, "chain": list(chain.hops), "carries": carries_tree(chain.carries)} for chain in chains
        ]
    }


async def get_chain(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """One chain."""
    chains = {chain["name"]: chain for chain in (await get_chains(daemon, request))["chains"]}
    return _named(chains, request.match_info["name"], "chain")


async def get_latencies(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """Every world server's latency."""
    parameters(request, Nothing)
    experiment, network = daemon.require_standing().experiment, daemon.require_lab()[0].network
    rtts = {each.name: each.rtt.ns for _, each in latency_classes(network)}
    held = dict(experiment.latency)
    return {
        "servers": [
            {"server": host.name, "class": held.get(host.name), "rtt_ns": rtts.get(held.get(host.name, ""))}
            for host in network.world_hosts
        ],
        "classes": _classes(network),
    }


async def get_latency(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """One server's latency."""
    servers = {each["server"]: each for each in (await get_latencies(daemon, request))["servers"]}
    return _named(servers, request.match_info["server"], "world server")


async def get_plan(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The plan that stands."""
    parameters(request, Nothing)
    daemon.require_standing()
    plan = daemon.require_lab()[0].plan
    if plan is None:
        raise LabError("the plan is just changing; ask again")
    return await asyncio.to_thread(plan_answer, plan)


async def get_trace(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The way of a packet through what stands."""
    asked = parameters(request, Tracing)
    experiment = daemon.require_standing().experiment
    testbed = daemon.require_lab()[0]
    entries = testbed.plan.flows if testbed.plan else ()
    found = await asyncio.to_thread(trace, testbed.network, experiment, entries, asked.src, asked.dst, asked.protocol)
    return to_json(found)


async def post_trace(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The way of packets on the lab as it is, proven by probes."""
    asked = parameters(request, Probing)
    daemon.require_standing()
    testbed = daemon.require_lab()[0]
    found = await while_up(testbed, trace_live(testbed, asked.src, asked.dst, asked.protocol, asked.probes))
    return {"proven": found.proven, "lost": found.lost, "live": to_json(found)}


async def get_runs(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """All runs."""
    parameters(request, Nothing)
    return {"runs": daemon.runs.told()}


async def get_run(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """One run."""
    parameters(request, Nothing)
    return daemon.runs.find(request.match_info["id"]).told()


async def get_replays(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """Runs that can be watched again."""
    return await list_replays(daemon.replays, request)


async def get_replay(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """One of them."""
    return await tell_replay(daemon.replays, request)


async def get_replay_points(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Its points."""
    return await tell_points(daemon.replays, request)


async def get_events(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Events."""
    return await serve_events(request, daemon.events, parameters(request, Listening))


def plan_answer(plan: Plan) -> dict[str, Any]:
    """A plan as it is answered."""
    return {"experiment": plan.experiment, "sha256": plan_sha256(plan), "plan": to_json(plan)}


def _switch(daemon: LabDaemon, request: web.Request) -> Switch:
    network = daemon.require_lab()[0].network
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
