# SPDX-License-Identifier: Apache-2.0
"""What is said to ``atoll-host probe`` and what it says: tests/data/contract/probe.jsonl, read by Rust's tests too."""

import json
import socket
import subprocess
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from atoll_hosts.binary import find_binary
from atoll_testbed.verification.probe_receiver import SeenProbe, SentProbe, Watch, job_config


@pytest.fixture
def examples(project: Path) -> list[dict[str, Any]]:
    """Every example, in order."""
    text = (project / "tests/data/contract/probe.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_configurations_are_those_of_the_contract(examples: list[dict[str, Any]]) -> None:
    """One that sends, one that only sees."""
    watch = Watch()
    watch.session = 0xDEADBEEF
    probes = [SentProbe(0, IPv4Address("10.20.0.1"), 1), SentProbe(1, IPv4Address("10.20.0.2"), 6)]
    expected = [example["message"] for example in examples if example["from"] == "keeper"]
    assert job_config(watch, IPv4Address("10.10.0.1"), probes, 6, 200_000_000) == expected[0]
    assert job_config(watch, None, interval_ns=200_000_000, promiscuous=["cap-w-tap-w"]) == expected[1]


def test_what_a_job_says_is_understood(examples: list[dict[str, Any]]) -> None:
    """When a probe was sent, where it and its answer were seen."""
    watch = Watch()
    for example in examples:
        if example["from"] == "probe":
            machine = "i1" if example["message"].get("interface") == "i1-eth0" else "w1"
            watch.take(machine, example["message"])
    assert watch.sent_ns == {(0, 1): 1795254139117395561}
    assert watch.seen == [
        SeenProbe("i1", "i1-eth0", None, 0, 0, answer=False, t_ns=1795254139367395561),
        SeenProbe("w1", "w1-eth0", 101, 0, 1, answer=True, t_ns=1795254139617817984),
    ]
    assert watch.seen_by_machine(0, "w1", answer=True)
    assert not watch.seen_by_machine(0, "w1", answer=False)
    assert not watch.seen_by_machine(1, "i1", answer=False)


def test_a_job_says_what_it_wants_when_it_is_told_nonsense() -> None:
    """In one line, with exit code 2."""
    config = {
        "session": 1,
        "address": None,
        "send": [{"number": 0, "address": "10.20.0.1", "protocol": 1}],
    }
    config |= {"attempts": 1, "interval_ns": 1, "until_answered": True, "start_at_ns": 0}
    done = subprocess.run(
        [find_binary(), "probe"], input=json.dumps(config) + "\n", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "atoll-host: configuration: address: who sends needs one\n")


@pytest.mark.lab
@pytest.mark.parametrize("protocol", [1, 6, 17, 253])
def test_probes_on_the_loopback_interface_are_seen_and_answered(protocol: int) -> None:
    """A host that probes itself: sent, seen, answered, in that order of their instants; nobody else's are seen."""
    listening = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)  # the right to do so is what the job needs
    listening.close()
    watch = Watch()
    config = job_config(
        watch,
        IPv4Address("127.0.0.1"),
        [SentProbe(7, IPv4Address("127.0.0.1"), protocol)],
        3,
        50_000_000,
    )
    with subprocess.Popen([find_binary(), "probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdin.write(json.dumps(config) + "\n")
        job.stdin.flush()
        for line in job.stdout:
            watch.take("here", json.loads(line))
            if watch.seen_by_machine(7, "here", answer=True):
                job.stdin.close()
        assert job.wait(10) == 0
    first = [seen for seen in watch.seen if seen.attempt == 0]
    assert [seen.answer for seen in first] == [False, True]
    assert {seen.interface for seen in first} == {"lo"}
    assert watch.sent_ns[7, 0] <= first[0].t_ns <= first[1].t_ns
