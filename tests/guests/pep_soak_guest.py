# SPDX-License-Identifier: Apache-2.0
"""PEPs at the limits of their buffers, with a dead server among the living.

``python -m tests.guests.pep_soak_guest OUT OPTIONS``: OPTIONS is that of ``soak_guest``. Half of the duration is with
connections that are split one by one, half with multiplexed ones. The exit code is 1 if the memory of a PEP has grown,
or a connection to the living server has failed.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from atoll_core.description.loader import load_experiment
from atoll_core.events.events import Counters
from atoll_core.plan.plan import Backend
from atoll_core.plan.tc_settings import TIMER_SLACK, VIRTUAL_SLACK
from atoll_emulation.this_machine.congestion_controls import allow_all_controls
from atoll_testbed.testbed import Testbed
from tests.guests.pep_soak_peers import NOBODY
from tests.guests.soak_guest import Options
from tests.support.sandbox import ROOT

EXPERIMENT = ROOT / "examples/pep-multiplexed.yaml"
PEERS = Path(__file__).with_name("pep_soak_peers.py")
_BOXES = ("pep-w", "pep-i")
_LINK = (
    "links.sat.to_island.rate=2 Mbit/s",
    "links.sat.to_world.rate=1 Mbit/s",
    "boxes.pep-w.between_rate=2 Mbit/s",
    "boxes.pep-i.between_rate=1 Mbit/s",
    "boxes.pep-w.island_initial_window=40",
    "boxes.pep-i.world_initial_window=20",
)
_LIMITS = {"buffer_max": "64 kB", "pending_max": "40", "handshake": "60 s"}  # half of the bandwidth-delay product
_KINDS = {"split": {"between": "tcp", "accept": "after"}, "multiplexed": {"between": "multiplexed", "accept": "early"}}
_PARTS = 10  # of each half: the memory of the last one is compared with that of the second one
_REPORT_S = 1800.0  # between two lines, at most
_SLACK = 1.1
_SLACK_BYTES = 2 << 20
_DEAF = (
    "nft add table ip dead && nft add chain ip dead in '{ type filter hook input priority 0; }'"
    f" && nft add rule ip dead in tcp dport {NOBODY} drop"
)


class Half:
    """What the PEPs and the load have printed in a part of the time."""

    def __init__(self, duration_s: float) -> None:
        self._began_s = time.monotonic()
        self._duration_s = duration_s
        self.memory: dict[str, list[int]] = {box: [0] * _PARTS for box in _BOXES}
        self.counted: dict[str, Any] = {}
        self.load: dict[str, Any] = {}

    def take_counters(self, event: Counters) -> None:
        """Note the memory of a PEP."""
        if event.box in _BOXES:
            part = int(_PARTS * (time.monotonic() - self._began_s) / self._duration_s)
            parts = self.memory[event.box]
            parts[min(part, _PARTS - 1)] = max(parts[min(part, _PARTS - 1)], event.line["memory_bytes"])
            self.counted[event.box] = event.line

    def take_load(self, line: dict[str, Any]) -> None:
        """Note and print a line of the load."""
        if line["type"] != "load":
            return
        self.load = line
        peps = {
            box: {
                name: last[name]
                for name in (
                    "memory_bytes",
                    "pending_connections",
                    "pending_of_a_server",
                    "evicted_connections",
                    "ignored_syns",
                )
            }
            for box, last in self.counted.items()
        }
        print(
            json.dumps({"t_s": round(time.monotonic() - self._began_s), **line, "failed": len(line["failed"]), **peps}),
            flush=True,
        )

    def complaints(self) -> list[str]:
        """What is wrong."""
        found = [f"{each}" for each in self.load.get("failed", ["no line of the load"])[:10]]
        for box, parts in self.memory.items():
            if parts[-1] > _SLACK * parts[1] + _SLACK_BYTES:
                found.append(f"the memory of {box} has grown: {parts}")
            if not self.counted[box]["evicted_connections"]:
                found.append(f"{box} was not at its limit of pending connections")
        return found


async def half(testbed: Testbed, kind: str, duration_s: float) -> list[str]:
    """Load PEPs of a kind; what is wrong."""
    given = {**_LIMITS, **_KINDS[kind]}
    settings = [f"boxes.{box}.{key}={value}" for box in _BOXES for key, value in given.items()]
    _, experiment = load_experiment(EXPERIMENT, (*_LINK, *settings))
    await testbed.apply(experiment, Backend.TC, at_once=True)
    addresses = {host.name: str(host.address) for host in testbed.network.hosts}
    deaf = await testbed.machine("w2").start_job("deaf", ["sh", "-c", _DEAF + " || true"])
    await deaf.wait()
    server = await testbed.machine("w1").start_job(
        f"serve-{kind}", [sys.executable, str(PEERS), "serve", addresses["w1"]]
    )
    await server.ready()
    noted = Half(duration_s)
    with testbed.events.subscribe(noted.take_counters, Counters):
        report_s = min(_REPORT_S, duration_s / (2 * _PARTS))
        argv = [sys.executable, str(PEERS), "load", addresses["w1"], addresses["w2"], str(report_s)]
        load = await testbed.machine("i1").start_job(f"load-{kind}", argv, on_line=noted.take_load)
        await asyncio.wait(
            [asyncio.ensure_future(load.wait()), testbed.failed],
            timeout=duration_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        wrong = [f"the lab has failed: {testbed.failed.result()}"] if testbed.failed.done() else []
        if load.exit is not None:
            wrong.append(f"the load has ended: {load.exit_text()}")
    for job in (load, server):
        await job.stop(1.0)
        await job.wait()
    wrong += noted.complaints()
    for box, parts in noted.memory.items():
        kilobytes = " ".join(f"{each // 1024}" for each in parts)
        print(f"{kind}: memory of {box}, kB, in {_PARTS} parts of {duration_s / _PARTS:.0f} s: {kilobytes}")
    print(f"{kind}: {json.dumps({**noted.load, 'failed': len(noted.load.get('failed', []))})}")
    print(f"{kind}: {'; '.join(wrong) or 'nothing has grown or failed'}", flush=True)
    return wrong


async def main(options: Options) -> int:
    """Soak both kinds of PEPs."""
    if options.virtual:
        allow_all_controls()
    network, _ = load_experiment(EXPERIMENT)
    testbed = await Testbed.start(network, slack=VIRTUAL_SLACK if options.virtual else TIMER_SLACK)
    wrong = [each for kind in _KINDS for each in await half(testbed, kind, options.duration_s / len(_KINDS))]
    if not options.virtual:  # there the kernel just ends
        await testbed.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Options(**json.loads(sys.argv[2])))))
