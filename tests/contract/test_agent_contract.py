# SPDX-License-Identifier: Apache-2.0
"""docs/contracts.md, "Agent": the real client and the real agent say what the examples show.

The agent's Rust tests read the same file; here both sides talk to each other and every message is compared by shape.
"""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll_core.codec import from_json, to_json
from atoll_core.plan.plan import HostSettings
from atoll_hosts.agent import Agent
from atoll_hosts.binary import find_binary
from atoll_hosts.message_shapes import common_version, greeting_versions
from tests.support.agent_lab import READY_S, SANDBOX

pytestmark = pytest.mark.lab  # setting a machine up takes a network namespace


def examples(project: Path, side: str) -> Iterator[dict[str, Any]]:
    """The messages of one side."""
    for line in (project / "tests/data/contract/agent.jsonl").read_text().splitlines():
        example = json.loads(line)
        if example["from"] == side:
            yield example["message"]


def shape(message: Any) -> Any:
    """A message without its particulars: names of fields and types of values, lists as long as their first."""
    if isinstance(message, dict):
        fields = {key: shape(item) for key, item in message.items()}
        by_name = any("." in key or "-" in key for key in fields)  # of a sysctl, an interface, a feature
        return {"(name)": next(iter(fields.values()))} if by_name else fields
    if isinstance(message, list):
        return [shape(item) for item in message[:1]]
    return type(message).__name__


_SENSORS = {
    **dict.fromkeys(("temperature_c", "temperature_max_c", "temperature_limit_c"), 0.0),
    **dict.fromkeys(("heat_looks", "hot_looks", "low_voltage_looks"), 0),
}


def as_with_sensors(message: dict[str, Any]) -> dict[str, Any]:
    """A message as of a machine with sensors: one without has null for each of their figures."""
    machine = message.get("machine") or message.get("sample", {}).get("machine")
    if machine is not None:
        assert _SENSORS.keys() <= machine.keys()
        machine |= {name: figure for name, figure in _SENSORS.items() if machine[name] is None}
    return message


def particular(request: dict[str, Any]) -> dict[str, Any]:
    """A request without what may be null or a path, or absent."""
    return {name: field for name, field in request.items() if name not in ("netns", "close_input")}


def test_versions_are_agreed_on_as_the_contract_shows(project: Path) -> None:
    """The agent's Rust tests hold its rule to the same outcomes."""
    lines = (project / "tests/data/contract/agent-versions.jsonl").read_text().splitlines()
    assert len(lines) >= 6
    for line in lines:
        example = json.loads(line)
        common = common_version(
            map(tuple, example["keeper"]), greeting_versions({"protocol": 9, "speaks": example["agent"]})
        )
        assert (list(common) if common else None) == example["agreed"], line


async def test_client_and_agent_speak_as_the_contract_shows(project: Path, tmp_path: Path) -> None:
    """Every operation and every kind of answer and event, on a line that keeps a copy of both directions."""
    asked, said = tmp_path / "asked", tmp_path / "said"
    copying = f'tee {shlex.quote(str(asked))} | "$0" "$@" | tee {shlex.quote(str(said))}'
    agent = await Agent.start([*SANDBOX, "sh", "-c", copying], find_binary())
    ends = ("w1-eth0 address 02:00:00:00:00:01", "w1-eth1 address 02:00:00:00:00:03")
    for made in (f"link add {ends[0]} type veth peer {ends[1]}", "link set lo up"):
        job = await agent.start_job("make", ["ip", *made.split()])
        assert (await job.wait()).code == 0
    settings = next(e["settings"] for e in examples(project, "keeper") if e["op"] == "set")
    assert to_json(from_json(HostSettings, settings)) == settings
    await agent.set_host(from_json(HostSettings, settings))
    await agent.read(None, sysctls=["net.ipv4.tcp_rmem"], interfaces=["w1-eth0"])
    assert await agent.other_owners("w1-eth0", "10.20.0.1", "02:00:00:00:00:01") == []
    await agent.unset_host("w1")
    for hidden in ("link set lo down", "address flush dev lo"):
        job = await agent.start_job("hide", ["ip", *hidden.split()])
        assert (await job.wait()).code == 0
    await agent.sysctl(None, [("net.ipv4.tcp_ecn", "0")])
    job = await agent.start_job("restricted", ["true"], privileges=["net-admin"], directory="/tmp")
    assert (await job.wait()).code == 0
    echo = await agent.start_job("echo-w1", ["cat"], config={"type": "ready"})
    await echo.ready(READY_S)
    answer: list[dict[str, Any]] = []
    await agent.measure(60.0, [("w1", None, ["w1-eth0"])], answer.append)
    await agent.stop_measuring()
    sampled = await agent.sample([("w1", None, ["w1-eth0"])])
    assert set(sampled) == set(answer[-1]) - {"type"}
    assert [answer[-1]["jobs"]["echo-w1"]["host"], *answer[-1]["hosts"]] == ["w1", "w1"]
    await echo.send({"op": "mark", "id": 1})
    await echo.raise_memory(2_000_000_000)
    await echo.stop()
    await echo.wait()
    for operation in ("describe", "clock", "claim", "spool", "files", "discard"):
        words = {"name": f"contract-{os.getpid()}", "owner": "a test"}
        fields = {"claim": ("owner",), "spool": ("name",), "files": ("name",), "discard": ("name",)}.get(operation, ())
        await agent.request(operation, **{field: words[field] for field in fields})
        if operation == "spool":
            Path(f"/var/tmp/atoll-{os.geteuid()}/{words['name']}/captures/world.pcap").touch()
    agent._write('{"op":"beat"}')
    await agent.close()

    requests = [json.loads(line) for line in asked.read_text().splitlines()]
    shown = list(examples(project, "keeper"))
    assert {request["op"] for request in requests} == {request["op"] for request in shown}
    shown_shapes = [shape(particular(request)) for request in shown]
    for request in requests:
        assert shape(particular(request)) in shown_shapes, request

    shown_words = [shape(message) for message in examples(project, "agent")]
    for line in said.read_text().splitlines():
        assert shape(as_with_sensors(json.loads(line))) in shown_words, line
