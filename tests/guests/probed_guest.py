# SPDX-License-Identifier: Apache-2.0
"""Run by test_probes inside a sandbox: a lab whose data plane is proven, broken, and proven not to work.

``python -m tests.guests.probed_guest EXPERIMENT RUNTIME`` prints what each probe said, as one JSON object.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

from atoll_controller.fabric.flow_installer import read_tables
from atoll_controller.fabric.swap_executor import steps_of
from atoll_controller.fabric.swap_plan import StageKind, plan_swap
from atoll_controller.planner.planner import make_plan
from atoll_controller.tracing.trace_report import LiveTrace, live_trace_text
from atoll_core.codec import to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import LabError
from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.plan.flow_entry import Output
from atoll_core.plan.plan import Plan
from atoll_testbed.testbed import Testbed
from atoll_testbed.verification import path_verification, swap_verification
from atoll_testbed.verification.live_trace import trace_live
from atoll_testbed.verification.swap_verification import verify_entries
from tests.support.runtime import RUNTIME

AROUND = ("tap-w", "pep-w", "sat", "pep-i", "tap-i")


async def outcome(work: Awaitable[Any]) -> str:
    """What work said against a lab; "" if it had nothing to say."""
    try:
        await work
    except LabError as error:
        return str(error)
    return ""


def answer(found: LiveTrace) -> dict[str, Any]:
    """A live trace for a test to read."""
    return {**to_json(found), "proven": found.proven, "lost": found.lost, "text": live_trace_text(found)}


class Probed:
    """A testbed and what was found of it."""

    def __init__(self, testbed: Testbed, experiment: Experiment) -> None:
        self.testbed = testbed
        self.experiment = experiment
        self.around = replace(
            experiment,
            chain=replace(experiment.chain, hops=AROUND),
            branches=(Chain("datagrams", ("sat",), TrafficSelector(protocol=Protocol.UDP)),),
        )
        self.said: dict[str, Any] = {}

    async def prove(self) -> None:
        """Everything, in order."""
        await self.testbed.apply(self.experiment)
        await self.traces()
        await self.new_version()
        await self.dead_box()

    async def traces(self) -> None:
        """Live traces on a path that is whole, and on one that lacks an entry."""
        testbed = self.testbed
        for name, protocol in (("icmp", Protocol.ICMP), ("tcp", Protocol.TCP), ("udp", Protocol.UDP)):
            self.said[name] = answer(await trace_live(testbed, "w1", "i1", protocol))
        self.said["back"] = answer(await trace_live(testbed, "i2", "w2"))
        entry = next(hop.entry for hop in (await trace_live(testbed, "ws", "i1")).trace.hops if hop.switch == "sw-c")
        assert entry is not None
        await testbed.controller.change(testbed.network.switch("sw-c").dpid, [entry], [])
        self.said["gap"] = answer(await trace_live(testbed, "ws", "i1"))
        await testbed.controller.change(testbed.network.switch("sw-c").dpid, [], [entry])

    async def new_version(self) -> None:
        """The new version of a swap, installed whole, without an entry, and with one that has a wrong port."""
        testbed, old = self.testbed, self.testbed.plan
        assert old is not None
        swap = plan_swap(testbed.network, self.experiment, old.layout, self.around)
        new = make_plan(testbed.network, self.around, layout=swap.layout)
        moves = steps_of(old, new, swap)
        proving = next(move for move in moves if move.stage.kind is StageKind.PROBE)
        installed, probes = proving.before, proving.stage.probes
        # Behind the first router on the way to the island, of what is new.
        victim = next(
            entry
            for entry in installed.flows
            if entry.switch == "sw-c" and entry.match.in_port == 12 and entry not in old.flows
        )
        wrong = replace(victim, actions=tuple(Output(2) if a == victim.actions[-1] else a for a in victim.actions))
        others = [entry for entry in installed.flows if entry != victim]
        for name, flows in (("whole", installed.flows), ("lacking", others), ("wrong", [*others, wrong])):
            await self._hold(replace(installed, flows=tuple(flows)))
            some = [each for each in probes if name == "whole" or (each.src, each.chain) == ("ws", "main")]
            self.said[name] = await outcome(verify_entries(testbed, some, self.around))
        await self._hold(installed)
        await self._in("cap-w", "ip link set cap-w-tap-w down")
        one = [each for each in probes if (each.src, each.chain) == ("ws", "main")]
        self.said["blind"] = await outcome(verify_entries(testbed, one, self.around))
        await self._in("cap-w", "ip link set cap-w-tap-w up")
        self.said["probes"] = sorted({f"{each.src} -> {each.dst}, {each.chain}" for each in probes})
        await self._hold(old)

    async def dead_box(self) -> None:
        """An experiment applied to a lab whose satellite link has no cable."""
        testbed = self.testbed
        await self._in("sat", "ip link set sat-i down")
        before = await self._held()
        self.said["cut"] = answer(await trace_live(testbed, "w1", "i1"))
        self.said["dead"] = await outcome(testbed.apply(self.around, at_once=True))
        self.said["restored"] = before == await self._held()
        await self._in("sat", "ip link set sat-i up")

    async def _held(self) -> set[str]:
        tables = await read_tables(self.testbed.controller, self.testbed.network)
        return {str(entry) for entries in tables.values() for entry in entries}

    async def _in(self, machine: str, command: str) -> None:
        job = await self.testbed.machine(machine).start_job(f"in-{machine}", command.split())
        await job.wait()

    async def _hold(self, plan: Plan) -> None:
        await self.testbed._switches.hold(plan, plan)


async def main(path: Path) -> None:
    """Prove a lab with an experiment."""
    # Nothing of this lab lags behind its switches' barriers.
    swap_verification.ATTEMPTS = path_verification.ATTEMPTS = 6  # pyright: ignore[reportPrivateImportUsage]
    network, experiment = load_experiment(path)
    testbed = await Testbed.start(network, runtime=RUNTIME)
    try:
        probed = Probed(testbed, experiment)
        await probed.prove()
    finally:
        await testbed.stop()
    print(json.dumps(probed.said))


asyncio.run(main(Path(sys.argv[1])))
