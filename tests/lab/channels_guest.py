# SPDX-License-Identifier: Apache-2.0
"""Channels of one client process against one server, over a satellite link between two machines of their own.

``python -m tests.lab.channels_guest engine|tc CHANNELS SECONDS`` in namespaces that a test made, or in the kernel for
virtual time (tc). Every flow has 10 kB. Prints what the client did, the flows that each channel completed, the least
share of channels that completed one in each whole interval of 10 s, and the processor time of the client.
"""

import contextlib
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from atoll.model.experiment import LinkDirection
from atoll.model.units import Duration, Rate, Size
from atoll_hosts.binary import find_binary
from tests.lab.tc_guest import furnish
from tests.lab.virtual_link_guest import tc_link

MEO = LinkDirection(Rate.parse("320 Mbit/s"), Duration.parse("62.5 ms"), Size.parse("2 MB"))
FLOW_BYTES = 10_000
INTERVAL_NS = 10 * 10**9

_ADDRESSES = """
for end in world:1:2 island:2:1; do
    ns=${end%%:*} rest=${end#*:} own=${rest%:*} other=${rest#*:}
    ip -n $ns link set lo up
    ip -n $ns link set ${ns}0 address 02:00:00:00:00:0$own
    ip -n $ns addr add 10.0.0.$own/24 dev ${ns}0
    ip -n $ns neigh replace 10.0.0.$other lladdr 02:00:00:00:00:0$other dev ${ns}0 nud permanent
done
"""


@contextlib.contextmanager
def job(namespace: str, subcommand: str, config: dict[str, Any], *before: str) -> Generator[subprocess.Popen[str]]:
    """A job of ours in a namespace, ready; its input ends with the context."""
    argv = [*before, "ip", "netns", "exec", namespace, str(find_binary()), subcommand]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(config) + "\n")
    process.stdin.flush()
    word(process, "ready")
    try:
        yield process
    finally:
        process.stdin.close()
        if process.stdout:
            process.stdout.read()  # its last words, which would else find nobody
        process.wait()


def word(process: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    """The next message of a kind."""
    assert process.stdout is not None
    for line in process.stdout:
        message = json.loads(line)
        if message["type"] == kind:
            return message
    msg = f"ended without {kind}"
    raise RuntimeError(msg)


def link(kind: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """The MEO link by the kernel or by the engine."""
    if kind == "tc":
        return job("box", "tc", tc_link(MEO).config)
    way = {"rate_bit_s": MEO.rate.bit_s, "delay_ns": MEO.delay.ns, "queue_bytes": MEO.queue.bytes}
    ends = {"world": "sat-w", "island": "sat-i", "mtu": 1500, "seed": 1}
    return job("box", "link", {**ends, "to_island": way, "to_world": way})


def main(kind: str, channels: int, seconds: int) -> dict[str, Any]:
    """Run the channels for so long."""
    furnish()
    subprocess.run(["sh", "-e", "-c", _ADDRESSES], check=True)
    log = Path(tempfile.mkdtemp()) / "flows.csv"
    listen = {"listen": "10.0.0.1:5001", "congestion_control": "cubic"}
    config = {
        "seed": 1,
        "channels": list(range(channels)),
        "servers": ["10.0.0.1:5001"],
        "flow_sizes": {"kind": "steps", "knots": [[10**9, FLOW_BYTES]]},
        "start_at_ns": 0,
        "duration_ns": seconds * 10**9,
        "congestion_control": "cubic",
        "flow_log": str(log),
    }
    with link(kind), job("world", "serve", listen), job("island", "load", config, "taskset", "-c", "0") as load:
        begin_ns = word(load, "started")["t_ns"]
        done = word(load, "done")
        usage = os.wait4(load.pid, 0)[2]
    return {**done, **completed(log, channels, begin_ns, seconds), "client_cpu_s": usage.ru_utime + usage.ru_stime}


def completed(log: Path, channels: int, begin_ns: int, seconds: int) -> dict[str, Any]:
    """By the flow log: flows completed by channel, and the least share of channels with one in an interval."""
    flows = [0] * channels
    seen: list[set[int]] = [set() for _ in range(seconds * 10**9 // INTERVAL_NS)]
    with log.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["outcome"] == "completed":
                channel, interval = int(row["channel"]), (int(row["end_ns"]) - begin_ns) // INTERVAL_NS
                flows[channel] += 1
                if interval < len(seen):
                    seen[interval].add(channel)
    return {"flows": flows, "least_share": min((len(one) / channels for one in seen), default=None)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
