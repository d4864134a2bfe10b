# SPDX-License-Identifier: Apache-2.0
"""The controller's protocol, both ends, against tests/data/contract/controller.jsonl.

The client talks to a player of the recorded exchange, the real process is asked what needs no switch;
tests/system/controller/test_controller.py has the whole exchange with a real switch.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from atoll_controller.openflow.controller_client import Controller
from atoll_core.codec import from_json
from atoll_core.errors import LabError
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry
from atoll_core.plan.switch_features import UnmanagedState

# Says what the controller says, line by line, and checks that it is asked what it expects.
_PLAYER = """#!{python}
import json, sys
for line in open({exchange!r}):
    step = json.loads(line)
    if step["from"] == "controller":
        print(json.dumps(step["message"]), flush=True)
    else:
        asked = json.loads(sys.stdin.readline())
        if asked != step["message"]:
            sys.exit(f"asked {{asked}}, expected {{step['message']}}")
sys.stdin.read()
"""


@pytest.fixture
def recorded(project: Path) -> list[dict[str, Any]]:
    """The exchange, in order."""
    text = (project / "tests/data/contract/controller.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def player(project: Path, tmp_path: Path) -> str:
    """A program that plays the controller's part, whatever its arguments."""
    path = tmp_path / "player"
    exchange = str(project / "tests/data/contract/controller.jsonl")
    path.write_text(_PLAYER.format(python=sys.executable, exchange=exchange))
    path.chmod(0o755)
    return str(path)


def asked(recorded: list[dict[str, Any]], number: int) -> dict[str, Any]:
    """The request of that number."""
    return next(step["message"] for step in recorded if step["from"] == "keeper" and step["message"]["id"] == number)


async def test_the_client_keeps_the_contract(recorded: list[dict[str, Any]], player: str) -> None:
    """Each call sends the recorded request and makes of the recorded answer what it promises."""
    controller = await Controller.start([], player)
    try:
        await controller.wait_for([1], 60)
        assert (controller.runtime, controller.port, controller.switches[1].tables) == ("os-ken 4.2.2", 6653, 254)
        (foreign,) = await controller.read(1, "sw-c")
        assert isinstance(foreign, UnmanagedEntry)
        assert (foreign.switch, foreign.why) == ("sw-c", "any frame: port NORMAL")
        first, second = (from_json(FlowEntry, entry) for entry in asked(recorded, 2)["add"])
        await controller.change(1, [foreign], [first, second])
        await controller.change(1, [from_json(FlowEntry, asked(recorded, 3)["delete"][0])], [])
        (held,) = await controller.read(1, "sw-c")
        assert isinstance(held, FlowEntry)
        assert (held.switch, held.match, held.actions, held.why) == ("sw-c", first.match, first.actions, "")
        assert await controller.has_exactly(1, [first])
        with pytest.raises(LabError, match="switch 1 refused 'nothing to pop' \\(priority 1000, port 99, untagged"):
            await controller.change(1, [], [from_json(FlowEntry, asked(recorded, 6)["add"][0])])
        assert await controller.counters(1) == {
            "ports": {},
            "entries": [{"cookie": first.cookie, "packets": 0, "bytes": 0}],
        }
        assert await controller.count(1) == 1
        entries = [from_json(FlowEntry, entry) for entry in asked(recorded, 9)["entries"]]
        assert await controller.packets(1, entries) == (0, None)
        frames = [
            (from_json(FlowEntry, each["entry"]), bytes.fromhex(each["frame"]))
            for each in asked(recorded, 10)["frames"]
        ]
        sent, refused = await controller.send(1, frames)
        assert sent is None
        assert str(refused).startswith("OFPET_BAD_ACTION OFPBAC_MATCH_INCONSISTENT")
        assert await controller.leftovers(1) == UnmanagedState()
        await controller.clear(1, UnmanagedState((7,), ()))
        with pytest.raises(LabError, match="switch 77 is not connected"):
            await controller.read(77, "sw-x")
    finally:
        await controller.close()


def converse(lines: list[str]) -> tuple[list[dict[str, Any]], int]:
    """What the real process says to these lines, on a port of its own choice, and its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "atoll_controller.openflow", "--listen", "127.0.0.1:0"],
        input="".join(line + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode


def test_the_process_greets_and_ends_with_its_input(recorded: list[dict[str, Any]]) -> None:
    """It says which port it got, and exits with 0 when nobody asks any more."""
    said, code = converse([])
    assert [message["type"] for message in said] == ["ready"]
    assert said[0].keys() == recorded[0]["message"].keys()
    assert said[0]["port"] > 0
    assert code == 0


def test_what_is_no_request_is_answered_and_survived() -> None:
    """Broken lines get an answer in one line; the process goes on."""
    lines = ["{", '{"id":3}', "[]", '{"id":4,"op":"read","dpid":"x"}', '{"id":5,"op":"re\\nad","dpid":1e999}']
    said, code = converse(lines)
    answers = [message for message in said if message["type"] == "answer"]
    assert [(answer["id"], answer["ok"]) for answer in answers] == [
        (None, False),
        (3, False),
        (None, False),
        (4, False),
        (5, False),
    ]
    errors = [answer["error"] for answer in answers]
    assert [error.split(":")[0] for error in errors] == [
        *("not a request",) * 3,
        "request `read` is not understood",
        "request `re\ufffdad` is not understood",
    ]
    assert not any("\n" in error for error in errors)
    assert code == 0


async def test_a_port_that_is_taken_is_named() -> None:
    """A second controller on one port says which, and why not."""
    first = await Controller.start([], sys.executable, "127.0.0.1:0")
    try:
        place = f"127.0.0.1:{first.port}"
        with pytest.raises(LabError, match=rf"cannot listen for switches on {place}: .*already in use") as failure:
            await Controller.start([], sys.executable, place)
        assert "\n" not in str(failure.value)
    finally:
        await first.close()


async def test_a_controller_that_dies_is_noticed() -> None:
    """``closed`` says how; whatever is asked afterwards fails at once."""
    controller = await Controller.start([], sys.executable, "127.0.0.1:0")
    watcher = asyncio.create_task(controller.wait_for([1], 60))
    impatient = asyncio.ensure_future(controller.closed)
    impatient.cancel()
    controller._process.kill()
    with pytest.raises(LabError, match="did not connect to the controller: it ended with signal 9"):
        await watcher
    assert await controller.closed == "it ended with signal 9"
    with pytest.raises(LabError, match="the controller is gone: it ended with signal 9"):
        await controller.read(1, "sw-c")
    await controller.close()


async def test_switches_that_do_not_come_are_named() -> None:
    """After the time-out the message has their datapath ids."""
    controller = await Controller.start([], sys.executable, "127.0.0.1:0")
    try:
        with pytest.raises(LabError, match=r"datapath id 3, 7 did not connect to the controller: not within 0.1 s"):
            await controller.wait_for([7, 3], 0.1)
    finally:
        await controller.close()


async def test_a_request_cancelled_as_its_answer_comes_is_cancelled() -> None:
    """Who asks again and again would go on for ever otherwise, and who cancelled it would wait for as long."""
    controller = await Controller.start([], sys.executable, "127.0.0.1:0")
    try:
        request = asyncio.create_task(controller.counters(1))
        while not controller._pending:  # noqa: ASYNC110 - not a moment later
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # it waits for its answer now
        (answer,) = controller._pending.values()
        answer.set_result({"ports": {}, "entries": []})
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
    finally:
        await controller.close()
