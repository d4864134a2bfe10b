# SPDX-License-Identifier: Apache-2.0
"""Channels of one client process against one server, over the MEO link between two machines of their own.

``python -m tests.guests.channels_guest TRIAL`` (JSON, :class:`Trial`) in namespaces of the caller, or in the kernel
for virtual time. Every flow has 10 kB, RTTs are equal. Prints a :class:`Finding` as JSON.
"""

import contextlib
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from atoll_core.experiment.experiment import LinkDirection
from atoll_core.units import Duration, Rate, Size
from atoll_hosts.binary import find_binary
from tests.guests.virtual_link_guest import furnish, tc_link

MEO = LinkDirection(Rate.parse("320 Mbit/s"), Duration.parse("62.5 ms"), Size.parse("2 MB"))
FLOW_BYTES = 10_000
INTERVAL_NS = 10 * 10**9
_LOOK_S = 0.05  # how often a job's output is looked at
_CORE = 0  # the client's; nothing of a User-Mode Linux kernel is on another one anyway

_ADDRESSES = """
for end in world:1:2 island:2:1; do
    ns=${end%%:*} rest=${end#*:} own=${rest%:*} other=${rest#*:}
    ip -n $ns link set lo up
    ip -n $ns link set ${ns}0 address 02:00:00:00:00:0$own
    ip -n $ns addr add 10.0.0.$own/24 dev ${ns}0
    ip -n $ns neigh replace 10.0.0.$other lladdr 02:00:00:00:00:0$other dev ${ns}0 nud permanent
done
"""


@dataclass(frozen=True)
class Trial:
    """What is to be tried."""

    channels: int
    seconds: int
    link: str = "tc"
    """The kernel's (``tc``) or ours (``engine``)."""
    queue_bytes: int = MEO.queue.bytes
    think_ms: int = 0
    """Mean of the exponential think time between the flows of a channel; 0: none."""
    naive_work_us: int | None = None
    """Not our client but the naive one, which takes so much time to serve a socket (naive_client.py)."""


@dataclass(frozen=True)
class _Served:
    """What became of the channels."""

    flows: list[int]
    """Flows completed by each channel."""
    failed: int
    served: list[float]
    """Share of the channels that completed a flow, by whole interval of 10 s; of ours only."""
    client_cpu_s: float
    longest_wait_s: float
    """Of a ready channel for its service."""


@dataclass(frozen=True)
class Finding(_Served):
    """What became of it."""

    utilisation: float
    """Of the link towards the island: IP bytes sent, of those it could have."""
    lost: float
    """Share of the packets towards the island that the full queue refused."""


class Job:
    """A program in a namespace, in the background; what it says goes to a file, so that it never waits for a reader."""

    def __init__(self, said: Path, namespace: str, *argv: str) -> None:
        self._said = said
        with said.open("wb") as output:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *argv], stdin=subprocess.PIPE, stdout=output, text=True
            )

    def tell(self, message: dict[str, Any]) -> None:
        """Send it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def word(self, kind: str) -> dict[str, Any]:
        """Its last message of a kind, as soon as there is one."""
        while True:
            over = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            for line in reversed(self._said.read_text().splitlines()):
                if line.startswith(f'{{"type":"{kind}"'):
                    return json.loads(line)
            if over:
                msg = f"{self._said.stem} ended without {kind}"
                raise RuntimeError(msg)
            time.sleep(_LOOK_S)

    def end(self) -> float:
        """End its input, wait for its end; the processor time it took (s)."""
        if self._process.stdin:
            self._process.stdin.close()
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_utime + usage.ru_stime

    def said(self) -> str:
        """All that it said."""
        return self._said.read_text()


def atoll_job(scratch: Path, namespace: str, subcommand: str, config: dict[str, Any], *before: str) -> Job:
    """A job of atoll-host, once it is ready."""
    job = Job(scratch / f"{subcommand}.jsonl", namespace, *before, str(find_binary()), subcommand)
    job.tell(config)
    job.word("ready")
    return job


@contextlib.contextmanager
def link(scratch: Path, trial: Trial) -> Generator[Job]:
    """The MEO link by the kernel or by the engine."""
    way = replace(MEO, queue=Size(trial.queue_bytes))
    if trial.link == "tc":
        job = atoll_job(scratch, "box", "tc", tc_link(way).config)
    else:
        each = {"rate_bit_s": way.rate.bit_s, "delay_ns": way.delay.ns, "queue_bytes": way.queue.bytes}
        ends = {"world": "sat-w", "island": "sat-i", "mtu": 1500, "seed": 1}
        job = atoll_job(scratch, "box", "link", {**ends, "to_island": each, "to_world": each})
    try:
        yield job
    finally:
        job.end()


def run(trial: Trial) -> Finding:
    """Set up, run the channels for as long as the trial says, and count."""
    furnish()
    subprocess.run(["sh", "-e", "-c", _ADDRESSES], check=True)
    scratch = Path(tempfile.mkdtemp())
    with link(scratch, trial) as box:
        server = atoll_job(scratch, "world", "serve", {"listen": "10.0.0.1:5001", "congestion_control": "cubic"})
        box.tell({"op": "mark", "id": 1})
        served = (_ours if trial.naive_work_us is None else _naive)(scratch, trial)
        box.tell({"op": "mark", "id": 2})
        box.word("mark")
        time.sleep(2 * _LOOK_S)  # the second of the two is the last one now
        passed = box.word("mark")["to_island"]
        server.end()
    sent_bit = 8 * passed["out_bytes"]
    lost = passed["dropped_queue_packets"] / max(1, passed["in_packets"])
    return Finding(**asdict(served), utilisation=sent_bit / MEO.rate.bit_s / trial.seconds, lost=lost)


def _ours(scratch: Path, trial: Trial) -> _Served:
    log = scratch / "flows.csv"
    config: dict[str, Any] = {
        "seed": 1,
        "channels": list(range(trial.channels)),
        "servers": ["10.0.0.1:5001"],
        "flow_sizes": {"kind": "steps", "knots": [[10**9, FLOW_BYTES]]},
        "start_at_ns": 0,
        "duration_ns": trial.seconds * 10**9,
        "congestion_control": "cubic",
        "flow_log": str(log),
    }
    if trial.think_ms:
        config["pace"] = {"kind": "exponential", "mean_ns": trial.think_ms * 10**6}
    client = atoll_job(scratch, "island", "load", config, "taskset", "-c", str(_CORE))
    begin_ns = client.word("started")["t_ns"]
    time.sleep(trial.seconds)
    done = client.word("done")
    cpu_s = client.end()
    return _Served(*completed(log, trial, begin_ns), cpu_s, done["longest_wait_ns"] / 1e9)


def _naive(scratch: Path, trial: Trial) -> _Served:
    numbers = (trial.channels, FLOW_BYTES, trial.seconds, trial.naive_work_us)
    program = [sys.executable, "-m", "tests.guests.naive_client", "10.0.0.1", "5001", *map(str, numbers)]
    client = Job(scratch / "naive.json", "island", "taskset", "-c", str(_CORE), *program)
    cpu_s = client.end()
    said = json.loads(client.said())
    return _Served(said["completed"], 0, [], cpu_s, said["longest_wait_s"])


def completed(log: Path, trial: Trial, begin_ns: int) -> tuple[list[int], int, list[float]]:
    """By the flow log: flows completed by channel, flows failed, share of the channels with one by interval."""
    flows, failed = [0] * trial.channels, 0
    seen: list[set[int]] = [set() for _ in range(trial.seconds * 10**9 // INTERVAL_NS)]
    with log.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["outcome"] == "completed":
                channel, interval = int(row["channel"]), (int(row["end_ns"]) - begin_ns) // INTERVAL_NS
                flows[channel] += 1
                if interval < len(seen):
                    seen[interval].add(channel)
            failed += row["outcome"].startswith("failed")
    return flows, failed, [len(one) / trial.channels for one in seen]


if __name__ == "__main__":
    print(json.dumps(asdict(run(Trial(**json.loads(sys.argv[1]))))))
