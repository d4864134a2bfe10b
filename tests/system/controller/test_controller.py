# SPDX-License-Identifier: Apache-2.0
"""The controller process with four real switches: a private Open vSwitch in namespaces of the test's own."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atoll_controller.fabric.flow_installer import apply_flows, read_tables
from atoll_controller.openflow.controller_client import Controller, interpreter
from atoll_controller.planner.entry_diff import ChangeAction
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import LabError
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry, Match, Output, PopVlan, UnmanagedEntry, Vlan, sort_key
from atoll_core.plan.plan import Plan
from atoll_core.plan.switch_features import Runtime
from tests.support.bridges import CONNECT_S, DPIDS, NOBODY, Switches
from tests.support.runtime import ON_RUNTIME, RUNTIME, start_controller

pytestmark = [pytest.mark.lab, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_controller(switches: Switches) -> AsyncIterator[Controller]:
    """A controller for all tests of this module."""
    running = await start_controller(switches.enter)
    yield running
    await running.close()


@pytest_asyncio.fixture(loop_scope="module")
async def controller(switches: Switches, shared_controller: Controller) -> Controller:
    """The shared controller with all four switches, their tables empty."""
    switches.clear()
    switches.connect(shared_controller.port)
    async with asyncio.timeout(CONNECT_S):
        while not await answers(shared_controller):  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.05)
    return shared_controller


async def answers(controller: Controller) -> bool:
    """Whether all switches do: that a test before led one of them away may not have been noticed yet."""
    await controller.wait_for(DPIDS, CONNECT_S)
    try:
        for dpid in DPIDS:
            await controller.count(dpid, 0)
    except LabError:
        return False
    return True


async def held(controller: Controller, network: Network) -> list[FlowEntry | UnmanagedEntry]:
    """All entries of all switches."""
    tables = await read_tables(controller, network)
    return [entry for entries in tables.values() for entry in entries]


async def test_the_switches_hold_exactly_the_plan(
    switches: Switches, controller: Controller, demo: tuple[Network, Plan]
) -> None:
    """A dry run changes nothing; the real one installs every entry; a second one finds nothing to do."""
    network, plan = demo
    foreseen = await apply_flows(controller, network, plan, dry_run=True)
    assert await held(controller, network) == []
    made = await apply_flows(controller, network, plan)
    assert made == foreseen
    assert [change.entry for change in made] == list(plan.flows)
    found = [entry for entry in await held(controller, network) if isinstance(entry, FlowEntry)]
    assert sorted(found, key=sort_key) == [replace(entry, why="") for entry in plan.flows]
    assert await apply_flows(controller, network, plan) == ()
    assert "NORMAL" not in "".join(switches.ofctl("dump-flows", f"br{n}") for n in DPIDS)


async def test_another_chain_is_reached_by_the_difference(
    controller: Controller, demo: tuple[Network, Plan], project: Path
) -> None:
    """From one experiment to the other and back: what both share is left alone."""
    network, plan = demo
    other = make_plan(*load_experiment(project / "examples" / "meo.yaml"))
    await apply_flows(controller, network, plan)
    changes = await apply_flows(controller, network, other)
    assert {change.entry.switch for change in changes} == {"sw-c"}
    assert await apply_flows(controller, network, other) == ()
    assert len(await apply_flows(controller, network, plan)) == len(changes)
    assert await apply_flows(controller, network, plan) == ()


async def test_an_entry_removed_by_hand_is_repaired_by_one_change(
    switches: Switches, controller: Controller, demo: tuple[Network, Plan]
) -> None:
    """The change names the entry that is missing and where."""
    network, plan = demo
    await apply_flows(controller, network, plan)
    switches.ofctl(
        "del-flows",
        "br1",
        "--strict",
        "priority=1000,in_port=3,ip,vlan_tci=0x0000/0x1fff,nw_src=10.10.0.3,nw_dst=10.20.0.0/16",
    )
    (change,) = await apply_flows(controller, network, plan)
    assert change.action is ChangeAction.ADD
    assert (change.entry.why, change.reason) == ("w3 -> island: class rtt-50 of delay", "missing on sw-w1")
    assert await apply_flows(controller, network, plan) == ()


@pytest.mark.parametrize(
    ("by_hand", "words"),
    [
        ("priority=5,actions=NORMAL", "any frame: port NORMAL"),
        ("priority=7,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,actions=goto_table:3", "GotoTable"),
        ("priority=9,in_port=3,ip,nw_src=10.0.0.1,idle_timeout=600,actions=controller", "idle time-out 600 s"),
        ("priority=9,in_port=3,vlan_tci=0x1000/0x1000,tcp,tcp_dst=80,actions=drop", "vlan_vid 4096/4096"),
        ("priority=9,in_port=3,reg1=5,actions=set_field:7->reg2,output:3", "in_port 3"),
        ("priority=2000,in_port=24,actions=drop", "priority 2000, port 24"),
        ("table=5,priority=1000,in_port=3,actions=output:5", "priority 1000, table 5, in_port 3: port 5"),
        ("table=7,priority=0,actions=NORMAL", "priority 0, table 7, any frame: port NORMAL"),
    ],
)
async def test_an_entry_added_by_hand_is_removed(
    switches: Switches, controller: Controller, demo: tuple[Network, Plan], by_hand: str, words: str
) -> None:
    """Whatever it matches and does; it is told in words."""
    network, plan = demo
    await apply_flows(controller, network, plan)
    switches.ofctl("add-flow", "br3", by_hand)
    (change,) = await apply_flows(controller, network, plan)
    assert (change.action, change.entry.switch) == (ChangeAction.DELETE, "sw-c")
    assert words in str(change)
    assert await apply_flows(controller, network, plan) == ()


async def test_the_pipeline_between_other_tables_is_left_alone(
    switches: Switches, controller: Controller, demo: tuple[Network, Plan]
) -> None:
    """Switches of several tables have table misses that lead from one to the next, and do not let them go."""
    network, plan = demo
    await apply_flows(controller, network, plan)
    switches.ofctl("add-flow", "br3", "table=3,priority=0,actions=goto_table:4")
    switches.ofctl("add-flow", "br3", "table=4,priority=0,actions=drop")
    assert await apply_flows(controller, network, plan) == ()
    switches.ofctl("del-flows", "br3", "table=3")
    switches.ofctl("del-flows", "br3", "table=4")


async def test_a_second_switch_with_a_known_datapath_id_is_not_believed(
    switches: Switches, controller: Controller, demo: tuple[Network, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once, what the first one holds is still what is read, and nothing is written to the second."""
    network, plan = demo
    await apply_flows(controller, network, plan)
    before = await held(controller, network)
    events: list[dict[str, Any]] = []
    monkeypatch.setattr(controller, "on_event", events.append)
    database = f"--db=unix:{switches.environment['OVS_RUNDIR']}/db.sock"
    second = ["add-br", "br9", "--", "set", "bridge", "br9", "datapath_type=netdev", "protocols=OpenFlow13"]
    switches.run("ovs-vsctl", database, *second, f"other-config:datapath-id={3:016x}")
    try:
        switches.connect(controller.port, "br9")
        async with asyncio.timeout(CONNECT_S):
            while not events:  # noqa: ASYNC110 - the test watches what a user's callback gets
                await asyncio.sleep(0.05)
        await asyncio.sleep(2.5)  # it tries again
        assert [event["type"] for event in events] == ["error"]
        assert events[0]["message"].startswith(
            "a second switch with datapath id 3 connected from 127.0.0.1 and was refused; the first is at 127.0.0.1: "
        )
        assert await held(controller, network) == before
        await apply_flows(controller, network, replace(plan, flows=()))
        await apply_flows(controller, network, plan)
        assert switches.ofctl("dump-flows", "br9").count("cookie=0xa7") == 0
    finally:
        switches.run("ovs-vsctl", database, "del-br", "br9")


async def test_actions_changed_by_hand_are_put_right(
    switches: Switches, controller: Controller, demo: tuple[Network, Plan]
) -> None:
    """The reason has both versions."""
    network, plan = demo
    await apply_flows(controller, network, plan)
    switches.ofctl(
        "mod-flows",
        "br3",
        "--strict",
        "priority=1000,in_port=16,ip,vlan_tci=0x0000/0x1fff,nw_src=10.10.0.0/16,nw_dst=10.20.0.0/16,actions=output:3",
    )
    (change,) = await apply_flows(controller, network, plan)
    assert change.action is ChangeAction.MODIFY
    assert change.reason == "actions differ: on the switch 'port 3', in the plan 'port 22, port 3'"
    assert await apply_flows(controller, network, plan) == ()


async def test_a_refused_entry_is_named_and_undone(controller: Controller, demo: tuple[Network, Plan]) -> None:
    """One bad entry among good ones, on the last switch: all switches are brought back to what they held."""
    network, plan = demo
    await apply_flows(controller, network, replace(plan, flows=plan.flows[:20]))
    before = await held(controller, network)
    bad = FlowEntry("sw-i", 1000, Match(99, Vlan.UNTAGGED), (PopVlan(), Output(3)), 7, "nothing to pop")
    with pytest.raises(LabError) as failure:
        await apply_flows(controller, network, replace(plan, flows=(*plan.flows, bad)))
    assert str(failure.value) == (
        "sw-i: switch 4 refused 'nothing to pop' (priority 1000, port 99, untagged, any -> any: pop, port 3): "
        "OFPET_BAD_ACTION OFPBAC_MATCH_INCONSISTENT "
        "(the actions do not fit the match, for example popping a tag of untagged frames)"
    )
    assert sorted(map(str, await held(controller, network))) == sorted(map(str, before))


async def test_switches_keep_their_tables_without_a_controller(switches: Switches, demo: tuple[Network, Plan]) -> None:
    """Neither its death nor its return changes an entry."""
    network, plan = demo
    switches.clear()
    controller = await start_controller(switches.enter)
    switches.connect(controller.port)
    await controller.wait_for(DPIDS, CONNECT_S)
    await apply_flows(controller, network, plan)
    entered = controller._process.pid
    os.kill(int(Path(f"/proc/{entered}/task/{entered}/children").read_text()), signal.SIGKILL)
    await controller.closed
    assert sum(switches.ofctl("dump-flows", f"br{n}").count("cookie=") for n in DPIDS) == len(plan.flows)
    again = await start_controller(switches.enter, f"127.0.0.1:{controller.port}")
    try:
        await again.wait_for(DPIDS, CONNECT_S)
        assert await apply_flows(again, network, plan) == ()
    finally:
        await again.close()


async def test_a_switch_that_leaves_and_returns(
    switches: Switches, controller: Controller, demo: tuple[Network, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known to be gone, requests to it say so, and it is served again as soon as it is back."""
    network, plan = demo
    await apply_flows(controller, network, plan)
    events: list[dict[str, Any]] = []
    monkeypatch.setattr(controller, "on_event", events.append)
    switches.connect(NOBODY, "br3")
    async with asyncio.timeout(CONNECT_S):
        while not events:  # noqa: ASYNC110 - the test watches what a user's callback gets
            await asyncio.sleep(0.05)
    with pytest.raises(LabError, match="sw-c: switch 3 is not connected"):
        await apply_flows(controller, network, plan)
    switches.connect(controller.port, "br3")
    await controller.wait_for([3], CONNECT_S)
    await apply_flows(controller, network, plan)
    assert await apply_flows(controller, network, plan) == ()
    assert [(event["dpid"], event["state"]) for event in events] == [(3, "down"), (3, "up")]


async def test_the_recorded_exchange(switches: Switches, project: Path) -> None:
    """The real process with a real switch says what tests/data/contract/controller.jsonl says it does."""
    switches.connect(NOBODY)  # a bridge that gets its first controller empties its tables
    switches.clear()
    switches.ofctl("add-flow", "br1", "priority=5,actions=NORMAL")
    text = (project / "tests/data/contract/controller.jsonl").read_text(encoding="utf-8")
    replay(switches, [json.loads(line) for line in text.splitlines()])


def replay(switches: Switches, steps: list[dict[str, Any]]) -> None:
    """Say what the daemon says, and check that the controller says the rest; other switches' events are passed over."""
    argv = [*switches.enter, interpreter(RUNTIME), "-m", "atoll_controller.openflow", "--listen", "127.0.0.1:6653"]
    argv += ON_RUNTIME
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for step in steps:
            if step["from"] == "keeper":
                process.stdin.write(json.dumps(step["message"]) + "\n")
                process.stdin.flush()
                continue
            said = json.loads(process.stdout.readline())
            while said["type"] == "switch" and said["dpid"] != 1:
                said = json.loads(process.stdout.readline())
            if RUNTIME is Runtime.RYU and said["type"] == "ready":
                assert said["runtime"] == "ryu 4.34"
                said["runtime"] = step["message"]["runtime"]
            assert said == step["message"]
            if said["type"] == "ready":
                switches.connect(said["port"])
        process.stdin.close()
        assert process.wait(10) == 0
