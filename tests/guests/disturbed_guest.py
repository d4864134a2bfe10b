# SPDX-License-Identifier: Apache-2.0
"""Runs of one experiment on one lab, each disturbed differently: ``python -m tests.guests.disturbed_guest DIRECTORY``.

In the kernel for virtual time, as root of a machine of its own: its clock may be set. Leaves a run directory for each
disturbance and prints which is which, with the error of those that failed.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from atoll_core.description.loader import load_experiment
from atoll_core.errors import AtollError
from atoll_core.events.events import StepBegun
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import VIRTUAL_SLACK
from atoll_core.platforms import VIRTUAL
from atoll_testbed.run.live_run import LiveRun
from atoll_testbed.run.run_request import RunOptions, RunRequest, create_run, plan_run
from atoll_testbed.testbed import Testbed
from tests.support.sandbox import QUICK

AFTER_S = 6.0
SETTINGS = ("duration=40 s", "transfer.size=1 MB", "transfer.start=2 s")


def processes(job: str) -> list[int]:
    """The processes of jobs of our own binary, by its subcommand."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if words[0].endswith(b"atoll-host") and words[1:2] == [job.encode()]:
            found.append(int(path.parent.name))
    return sorted(found)


def send(job: str, number: signal.Signals, *, sparing: int) -> None:
    for pid in processes(job)[sparing:]:
        os.kill(pid, number)


def step_clock(seconds: float) -> None:
    time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + int(seconds * 1e9))


async def refuse_pings(testbed: Testbed) -> None:
    await testbed.machine("is").sysctl([("net.ipv4.icmp_echo_ignore_all", "1")])


_OTHER_OWNER = """
import socket, sys
interface, server_mac, source, destination = sys.argv[1:]
ip = bytes.fromhex("4500001c00000000401100000000000000000000")[:12]
ip += socket.inet_aton(source) + socket.inet_aton(destination)
total = sum(int.from_bytes(ip[i : i + 2], "big") for i in range(0, 20, 2))
ip = ip[:10] + (0xFFFF - (total + (total >> 16)) % 0xFFFF).to_bytes(2, "big") + ip[12:]
frame = bytes.fromhex(server_mac.replace(":", "") + "001e67aabbcc0800") + ip + bytes.fromhex("3039000900080000")
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
    wire.bind((interface, 0))
    wire.send(frame)
"""


async def use_address_twice(testbed: Testbed) -> None:
    """Another machine at the cable of a client sends a datagram from the client's address."""
    hosts = {host.name: host for host in testbed.network.hosts}
    client, server = hosts["i1"], hosts["w1"]
    ends = (client.interface.name, server.interface.mac, str(client.address), str(server.address))
    job = await testbed.machine("i1").start_job("other-owner", [sys.executable, "-c", _OTHER_OWNER, *ends])
    assert (await job.wait()).code == 0


async def nothing(_: Testbed) -> None:
    """As it should be."""


def now(action: Callable[[], None]) -> Callable[[Testbed], Awaitable[None]]:
    async def act(_: Testbed) -> None:
        action()

    return act


DISTURBANCES: dict[str, tuple[float, Callable[[Testbed], Awaitable[None]]]] = {
    "nothing": (AFTER_S, nothing),
    "clock ahead": (AFTER_S, now(lambda: step_clock(20))),
    "clock back": (AFTER_S, now(lambda: step_clock(-20))),
    "clock a little": (AFTER_S, now(lambda: step_clock(0.002))),
    "clients frozen": (AFTER_S, now(lambda: send("load", signal.SIGSTOP, sparing=1))),
    "server frozen": (AFTER_S, now(lambda: send("serve", signal.SIGSTOP, sparing=5))),
    "client ended": (AFTER_S, now(lambda: send("load", signal.SIGTERM, sparing=5))),
    "capture ended": (AFTER_S, now(lambda: send("capture", signal.SIGTERM, sparing=2))),
    "pinger frozen": (AFTER_S, now(lambda: send("ping", signal.SIGSTOP, sparing=0))),
    "transfer frozen": (0.0, now(lambda: send("transfer", signal.SIGSTOP, sparing=0))),
    "address used twice": (AFTER_S, use_address_twice),
    "pings unanswered": (0.0, refuse_pings),
}


async def main(runs: Path, wanted: list[str]) -> None:
    """The lab is the kernel's and ends with it."""
    network, experiment = load_experiment(QUICK, SETTINGS)
    request = RunRequest(network, experiment, VIRTUAL, RunOptions(Backend.TC))
    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK)
    made: dict[str, Any] = {}
    for name in wanted or DISTURBANCES:
        after_s, disturb = DISTURBANCES[name]
        begun = asyncio.Event()

        def notice(event: StepBegun, begun: asyncio.Event = begun) -> None:
            if event.step == "measure":
                begun.set()

        async def later(
            begun: asyncio.Event = begun,
            after_s: float = after_s,
            disturb: Callable[[Testbed], Awaitable[None]] = disturb,
        ) -> None:
            await begun.wait()
            await asyncio.sleep(after_s)
            await disturb(testbed)

        run_dir = create_run(runs, request, time.time_ns())
        disturbance = asyncio.create_task(later())
        began_s, error = time.monotonic(), None
        try:
            with testbed.events.subscribe(notice, StepBegun):
                await LiveRun(testbed, plan_run(request), run_dir).measure(time.time_ns())
        except AtollError as failed:
            error = str(failed)
        if not begun.is_set():
            disturbance.cancel()
        else:
            await disturbance
        took_s = time.monotonic() - began_s
        made[name] = {"run": str(run_dir.path.relative_to(runs)), "error": error, "took_s": took_s}
    print(json.dumps(made))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
