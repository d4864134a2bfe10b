# SPDX-License-Identifier: Apache-2.0
"""Random swaps on a lab under traffic, all of which is captured: ``python -m tests.guests.swap_guest OUT OPTIONS``.

OPTIONS is a JSON object (``Options``). 50 Mbit/s of UDP with sequence numbers go to the island, 4 Mbit/s to the world,
TCP flows beside them, through a link of 100 Mbit/s and 250 ms. OUT gets a capture for every port that packets come
to (``swap_proof`` judges them) and ``facts.json``: every version of the chain with the instants of its swap.
Run it in a sandbox, or in the kernel for virtual time.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import random
import re
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atoll_controller.fabric import reconciler
from atoll_controller.fabric.flow_installer import read_tables
from atoll_controller.fabric.swap_plan import plan_swap
from atoll_controller.planner.entry_diff import diff
from atoll_core.description.loader import load_experiment
from atoll_core.errors import LabError, PlanError
from atoll_core.events.events import SwapEvent
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.residence import longest_residence_ns
from atoll_core.lab.network import Network
from atoll_core.lab.twin import TwinSettings
from atoll_core.plan.plan import Backend, Phase, Plan
from atoll_core.plan.tag_layout import UNTAGGED, Layout
from atoll_core.plan.tc_settings import TIMER_SLACK, VIRTUAL_SLACK
from atoll_hosts.agent import Job
from atoll_switches.capability_profile import drivers, profile
from atoll_testbed.platforms import base
from atoll_testbed.testbed import Testbed
from tests.support.lagging_switches import LAGS_S, LaggingController
from tests.support.random_swaps import changed_experiment
from tests.support.runtime import RUNTIME
from tests.support.twins import twinned

DATA = Path(__file__).resolve().parents[1] / "data" / "swaps"
UDP_PORTS = {"to_island": 5301, "to_world": 5302}
_RATES = {"to_island": 50_000_000, "to_world": 4_000_000}
_SWAP_TAKES_S = 1.8
KILLED_AFTER = {1: "install", 2: "shift"}
"""The stages of the first two swaps after which the controller is killed: before and after packets turn."""
_SNAP_BYTES = 106  # Ethernet, VLAN, IPv4 and UDP headers, a coder's, stream, sequence number, send stamp
_BUFFER_BYTES = 16 << 20
_SOCKET_BYTES = 16 << 20
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_PIDFD_GETFD = 438  # asm-generic/unistd.h


@dataclass(frozen=True)
class Options:
    """``kill``: the controller is killed in every swap, at a random moment from the third one on.

    ``pause_s``: between swaps, up to twice.

    ``lag_s``: how far the switches' data planes are behind their barriers at most, each of them anew in every
    ``lag_every``th swap. ``lagging``: only this switch is behind, by ``lag_s``. ``chains``: what is swapped to in turn,
    instead of random chains. ``latencies``: the latency classes of servers with each of these chains. ``share``: of the
    UDP streams' rates. ``twin``: each switch is a twin of this hardware. ``detours``: only swaps that pass versions in
    between; else none of them. ``experiment``: the file to begin with. ``boxes``: swaps between random chains of coders
    and PEPs, with other settings of these and of the link, and other latencies.
    """

    swaps: int
    seed: int = 1
    backend: str = "engine"
    kill: bool = False
    virtual: bool = False
    pause_s: float = 0.2
    lag_s: float = 0.0
    lag_every: int = 1
    lagging: str = ""
    chains: Sequence[Sequence[str]] = ()
    latencies: Sequence[Sequence[tuple[str, str]]] = ()
    share: float = 1.0
    twin: str = ""
    detours: bool = False
    experiment: str = "experiment.yaml"
    boxes: bool = False


class Trial:
    """A testbed with its traffic and captures."""

    def __init__(self, testbed: Testbed, out: Path, options: Options) -> None:
        self._testbed = testbed
        self._out = out
        self._options = options
        self._draw = random.Random(options.seed)
        self._captures: dict[str, Job] = {}
        self._events: list[dict[str, Any]] = []

    async def run(self, experiment: Experiment) -> dict[str, Any]:
        """Everything; the facts that the proof needs."""
        testbed, backend = self._testbed, Backend(self._options.backend)
        self._lag(0)
        await testbed.apply(experiment, backend)
        if not self._options.virtual:
            widen_switch_sockets()
        await self._start_captures(testbed.network)
        udp = {way: await self._receive(way) for way in UDP_PORTS}
        tcp = await self._start_tcp(testbed.plan)
        before = await testbed.mark_boxes()
        senders = {way: await self._send(way) for way in UDP_PORTS}
        await asyncio.sleep(1.0)
        versions: list[dict[str, Any]] = [{"hops": experiment.chain.hops, "swap": None}]
        refused = held_ns = 0
        while len(versions) <= self._options.swaps:
            chains, latencies = self._options.chains, self._options.latencies
            turn = len(versions) - 1
            if self._options.boxes:
                hops = experiment.chain.hops
            else:
                hops = chains[turn % len(chains)] if chains else self._draw_hops(experiment, len(versions))
            latency = tuple((server, name) for server, name in latencies[turn % len(chains)]) if latencies else ()
            latency = experiment.latency if self._options.boxes else latency
            new = replace(experiment, chain=replace(experiment.chain, hops=tuple(hops)), latency=latency)
            if self._options.boxes:
                new = changed_experiment(self._draw, new)
            try:
                planned = plan_swap(testbed.network, experiment, layout(testbed), new)
            except PlanError:
                refused += 1
                continue
            if not planned.stages:
                continue  # taps in another order that ask for the same
            if not self._options.boxes and (len(planned.parts) > 1) is not self._options.detours:
                refused += not self._options.detours
                continue
            held_ns = max(held_ns, *(_held_ns(testbed.network, each) for each in (experiment, *planned.versions)))
            lags_s = self._lag(len(versions))
            passed = [version.chain.hops for version in planned.versions[1:]]
            subjects = [part.subject for part in planned.parts]
            announced: dict[str, Any] = {
                "link changes": new.links != experiment.links,
                "moved": [part.moved for part in planned.parts],
                "renewed": [part.renewed for part in planned.parts],
                "uncoded": [part.uncoded for part in planned.parts],
            }
            fact = {
                **await self._swap(new, backend, len(versions)),
                "lags_s": lags_s,
                "passed": passed,
                "subjects": subjects,
            } | announced
            if fact["outcome"] == "new":
                experiment = new
            versions.append({"hops": new.chain.hops, "swap": fact})
            await asyncio.sleep(self._draw.uniform(0, 2 * self._options.pause_s))
        await asyncio.sleep(1.0)
        if isinstance(testbed.controller, LaggingController):
            await testbed.controller.followed()
            versions[-1]["swap"]["exact"] &= testbed.plan is not None and await self._holds(testbed.plan)
        sent = {way: await self._ended(job) for way, job in senders.items()}
        await asyncio.sleep(1.5 + _held_ns(testbed.network, experiment) / 1e9)  # a coder may hold the last packets
        marks = await testbed.mark_boxes()
        loads = [await self._ended(job) for job in tcp]
        received = {way: await self._ended(job) for way, job in udp.items()}
        captures = {name: await self._ended(job) for name, job in self._captures.items()}
        return {
            "versions": versions,
            "routed": [box.name for box in testbed.network.boxes if box.routed],
            "refused": refused,
            "held_ns": held_ns,
            "sent": sent,
            "received": received,
            "link": {"begin": before["sat"], "end": marks["sat"]},
            "load": loads[0],
            "captures": captures,
            "switch_drops": await self._switch_drops(),
            "datapath": testbed.lab.datapath,
            "events": self._events,
        }

    def _draw_hops(self, experiment: Experiment, number: int) -> Sequence[str]:
        """Another chain: other routed boxes, or the same in the same order and taps and the link elsewhere."""
        hops = experiment.chain.hops
        routed = [box.name for box in self._testbed.network.boxes if box.routed]
        boxes = [hop for hop in hops if hop in routed]
        while number % 2 or self._options.detours:
            chosen = self._draw.sample(routed, self._draw.randint(0, len(routed)))
            if chosen != boxes:
                boxes = chosen
                break
        while True:
            new = list(boxes)
            new.insert(self._draw.randint(0, len(new)), "sat")
            for tap in ("tap-w", "tap-i"):
                if self._draw.random() < 0.7:
                    new.insert(self._draw.randint(0, len(new)), tap)
            if tuple(new) != hops:
                return new

    def _lag(self, number: int) -> list[float]:
        """Let each switch lag by another time from now on, some of them by none; the times."""
        lag_s = self._options.lag_s if number % self._options.lag_every == 0 else 0.0
        lagging = self._options.lagging
        for switch in self._testbed.network.switches if self._options.lag_s else ():
            drawn_s = max(0.0, self._draw.uniform(-lag_s / 3, lag_s))
            LAGS_S[switch.dpid] = drawn_s if not lagging else lag_s if switch.name == lagging else 0.0
        return list(LAGS_S.values())

    async def _swap(self, new: Experiment, backend: Backend, number: int) -> dict[str, Any]:
        testbed, old = self._testbed, self._testbed.plan
        fatal = asyncio.Event()
        began_ns = time.time_ns()
        stages: dict[str, tuple[int, int]] = {}
        shifts: dict[int, tuple[int, int]] = {}
        resets: dict[int, int] = {}
        texts: list[str] = []
        ends: dict[str, Any] = {}

        def take(event: SwapEvent) -> None:
            found = event.details
            if event.state == "stage":
                stages[found["stage"]] = found["began_ns"], found["began_ns"] + found["duration_ns"]
                if shifts:
                    resets.setdefault(max(shifts), found["began_ns"])
                if found["stage"] == KILLED_AFTER.get(number):
                    fatal.set()
                if found["stage"] == "shift":
                    shifts[found["part"]] = stages["shift"]
                texts.append(found["text"])
            if event.state == "end":
                ends.update(found)

        killing = None
        if self._options.kill:
            after_s = self._draw.uniform(0, _SWAP_TAKES_S)
            moment = fatal.wait() if number in KILLED_AFTER else asyncio.sleep(after_s)
            killing = asyncio.create_task(self._kill_at(moment))
        outcome, why = "new", ""
        try:
            with testbed.events.subscribe(take, SwapEvent):
                plan, _ = await testbed.apply(new, backend)
        except LabError as error:
            plan, outcome, why = old, "old", str(error)
        ended_ns = time.time_ns()
        killed_ns = await killing if killing is not None else None
        exact = plan is not None and await self._holds(plan)
        return {
            "began_ns": began_ns,
            "ended_ns": ended_ns,
            "outcome": outcome,
            "why": why,
            "exact": exact,
            "killed_ns": killed_ns,
            "stages": stages,
            "shifts": [shifts.get(part) for part in range(max(shifts, default=-1) + 1)],
            "resets": {part: resets.get(part, ended_ns) for part in shifts},
            "texts": texts,
            "beyond_drain_ns": ends.get("beyond_drain_ns"),
        }

    async def _holds(self, plan: Plan) -> bool:
        held = await read_tables(self._testbed.controller, self._testbed.network)
        return diff(plan.flows, (entry for entries in held.values() for entry in entries)) == ()

    async def _kill_at(self, moment: Awaitable[object]) -> int:
        """SIGKILL the controller then, and wait until all is well again; the instant."""
        await moment
        killed = self._testbed.controller
        entered = killed._process.pid
        os.kill(int(Path(f"/proc/{entered}/task/{entered}/children").read_text().split()[0]), signal.SIGKILL)
        killed_ns = time.time_ns()
        while self._testbed.controller is killed:  # noqa: ASYNC110 - as a user would
            await asyncio.sleep(0.02)
        await self._testbed.wait_until_settled()
        return killed_ns

    async def _start_captures(self, network: Network) -> None:
        """At every port of a box, where packets come in; where they leave the link; at the taps and at both ends."""
        points = [
            (box.name, leg.name, "in")
            for box in network.boxes
            for legs in box.pairs
            for leg in (legs.world, legs.island)
        ]
        sat = network.box("sat")
        points += [("sat", sat.world.name, "out"), ("sat", sat.island.name, "out")]
        points += [(tap.host, tap.interface.name, "in") for tap in network.taps]
        for name in ("w1", "i1"):
            points += [(name, network.host(name).interface.name, way) for way in ("in", "out")]
        for machine, interface, way in points:
            name = f"{interface}-{way}"
            config = {
                "interface": interface,
                "file": str(self._out / f"{name}.pcap"),
                "snap_bytes": _SNAP_BYTES,
                "direction": way,
                "buffer_bytes": _BUFFER_BYTES,
            }
            self._captures[name] = await self._start(f"capture-{name}", machine, "capture", config)

    async def _receive(self, way: str) -> Job:
        network = self._testbed.network
        host = network.host("i1" if way == "to_island" else "w1")
        config = {"role": "receive", "listen": f"{host.address}:{UDP_PORTS[way]}", "each": False}
        return await self._start(f"udp-receive-{way}", host.name, "udp", config)

    async def _send(self, way: str) -> Job:
        network = self._testbed.network
        src, dst = ("w1", "i1") if way == "to_island" else ("i1", "w1")
        config = {
            "role": "send",
            "connect": f"{network.host(dst).address}:{UDP_PORTS[way]}",
            "rate_bit_s": int(_RATES[way] * self._options.share),
            "payload_bytes": 1472,
            "start_at_ns": 0,
            "duration_ns": 0,
        }
        return await self._start(f"udp-send-{way}", src, "udp", config)

    async def _start_tcp(self, plan: Plan | None) -> list[Job]:
        """The experiment's own load, on one client; last in, first out."""
        jobs: list[Job] = []
        for spec in plan.jobs if plan else ():
            wanted = spec.phase is Phase.SERVER or (spec.phase is Phase.CLIENT and spec.host == "i2")
            if wanted and spec.config is not None:
                config = {**spec.config}
                if "flow_log" in config:
                    config |= {"flow_log": str(self._out / "flows.csv"), "start_at_ns": 0, "duration_ns": 0}
                jobs.append(await self._start(spec.name, spec.host, spec.argv[1], config))
        return jobs[::-1]

    async def _start(self, name: str, machine: str, tool: str, config: dict[str, Any]) -> Job:
        job = await self._testbed.machine(machine).start_job(
            name,
            ["atoll-host", tool],
            config=config,
            stderr=str(self._out / "jobs.err"),
        )
        await job.ready(10)
        return job

    async def _ended(self, job: Job) -> dict[str, Any]:
        await job.stop(5)
        await job.wait()
        return job.last or {}

    async def _switch_drops(self) -> int:
        """Packets that found the switches' own sockets full: the machine was busy elsewhere (userspace datapath)."""
        return sum(int(number) for number in re.findall(r"skmem:\([^)]*,d(\d+)\)", await self._in_lab("ss", "-0m")))

    async def _in_lab(self, *argv: str) -> str:
        words = [*self._testbed.lab.enter(), *argv]
        asked = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        return (await asked.communicate())[0].decode()


def _held_ns(network: Network, experiment: Experiment) -> int:
    """The longest time in boxes and in the queues of links."""
    ways = [way for link in experiment.links for way in (link.to_island, link.to_world)]
    return longest_residence_ns(network, experiment) + max(way.full_queue.ns for way in ways)


def layout(testbed: Testbed) -> Layout:
    """How the chains stand."""
    return testbed.plan.layout if testbed.plan else UNTAGGED


def widen_switch_sockets() -> None:
    """Let the sockets of the userspace datapath hold a second of traffic instead of 20 ms: this machine is busy."""
    libc = ctypes.CDLL(None)
    for comm in Path("/proc").glob("[0-9]*/comm"):
        if comm.read_text() != "ovs-vswitchd\n":
            continue
        pid = os.pidfd_open(int(comm.parent.name))
        for fd in (comm.parent / "fd").iterdir():
            if fd.readlink().name.startswith("socket:"):
                with socket.socket(fileno=libc.syscall(_PIDFD_GETFD, pid, int(fd.name), 0)) as theirs:
                    if theirs.family == socket.AF_PACKET:
                        theirs.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _SOCKET_BYTES)
        os.close(pid)


async def main(out: Path, options: Options) -> None:
    """Write captures and facts.json."""
    if options.lag_s:
        base.Controller = LaggingController  # pyright: ignore[reportPrivateImportUsage]
        lagging = {driver: replace(profile(driver), lag_s=options.lag_s) for driver in drivers()}
        reconciler.profile = lagging.__getitem__  # pyright: ignore[reportPrivateImportUsage]
    reconciler._MAX_RESTARTS = 10**6  # it is killed more often than would be right anywhere else
    network, experiment = load_experiment(DATA / options.experiment)
    if options.twin:
        network = twinned(network, options.twin, TwinSettings(seed=options.seed))
    slack = VIRTUAL_SLACK if options.virtual else TIMER_SLACK
    testbed = await Testbed.start(network, runtime=RUNTIME, slack=slack)
    try:
        facts = await Trial(testbed, out, options).run(experiment)
        (out / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    finally:
        if not options.virtual:  # there the kernel just ends
            with contextlib.suppress(LabError):
                await testbed.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Options(**json.loads(sys.argv[2]))))
