# SPDX-License-Identifier: Apache-2.0
"""Settings of machines whose undo fails: they are not forgotten; and the order in which a box is undone."""

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_core.codec import to_json
from atoll_core.errors import LabError
from atoll_core.plan.plan import FilterVerdict, HostSettings, PacketRule, Packets
from atoll_hosts.agent import Agent
from atoll_hosts.binary import find_binary
from tests.support.agent_lab import ISLAND, READY_S, SANDBOX, TWO_PAIRS, WORLD, Machines, ends, eventually

pytestmark = pytest.mark.lab

ATTEMPTS = 3  # of the agent, in one request
LINGERS_S = 0.5
BOX = replace(TWO_PAIRS, interfaces=TWO_PAIRS.interfaces[:2], legs=TWO_PAIRS.legs[:1])

SERVER = """
import socket

with socket.create_server(("10.10.0.1", 80)) as listener:
    print('{"type":"ready"}', flush=True)
    while True:
        listener.accept()[0].close()
        print('{"type":"accepted"}', flush=True)
"""

CLIENT = """
import socket, time

print('{"type":"ready"}', flush=True)
while True:
    with socket.socket() as client:
        client.setblocking(False)
        client.connect_ex(("10.10.0.1", 80))
        time.sleep(0.02)
"""
"""A first segment every 20 ms; what is accepted has passed the box."""


class Tools:
    """Tools of the agent: `ip -force -batch` fails as often as wanted; `nft` notes whether the box forwards."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.failures = directory / "failures"
        self.forwarding = directory / "forwarding"
        self.lingers = directory / "lingers"
        self._write(
            "ip",
            f"""n=$(cat {self.failures})
            if [ "$1" = -force ] && [ "$n" -gt 0 ]; then
                echo $((n - 1)) >{self.failures}; echo "Cannot allocate memory" >&2; exit 1
            fi""",
        )
        self._write(
            "nft",
            f"""cat /proc/sys/net/ipv4/conf/box-[wi]/forwarding >>{self.forwarding}
            [ ! -e {self.lingers} ] || trap 'sleep {LINGERS_S}' EXIT""",
            end="",
        )
        self.fail(0)

    def fail(self, times: int) -> None:
        """Let the next undos fail."""
        self.failures.write_text(f"{times}\n")

    def linger(self) -> None:
        """Let `nft` end some time after its work."""
        self.lingers.touch()

    def _write(self, tool: str, script: str, end: str = "exec") -> None:
        path = self.directory / tool
        path.write_text(f'#!/bin/sh\n{script}\n{end} {shutil.which(tool)} "$@"\n')
        path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    directory = tmp_path / "tools"
    directory.mkdir()
    return Tools(directory)


@pytest.fixture
async def lab(tmp_path: Path, tools: Tools) -> AsyncIterator[Machines]:
    """An agent with these tools."""
    path = f"PATH={tools.directory}:{os.environ['PATH']}"
    agent = await Agent.start([*SANDBOX, "env", path], find_binary())
    yield Machines(agent, tmp_path)
    tools.fail(0)
    await agent.close()


async def box_of(lab: Machines) -> tuple[str, dict[str, str]]:
    """A box without settings, and its state."""
    box, other = await lab.add("box"), await lab.add("other")
    for leg, end in zip(BOX.interfaces, (WORLD, ISLAND), strict=True):
        await lab.cable((box, leg), (other, end))
        await lab.run(box, f"ip link set {leg.name} up && ip link set {leg.name} down")  # once up, its qdisc stays
    return box, await lab.state(box, "box-w")


async def test_an_undo_that_fails_once_is_tried_again_at_once(lab: Machines, tools: Tools) -> None:
    box, before = await box_of(lab)
    await lab.agent.set_host(BOX, box)
    tools.fail(1)
    await lab.agent.unset_host("box")
    assert await lab.state(box, "box-w") == before


async def test_settings_whose_undo_fails_are_undone_by_the_next_request(lab: Machines, tools: Tools) -> None:
    box, before = await box_of(lab)
    await lab.agent.set_host(BOX, box)
    tools.fail(ATTEMPTS)
    with pytest.raises(LabError, match=r"^box is not fully restored: ip: Cannot allocate memory$"):
        await lab.agent.unset_host("box")
    await lab.agent.unset_host("box")
    assert await lab.state(box, "box-w") == before


async def test_other_settings_are_refused_while_the_former_are_not_undone(lab: Machines, tools: Tools) -> None:
    box, before = await box_of(lab)
    await lab.agent.set_host(BOX, box)
    tools.fail(ATTEMPTS)
    with pytest.raises(LabError, match=r"^box is not fully restored: "):
        await lab.agent.set_host(replace(BOX, forwarding=False, legs=()), box)
    await lab.agent.set_host(replace(BOX, forwarding=False, legs=()), box)
    await lab.agent.unset_host("box")
    assert await lab.state(box, "box-w") == before


async def test_settings_that_are_undone_in_part_are_all_made_again(lab: Machines, tools: Tools) -> None:
    box, before = await box_of(lab)
    await lab.agent.set_host(BOX, box)
    made = await rules_of(lab, box)
    tools.fail(ATTEMPTS)
    with pytest.raises(LabError, match=r"^box is not fully restored: "):
        await lab.agent.unset_host("box")
    assert await rules_of(lab, box) != made
    await lab.agent.set_host(BOX, box)
    assert await rules_of(lab, box) == made
    await lab.agent.unset_host("box")
    assert await lab.state(box, "box-w") == before


async def rules_of(lab: Machines, box: str) -> str:
    """Forwarding of a box, its packet rules and routes."""
    return await lab.run(box, "cat /proc/sys/net/ipv4/conf/box-[wi]/forwarding; nft list ruleset; ip route")


async def test_the_next_agent_undoes_what_an_agent_could_not(lab: Machines, tools: Tools) -> None:
    """A machine whose settings are not undone cannot be claimed."""
    box, before = await box_of(lab)
    await lab.own_run()
    assert (await _own_agent(lab, box, BOX))[-1]["ok"]  # no undo has failed yet
    assert await lab.state(box, "box-w") == before
    assert (await _own_agent(lab, box, BOX, then=lambda: tools.fail(ATTEMPTS)))[-1]["ok"]
    assert await lab.state(box, "box-w") != before
    tools.fail(ATTEMPTS)
    claimed = (await _own_agent(lab, box))[-1]
    assert claimed["error"] == (
        "settings of an earlier agent are still on this machine: box is not fully restored: ip: Cannot allocate "
        "memory; try again, or restart the machine"
    )
    assert (await _own_agent(lab, box))[-1]["ok"]
    assert await lab.state(box, "box-w") == before
    assert await lab.run(None, "ls /run") == ""


async def _own_agent(
    lab: Machines, box: str, settings: HostSettings | None = None, then: Any = lambda: None
) -> list[dict[str, Any]]:
    """An agent as on a machine of its own, which claims it and is closed after ``then``; its answers."""
    said: list[dict[str, Any]] = []
    argv = [str(find_binary()), "agent", "--silence", "60", "--no-cgroups"]
    job = await lab.agent.start_job("own-agent", argv, netns=box, config={"op": "beat"}, on_line=said.append)
    requests: list[dict[str, Any]] = [{"op": "claim", "owner": "a test"}]
    if settings is not None:
        requests.append({"op": "set", "host": settings.host, "netns": None, "settings": to_json(settings)})
    for number, request in enumerate(requests):
        await job.send({"id": number, **request})
        await eventually(lambda n=number: any(line.get("id") == n for line in said), f"{request['op']} is answered")
    then()
    await job.stop(READY_S)
    await job.wait()
    return [line for line in said if line["type"] == "answer"]


async def test_a_box_forwards_only_while_its_rules_are_there(lab: Machines, tools: Tools) -> None:
    """Forwarding begins after the tables of nftables are made, and ends before they are deleted."""
    box, _ = await box_of(lab)
    await lab.agent.set_host(BOX, box)
    forwarding = {f"net.ipv4.conf.{name}.forwarding": "1" for name in ("box-w", "box-i")}
    assert (await lab.agent.read(box, sysctls=list(forwarding)))["sysctls"] == forwarding
    await lab.agent.unset_host("box")
    assert {*tools.forwarding.read_text().split()} == {"0"}
    assert json.loads(await lab.run(box, "nft -j list tables"))["nftables"][1:] == []


async def test_no_tcp_passes_a_box_beside_its_program_while_the_box_is_undone(lab: Machines, tools: Tools) -> None:
    """The rules drop TCP that is not the program's. Each of the steps of nftables leaves time for packets to pass.

    Frames have the box's addresses: others, which the same rules accept, do not pass without them.
    """
    box = await lab.add("box")
    world, island = await ends(lab, box, BOX.interfaces, "-1")
    for netns, host, leg in zip((world, island), (WORLD, ISLAND), BOX.interfaces, strict=True):
        ((address, _),) = host.neighbours
        await lab.run(netns, f"ip neighbour replace {address} lladdr {leg.mac} nud permanent dev {host.name}")
    accepted: list[dict[str, Any]] = []
    for name, netns, script in (("server", world, SERVER), ("client", island, CLIENT)):
        argv = [sys.executable, "-c", script]
        job = await lab.agent.start_job(name, argv, netns=netns, on_line=accepted.append)
        await job.ready(READY_S)
    tools.linger()
    legs = tuple(leg.name for leg in BOX.interfaces)
    proxied = replace(BOX, packet_rules=(PacketRule(legs, Packets.TCP, verdict=FilterVerdict.DROP),))

    def passes() -> bool:
        return any(line["type"] == "accepted" for line in accepted)

    for _ in range(3):
        await lab.agent.set_host(proxied, box)
        assert "3 received" in await lab.run(island, "ping -c 3 -i 0.1 -W 10 10.10.0.1"), "the box forwards"
        await lab.agent.unset_host("box")
    assert not passes()
    await lab.agent.set_host(BOX, box)
    await eventually(passes, "TCP passes a box without the rules")
