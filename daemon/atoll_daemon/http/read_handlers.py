# SPDX-License-Identifier: Apache-2.0
"""Handlers of requests that change nothing: the lab, its switches, the applied experiment, runs, events."""

import asyncio
import os
from importlib.metadata import version
from typing import Any

from aiohttp import web

from atoll_controller.fabric.flow_installer import table_of
from atoll_controller.fabric.switch_report import switch_reports
from atoll_controller.planner.entry_diff import with_reasons
from atoll_controller.planner.planner import plan_sha256
from atoll_controller.tracing.packet_trace import trace
from atoll_core.codec import to_json
from atoll_core.errors import LabError
from atoll_core.lab.network import Network, Switch
from atoll_core.plan.flow_entry import FlowEntry, sort_key
from atoll_core.plan.plan import Plan
from atoll_daemon.http.api_models import EventsRequest, ProbeRequest, TraceRequest
from atoll_daemon.http.event_stream import serve_events
from atoll_daemon.http.experiment_bodies import carries_tree, latency_classes, picture
from atoll_daemon.http.http_errors import require_named
from atoll_daemon.http.request_parsing import parameters
from atoll_daemon.lab_daemon import LabDaemon
from atoll_daemon.replays.replay_handlers import replay_answer, replays_answer, stream_points
from atoll_testbed.testbed import while_up
from atoll_testbed.verification.live_trace import trace_live


def lab_json(daemon: LabDaemon) -> dict[str, Any] | None:
    """A summary of the lab; None if none is up."""
    testbed = daemon.testbed
    if testbed is None:
        return None
    network, controller = testbed.network, testbed.controller
    description = testbed.platform.describe()
    experiment = testbed.experiment
    return {
        "name": network.name,
        "file": network.file,
        "place": testbed.platform.name,
        "datapath": description.get("datapath"),
        "ovs": description.get("ovs"),
        "inventory": description.get("inventory"),
        "controller": controller.runtime,
        "switches": {
            switch.name: "up" if (state := controller.switches.get(switch.dpid)) and state.up else "down"
            for switch in network.switches
        },
        "experiment": experiment.name if experiment else None,
        "chain": list(experiment.chain.hops) if experiment else None,
        "failed": testbed.failed.result() if testbed.failed.done() else None,
    }


async def get_status(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """The daemon, its lab, and the task in progress."""
    busy = daemon.tasks.busy
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


async def get_lab(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """The lab, its machines and latency classes."""
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
        "boxes": [{"name": box.name, "kind": box.kind.name, "routed": box.routed} for box in network.boxes],
        "taps": [
            {
                "name": tap.name,
                "host": tap.host,
                "physical": tap.physical,
                "direction": "to_island" if tap.to_island_only else "both",
            }
            for tap in network.taps
        ],
        "latency_classes": _classes_json(network),
    }


async def get_picture(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """The data to draw the lab: hosts, chains, links, latencies, the run in progress."""
    testbed = daemon.require_lab()[0]
    run = daemon.runs.in_progress
    return picture(testbed.network, testbed.experiment, testbed.platform.name, run and run.progress())


async def get_switches(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """All switches: identity, connection state, installed and free flow entries."""
    testbed = daemon.require_lab()[0]
    return {"switches": to_json(await switch_reports(testbed.controller, testbed.network))}


async def get_switch(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """One switch."""
    name = _switch(daemon, request).name
    return next(report for report in (await get_switches(daemon, request))["switches"] if report["name"] == name)


async def get_entries(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The flow entries of a switch, read from it now."""
    switch = _switch(daemon, request)
    testbed = daemon.require_lab()[0]
    table = await table_of(testbed.controller, switch)
    installed = await testbed.controller.read(switch.dpid, switch.name, table)
    explained_entries = with_reasons(installed, testbed.plan.flows if testbed.plan else ())
    entries = sorted((entry for entry in explained_entries if isinstance(entry, FlowEntry)), key=sort_key)
    return {
        "switch": switch.name,
        "table": table,
        "entries": [to_json(entry) for entry in entries],
        "packets": list(await testbed.controller.packets(switch.dpid, entries, table)),
        "foreign": [to_json(entry) for entry in installed if not isinstance(entry, FlowEntry)],
    }


async def get_counters(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The counters of a switch's ports and entries, read from it now."""
    switch = _switch(daemon, request)
    controller = daemon.require_lab()[0].controller
    table = await table_of(controller, switch)
    return {"switch": switch.name, "table": table, **await controller.counters(switch.dpid, table)}


async def get_boxes(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """The latest counters of every link and delay box."""
    daemon.require_lab()
    return {"boxes": daemon.boxes}


async def get_experiment(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """The applied experiment as YAML."""
    applied = daemon.require_applied()
    return {"name": applied.experiment.name, "backend": applied.backend, "description": applied.tree}


async def get_chains(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """All chains of the applied experiment."""
    chains = daemon.require_applied().experiment.chains
    return {
        "chains": [
            {"name": chain.name, "chain": list(chain.hops), "carries": carries_tree(chain.carries)} for chain in chains
        ]
    }


async def get_chain(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """One chain."""
    chains = {chain["name"]: chain for chain in (await get_chains(daemon, request))["chains"]}
    require_named(name := request.match_info["name"], chains, "chain", "chains")
    return chains[name]


async def get_latencies(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """Latencies of all world servers, and all latency classes."""
    experiment, network = daemon.require_applied().experiment, daemon.require_lab()[0].network
    rtts = {latency_class.name: latency_class.rtt.ns for _, latency_class in latency_classes(network)}
    latency = dict(experiment.latency)
    return {
        "servers": [
            {"server": host.name, "class": latency.get(host.name), "rtt_ns": rtts.get(latency.get(host.name, ""))}
            for host in network.world_hosts
        ],
        "classes": _classes_json(network),
    }


async def get_latency(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The latency of a world server."""
    server = world_server(daemon, request)
    latencies = (await get_latencies(daemon, request))["servers"]
    return next(latency for latency in latencies if latency["server"] == server)


async def get_plan(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """The plan of the applied experiment."""
    daemon.require_applied()
    plan = daemon.require_lab()[0].plan
    if plan is None:
        raise LabError("the plan is being changed; try again")
    return await asyncio.to_thread(plan_answer, plan)


async def get_trace(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """The path of a packet between two hosts."""
    query = parameters(request, TraceRequest)
    experiment = daemon.require_applied().experiment
    testbed = daemon.require_lab()[0]
    entries = testbed.plan.flows if testbed.plan else ()
    flow = query.src, query.dst, query.protocol
    return to_json(await asyncio.to_thread(trace, testbed.network, experiment, entries, *flow))


async def post_trace(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """Verify the path between two hosts by probe packets.

    Possible at any time, also during a run.
    """
    query = parameters(request, ProbeRequest)
    daemon.require_applied()
    testbed = daemon.require_lab()[0]
    live = await while_up(testbed, trace_live(testbed, query.src, query.dst, query.protocol, query.probes))
    return {"proven": live.proven, "lost": live.lost, "live": to_json(live)}


async def get_runs(daemon: LabDaemon, _: web.Request) -> dict[str, Any]:
    """The runs of this daemon, latest first."""
    return {"runs": daemon.runs.to_json()}


async def get_run(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """A run: state, step, figures, summary."""
    return daemon.runs.find(request.match_info["id"]).to_json()


async def get_replays(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """Runs that can be replayed, including the run in progress: the latest two hundred.

    Runs in `runs` in the directory of `atoll up` (or `atoll watch`), and all runs of the daemon.
    """
    return await replays_answer(daemon.replays, request)


async def get_replay(daemon: LabDaemon, request: web.Request) -> dict[str, Any]:
    """A run that can be replayed, without its points."""
    return await replay_answer(daemon.replays, request)


async def get_replay_points(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Metric points of a run as JSON lines of about a second each, in the order in which they were written."""
    return await stream_points(daemon.replays, request)


async def get_events(daemon: LabDaemon, request: web.Request) -> web.StreamResponse:
    """Events: JSON lines, or a WebSocket if the request asks for one."""
    return await serve_events(request, daemon.events, parameters(request, EventsRequest))


def world_server(daemon: LabDaemon, request: web.Request) -> str:
    """The world server in the request's path. Raises RequestError (404)."""
    server = request.match_info["server"]
    servers = [host.name for host in daemon.require_lab()[0].network.world_hosts]
    require_named(server, servers, "world server", "world servers")
    return server


def plan_answer(plan: Plan) -> dict[str, Any]:
    """A plan in the form of the API."""
    return {"experiment": plan.experiment, "sha256": plan_sha256(plan), "plan": to_json(plan)}


def _switch(daemon: LabDaemon, request: web.Request) -> Switch:
    network, name = daemon.require_lab()[0].network, request.match_info["name"]
    require_named(name, [switch.name for switch in network.switches], "switch", "switches")
    return network.switch(name)


def _classes_json(network: Network) -> list[dict[str, Any]]:
    return [
        {"name": delay.name, "delay_box": box, "rtt_ns": delay.rtt.ns, "jitter_ns": delay.jitter.ns, "vlan": delay.tag}
        for box, delay in latency_classes(network)
    ]
