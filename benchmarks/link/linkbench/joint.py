# SPDX-License-Identifier: Apache-2.0
"""Rate and delay together: ping while a flow keeps the byte queue full, first UDP and then TCP.

On a link of rate R with a queue of Q bytes the RTT tops out between 8(Q-MTU)/R and 8(Q+MTU)/R above base: a packet
is refused when the waiting bytes and its own exceed Q, and one packet more may be under way to the wire.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Generator
from typing import IO, Any, cast

from atoll_core.errors import LabError
from atoll_hosts.binary import find_binary
from linkbench.boxes import MTU, LinkSettings, link
from linkbench.link_lab import ADDRESSES
from linkbench.measurement import MBIT, MS, CaseFigures, of_mark

LINKS = {
    "30 kB at 8 Mbit/s": (8 * MBIT, 30_000),
    "100 kB at 16 Mbit/s": (16 * MBIT, 100_000),
    "2 MB at 320 Mbit/s": (320 * MBIT, 2_000_000),
}
_DELAY_NS = 20 * MS
_BACK = LinkSettings(100 * MBIT, _DELAY_NS, 1_000_000)
_OVERLOAD = 1.25
_PING_GAP_NS = 4 * MS
_PORT = 5301


def measure(kind: str, case: str, seconds: float, seed: int) -> CaseFigures:  # noqa: ARG001 nothing here is random
    """One run of one case: idle, UDP, TCP, ``seconds`` for each of the loads."""
    rate_bit_s, queue_bytes = LINKS[case]
    way = LinkSettings(rate_bit_s, _DELAY_NS, queue_bytes)
    figures = {
        "least_ms": 8 * (queue_bytes - MTU) / rate_bit_s * 1e3,
        "most_ms": 8 * (queue_bytes + MTU) / rate_bit_s * 1e3,
    }
    with link(kind, way, _BACK) as box:
        base_ms = min(_ping(1.0))
        figures["base_ms"] = base_ms
        for name, load in (("udp", _udp), ("tcp", _tcp)):
            box.mark()
            with load(rate_bit_s, seconds):
                rtts_ms = _ping(seconds)
            above = sorted(rtt - base_ms for rtt in rtts_ms)
            lateness_ms = of_mark(box.mark(), "to_island", "to_world").get("box_lateness_max_us", 0.0) / 1e3
            figures |= {
                f"{name}_top_ms": above[-1],
                f"{name}_p95_ms": above[int(0.95 * len(above))],
                f"{name}_beyond_ms": max(
                    0.0, figures["least_ms"] - above[-1], above[-1] - figures["most_ms"] - 2 * lateness_ms
                ),
                f"{name}_box_lateness_max_ms": lateness_ms,
            }
            time.sleep(0.5)
    return CaseFigures(figures)


def _ping(seconds: float) -> list[float]:
    """RTTs from world to island in ms. Raises LabError when none came back."""
    config = {
        "targets": [{"name": "island", "address": ADDRESSES["island"]}],
        "interval_ns": _PING_GAP_NS,
        "count": round(seconds * 1e9 / _PING_GAP_NS),
        "timeout_ns": 3_000 * MS,
        "size_bytes": 56,
        "identifier": 4711,
        "payload": "atoll ping",
        "start_at_ns": 0,
    }
    job = _start("world", "ping", config)
    rtts_ms: list[float] = []
    for line in cast("IO[str]", job.stdout):
        message = json.loads(line)
        if message["type"] == "reply":
            rtts_ms.append(message["rtt_ns"] / 1e6)
        if message["type"] == "done":
            break
    _end(job)
    if not rtts_ms:
        raise LabError("no ping came back")
    return rtts_ms


@contextlib.contextmanager
def _udp(rate_bit_s: int, seconds: float) -> Generator[None]:
    where = f"{ADDRESSES['island']}:{_PORT}"
    send = {
        "role": "send",
        "connect": where,
        "rate_bit_s": round(rate_bit_s * _OVERLOAD),
        "payload_bytes": 1472,
        "start_at_ns": 0,
        "duration_ns": round((seconds + 1) * 1e9),
    }
    with _jobs(("island", "udp", {"role": "receive", "listen": where, "each": False}), ("world", "udp", send)):
        yield


@contextlib.contextmanager
def _tcp(rate_bit_s: int, seconds: float) -> Generator[None]:
    where = f"{ADDRESSES['world']}:{_PORT}"
    size = round(rate_bit_s * (seconds + 5) / 8)
    send = {"role": "send", "listen": where, "size_bytes": size, "congestion_control": "cubic"}
    receive = {"role": "receive", "connect": where, "size_bytes": size, "start_at_ns": 0}
    with _jobs(("world", "transfer", send), ("island", "transfer", receive)):
        yield


@contextlib.contextmanager
def _jobs(*jobs: tuple[str, str, dict[str, Any]]) -> Generator[None]:
    """Both ends of a load, the listening one first; ended with the block."""
    running: list[subprocess.Popen[str]] = []
    try:
        for netns, name, config in jobs:
            job = _start(netns, name, config, output=subprocess.DEVNULL)
            running.append(job)
            time.sleep(0.2)
        yield
    finally:
        for job in reversed(running):
            _end(job)


def _end(job: subprocess.Popen[str]) -> None:
    """Close its input, which ends it."""
    with contextlib.suppress(BrokenPipeError):
        cast("IO[str]", job.stdin).close()
    if job.stdout:
        job.stdout.close()
    job.wait(10)


def _start(netns: str, name: str, config: dict[str, Any], output: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """A job of ``atoll-host`` in a machine."""
    argv = ["ip", "netns", "exec", netns, str(find_binary()), name]
    job = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL, text=True)
    stdin = cast("IO[str]", job.stdin)
    stdin.write(json.dumps(config) + "\n")
    stdin.flush()
    return job
