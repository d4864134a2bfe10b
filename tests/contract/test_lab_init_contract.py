# SPDX-License-Identifier: Apache-2.0
"""The lab init's protocol, both ends, against tests/data/contract/lab-init.jsonl.

The daemon's end meets a player of the recorded exchange; the real init is asked what the recorded daemon asks.
"""

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Progress
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab
from atoll_emulation.mininet_lab.namespaces import unshare_argv
from atoll_emulation.this_machine.packet_sockets import PacketSocketCounters
from tests.support.request_programs import mistaken

# Says what the init says, with its own pid, and checks that it is asked what it expects.
_PLAYER = """
import json, os, sys
for line in sys.argv[1].splitlines():
    step = json.loads(line)
    if step["from"] == "init":
        message = step["message"]
        print(json.dumps(message | {"pid": os.getpid()} if "pid" in message else message), flush=True)
    else:
        asked = json.loads(sys.stdin.readline())
        if asked != step["message"]:
            sys.exit(f"asked {asked}, expected {step['message']}")
"""


@pytest.fixture
def recorded(project: Path) -> list[dict[str, Any]]:
    """The exchange, in order."""
    text = (project / "tests/data/contract/lab-init.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


async def test_the_daemon_follows_the_recorded_exchange(recorded: list[dict[str, Any]]) -> None:
    pipe = asyncio.subprocess.PIPE
    script = "\n".join(json.dumps(step) for step in recorded)
    player = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PLAYER, script), stdin=pipe, stdout=pipe, stderr=pipe
    )
    progress: list[str] = []
    events = EventBus()
    events.subscribe(lambda event: progress.append(event.text), Progress)
    lab = EmulatedLab(player, events)
    await lab.request(**recorded[1]["message"])
    await lab.complete()
    assert progress == [
        "Open vSwitch (userspace datapath): starting it",
        "2 machines, 1 switch, 2 cables: building them",
    ]
    assert (lab.hosts, lab.datapath, lab.ovs_version) == ({"i1": 11, "w1": 13}, "userspace", "3.1.0")
    assert f"--target={player.pid}" in lab.enter()

    assert await lab.packet_sockets() == {
        "s1-eth1": PacketSocketCounters(4744, 212992),
        "s1-eth2": PacketSocketCounters(0, 212992),
    }
    with pytest.raises(LabError, match="no switch of this lab has a twin"):
        await lab.command_twin("s1", "reboot")
    await lab.request(op="flood", id="q3")
    shell = await lab.open_shell(100, 30)
    assert await shell.read() == b"mininet> "
    refused = await lab.open_shell()
    assert await refused.read() == b""
    assert refused.refusal == "another shell is open on this lab"
    await shell.resize(132, 43)
    await shell.write(b"exit\n")
    assert [await shell.read(), await shell.read()] == [b"exit\r\n", b""]
    last = await lab.open_shell()
    assert await last.read() == b"mininet> "
    await last.close()
    assert await last.read() == b""
    script = await lab.run_script("py 6 * 7\nexit\npy 'not reached'\n")
    assert [await script.read(), await script.read()] == [b"42\n", b""]
    assert script.refusal is None

    assert await lab.ended == "ovs-vswitchd ended (signal 9): it said nothing"


@pytest.mark.lab
def test_the_real_init_answers_in_the_recorded_shapes(recorded: list[dict[str, Any]]) -> None:
    """Each message of the recorded daemon is sent in turn; what comes has kinds and fields of the recorded answers."""
    shapes = {shape(step["message"]) for step in recorded if step["from"] == "init"}
    pipe = subprocess.PIPE
    argv = [*unshare_argv(), sys.executable, "-m", "atoll_emulation.mininet_lab.ns_init"]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as init:
        assert init.stdin is not None
        assert init.stdout is not None
        seen: set[tuple[str, ...]] = set()
        for step, after in itertools.pairwise(recorded):
            if step["from"] == "keeper":
                init.stdin.write(json.dumps(step["message"]) + "\n")
                init.stdin.flush()
            if after["from"] == "init" and after["message"]["type"] != "failed":
                read_until(init.stdout, shape(after["message"]), seen)
        os.kill(init.pid, 9)
    assert seen == shapes - {("failed", "message", "type")}


@pytest.fixture(scope="module")
def real_init(project: Path) -> Generator[subprocess.Popen[str]]:
    """The init of a lab that is up."""
    text = (project / "tests/data/contract/lab-init.jsonl").read_text(encoding="utf-8")
    messages = [json.loads(line)["message"] for line in text.splitlines()]
    pipe = subprocess.PIPE
    argv = [*unshare_argv(), sys.executable, "-m", "atoll_emulation.mininet_lab.ns_init"]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as init:
        for message in messages[:6]:
            if message.keys() & {"network", "op"}:
                print(json.dumps(message), file=init.stdin, flush=True)
        assert init.stdout is not None
        assert any(json.loads(line)["type"] == "ready" for line in init.stdout)
        yield init
        os.kill(init.pid, 9)


_IDS = itertools.count(1)


@pytest.mark.lab
@settings(max_examples=60)
@given(request=mistaken("lab init"))
def test_every_request_with_an_id_is_answered(real_init: subprocess.Popen[str], request: dict[str, Any]) -> None:
    name = f"m{next(_IDS)}"
    print(json.dumps(request | {"id": name}), file=real_init.stdin, flush=True)
    assert real_init.stdout is not None
    assert any(json.loads(line).get("id") == name for line in real_init.stdout)


def read_until(lines: Any, wanted: tuple[str, ...], seen: set[tuple[str, ...]]) -> None:
    for line in lines:
        seen.add(shape(json.loads(line)))
        if shape(json.loads(line)) == wanted:
            return
    msg = f"ended without {wanted}"
    raise AssertionError(msg)


def shape(message: dict[str, Any]) -> tuple[str, ...]:
    """A message's kind and the names of its fields."""
    return (message["type"], *sorted(message))
