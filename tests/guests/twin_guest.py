# SPDX-License-Identifier: Apache-2.0
"""Labs whose switches have twins, and what the controller makes of them: ``python -m tests.guests.twin_guest DRIVER``.

Prints one JSON object with what each trial found. Run it in the kernel for virtual time.
"""

import asyncio
import contextlib
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from atoll_controller.fabric.flow_installer import read_tables, table_of
from atoll_controller.planner.entry_diff import diff
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import AtollError, LabError
from atoll_core.events.events import Note, Progress, SwapEvent
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.twin import TwinSettings
from atoll_core.plan.flow_entry import FlowEntry, Match, Output, Vlan
from atoll_core.plan.plan import Backend, Plan
from atoll_core.plan.tc_settings import VIRTUAL_SLACK
from atoll_core.units import Duration
from atoll_testbed.testbed import Testbed
from tests.guests.swap_guest import DATA
from tests.support.twins import twinned

SLOW, CROWDED, BUSY = "sw-i", "sw-w", "sw-c"
"""The switch that takes 100 flow-mods/s, the one whose table is nearly full, the one in the middle of the chain."""

REBOOTED = (SLOW, CROWDED, BUSY)
BEFORE, INSTALLING, AFTER = -1, 0, 5
"""When a switch reboots: as a swap is asked for, as it begins its first stage of five (install), and as it is over."""

MANY = 1500
REBOOT_S = 2.0
_HEALED_S = 60.0


class Trial:
    """A testbed of twins, and what it says."""

    def __init__(self, testbed: Testbed, experiment: Experiment) -> None:
        self._testbed = testbed
        self._experiment = experiment
        self._lines: list[str] = []
        self._notes: list[str] = []
        testbed.events.subscribe(lambda event: self._lines.append(event.text), Progress)
        testbed.events.subscribe(lambda event: self._notes.append(event.message), Note)

    async def run(self) -> dict[str, Any]:
        """Everything, one after the other on one lab."""
        return {
            "installed": await self._install(),
            "frozen": await self._frozen(),
            "many": await self._many(),
            "full": await self._full(),
            "reboots": [
                await self._reboot(switch, passed) for switch in REBOOTED for passed in range(BEFORE, AFTER + 1)
            ],
            "notes": [*self._notes],
            "software": await self._software(),
        }

    async def _install(self) -> dict[str, Any]:
        """The experiment, whose every path is verified by probes."""
        began_s = time.monotonic()
        plan, _ = await self._testbed.apply(self._experiment, Backend.TC)
        return {
            "took_s": time.monotonic() - began_s,
            "exact": await self._holds(plan),
            "tables": sorted(
                {await table_of(self._testbed.controller, each) for each in self._testbed.network.switches}
            ),
            "forwards": await self._forwards(plan),
        }

    async def _frozen(self) -> dict[str, Any]:
        """The counters of a switch in ten seconds with pings, and after twenty more."""
        began = await self._packets()
        await self._ping()
        soon = await self._packets()
        await asyncio.sleep(21)
        return {"began": began, "soon": soon, "later": await self._packets()}

    async def _many(self) -> dict[str, Any]:
        """Entries until the table has 1500, at 100 flow-mods/s, and back."""
        plan = self._plan
        held = sum(entry.switch == SLOW for entry in plan.flows)
        more = replace(plan, flows=(*plan.flows, *_entries(SLOW, MANY - held)))
        self._lines.clear()
        began_s = time.monotonic()
        await self._testbed._switches.apply(more)
        took_s = time.monotonic() - began_s
        lines, exact = list(self._lines), await self._holds(more)
        await self._testbed._switches.apply(plan)
        return {"added": MANY - held, "took_s": took_s, "lines": lines, "exact": exact, "back": await self._holds(plan)}

    async def _full(self) -> dict[str, Any]:
        """More entries than fit, which the table's features do not show."""
        plan, why = self._plan, ""
        more = replace(plan, flows=(*plan.flows, *_entries(CROWDED, 200)))
        try:
            await self._testbed._switches.apply(more)
        except LabError as error:
            why = str(error)
        await asyncio.sleep(4)
        return {"why": why, "exact": await self._holds(plan), "forwards": await self._forwards(plan)}

    async def _reboot(self, switch: str, passed: int) -> dict[str, Any]:
        """A swap to the other chain, in which a switch reboots after that many stages, and how it ended."""
        testbed, before = self._testbed, self._plan
        hops = ("tap-w", "r2", "sat", "tap-i")
        if testbed.experiment is not None and testbed.experiment.chain.hops == hops:
            hops = ("tap-w", "r1", "sat", "tap-i")
        new = replace(self._experiment, chain=replace(self._experiment.chain, hops=hops))
        stages: list[str] = []
        rebooted: list[asyncio.Task[None]] = []

        def take(event: SwapEvent) -> None:
            if event.state == "stage":
                stages.append(event.details["stage"])
            if event.state in ("begin", "stage") and len(stages) == passed and not rebooted:
                reboot()

        def reboot() -> None:
            rebooted.append(asyncio.create_task(testbed.lab.command_twin(switch, "reboot")))

        why = ""
        if passed == BEFORE:
            reboot()
        with testbed.events.subscribe(take, SwapEvent):
            try:
                await testbed.apply(new, Backend.TC)
            except LabError as error:
                why = str(error)
            if testbed._swap is not None:
                with contextlib.suppress(AtollError):
                    await testbed._swap.wait_for_end()
        await asyncio.gather(*rebooted)
        after = self._plan
        exact = await self._healed(after)
        outcome = "old" if after is before else "new"
        return {
            "switch": switch,
            "passed": passed,
            "rebooted": len(rebooted),
            "stages": stages,
            "outcome": outcome,
            "why": why,
            "exact": exact,
            "forwards": await self._forwards(after),
        }

    async def _software(self) -> dict[str, Any]:
        """600 packets/s for ten seconds on a switch whose hardware has no entries any more: its software has them.

        The bridge is told by hand, as the controller never uses that table.
        """
        testbed = self._testbed
        switch = testbed.network.switch(BUSY)
        own = [entry for entry in self._plan.flows if entry.switch == BUSY]
        await testbed.controller.change(switch.dpid, (), own, 200)
        await asyncio.sleep(4)
        hardware = ("ovs-ofctl", "-O", "OpenFlow13")
        await self._in_lab(*hardware, "del-flows", BUSY, "table=100")
        await self._in_lab(*hardware, "add-flow", BUSY, "table=100,priority=0,actions=goto_table:200")
        send = {
            "role": "send",
            "connect": "10.20.0.1:5301",
            "rate_bit_s": 600 * 8 * 628,  # IP bits
            "payload_bytes": 600,
            "start_at_ns": 0,
            "duration_ns": 10_000_000_000,
        }
        sender = await self._testbed.machine("w1").start_job("send", ["atoll-host", "udp"], config=send)
        await sender.wait()
        told = await self._in_lab(*hardware, "meter-stats", BUSY)
        came, dropped = (int(number) for number in re.findall(r"packet_(?:in_)?count:(\d+)", told))
        return {"sent": sender.last and sender.last["sent_packets"], "passed": came - dropped}

    async def _healed(self, plan: Plan) -> bool:
        """Whether the switches come to a plan by themselves."""
        for _ in range(int(_HEALED_S)):
            with contextlib.suppress(LabError):
                if await self._holds(plan):
                    await asyncio.sleep(4)  # its data plane follows
                    return True
            await asyncio.sleep(1)
        return False

    @property
    def _plan(self) -> Plan:
        if self._testbed.plan is None:
            raise RuntimeError("nothing was installed")
        return self._testbed.plan

    async def _holds(self, plan: Plan) -> bool:
        held = await read_tables(self._testbed.controller, self._testbed.network)
        return diff(plan.flows, (entry for entries in held.values() for entry in entries)) == ()

    async def _forwards(self, plan: Plan) -> bool:
        """Whether the bridges behind the twins have as many entries as the plan, besides the pipeline."""
        for switch in self._testbed.network.switches:
            told = await self._in_lab("ovs-ofctl", "-O", "OpenFlow13", "dump-aggregate", switch.name, "table=100")
            count = re.search(r"flow_count=(\d+)", told)
            if count is None or int(count[1]) != sum(entry.switch == switch.name for entry in plan.flows):
                return False
        return True

    async def _packets(self) -> int:
        told = await self._testbed.controller.counters(self._testbed.network.switch(BUSY).dpid, 100)
        return sum(each["packets"] for each in told["entries"])

    async def _ping(self) -> None:
        """Ten pings through the chain."""
        ping = {
            "targets": [{"name": "w1", "address": "10.10.0.1"}],
            "interval_ns": 100_000_000,
            "count": 10,
            "timeout_ns": 3_000_000_000,
            "size_bytes": 56,
            "identifier": 7,
            "payload": "twin",
            "start_at_ns": 0,
        }
        job = await self._testbed.machine("i1").start_job("ping", ["atoll-host", "ping"], config=ping)
        await job.wait()

    async def _in_lab(self, *argv: str) -> str:
        words = [*self._testbed.lab.enter(), *argv]
        asked = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        return (await asked.communicate())[0].decode()


def _entries(switch: str, number: int) -> Sequence[FlowEntry]:
    """Entries that lead nowhere, on a switch."""
    base = int(IPv4Address("10.20.128.0"))
    return [
        FlowEntry(
            switch,
            900,
            Match(40, Vlan.UNTAGGED, ipv4_dst=IPv4Network((base + each, 32))),
            (Output(1),),
            0x77,
            f"entry {each}",
        )
        for each in range(number)
    ]


async def main(driver: str) -> None:
    """Print what was found."""
    network, experiment = load_experiment(DATA / "experiment.yaml")
    usual = TwinSettings(reboot=Duration.parse(f"{REBOOT_S:g} s"))
    slow = replace(usual, flow_mods_per_s=100)
    crowded = replace(usual, max_entries=1500, occupied=1400)
    network = twinned(network, driver, usual, sw_i=slow, sw_w=crowded)
    make_plan(network, experiment)  # nothing is started if this hardware cannot do it
    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK)
    print(json.dumps(await Trial(testbed, experiment).run()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
