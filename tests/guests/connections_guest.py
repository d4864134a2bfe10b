# SPDX-License-Identifier: Apache-2.0
"""Swaps that move traffic off a connection-splitting proxy and back: ``python -m tests.guests.connections_guest``.

Run it in a sandbox. Prints what became of the connections, as one JSON object.
"""

import asyncio
import ctypes
import json
import os
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from atoll_core.description.loader import load_experiment
from atoll_core.events.events import SwapEvent
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.box_kind import PROGRAM, Forwarding
from atoll_core.lab.network import ChainBox, Network, Program
from atoll_core.plan.plan import Privilege
from atoll_testbed.box_connections import ConnectionPolicy
from atoll_testbed.testbed import Testbed
from tests.support.runtime import RUNTIME

DATA = Path(__file__).resolve().parents[1] / "data" / "swaps"
_SPLITTER = Path(__file__).with_name("splitter.py")
_CLONE_NEWNET = 0x40000000
_PORT = 7000
_libc = ctypes.CDLL(None)


class Pair:
    """A connection from an island host to an echo at a world host; what each of both ends learns of its end."""

    def __init__(self, testbed: Testbed, port: int = _PORT, limit_s: float = 5) -> None:
        self._testbed = testbed
        with self._socket("w1") as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("10.10.0.1", port))
            listener.listen()
            self.client = self._socket("i1")
            self.client.settimeout(limit_s)
            self.client.connect(("10.10.0.1", port))
            self.server, _ = listener.accept()
        self.server.settimeout(5)
        self.echoes()

    def echoes(self) -> bool:
        """Whether a message comes through and back."""
        self.client.sendall(b"there")
        there = self.server.recv(100)
        self.server.sendall(there)
        return self.client.recv(100) == b"there"

    def fates(self) -> list[str]:
        """What both ends learn without having sent anything, waiting some seconds for it."""
        return [self._fate(end) for end in (self.client, self.server)]

    def fate_of_client(self) -> str:
        """What the client learns when it sends."""
        self.client.sendall(b"anybody?")
        return self._fate(self.client)

    def close(self) -> None:
        """End it, cleanly."""
        self.client.close()
        self.server.close()

    def _fate(self, end: socket.socket) -> str:
        try:
            return "end" if end.recv(100) == b"" else "data"
        except OSError as error:
            return type(error).__name__

    def _socket(self, host: str) -> socket.socket:
        """A socket of a host."""
        made: list[socket.socket] = []
        lab = self._testbed.lab
        path = f"/proc/{lab._init_pid}/root/proc/{lab.hosts[host]}/ns/net"

        def make() -> None:
            there = os.open(path, os.O_RDONLY)
            _libc.setns(there, _CLONE_NEWNET)
            os.close(there)
            made.append(socket.socket())

        thread = threading.Thread(target=make)  # which ends in there; this one stays here
        thread.start()
        thread.join()
        return made[0]


def with_proxy(network: Network) -> Network:
    """The lab with the proxy in the place of a router."""
    may = (Privilege.NET_ADMIN, Privilege.NET_RAW)  # a transparent socket, and a netfilter rule for it
    program = Program((sys.executable, str(_SPLITTER), "{world}", "{island}"), privileges=may)

    def brought(box: ChainBox) -> ChainBox:
        if box.name != "r2":
            return box
        kind, forwarding = PROGRAM, Forwarding.ROUTED
        return replace(box, kind=kind, forwarding=forwarding, stateful=True, program=program, spare=None)

    return replace(network, boxes=tuple(map(brought, network.boxes)))


class Trial:
    """The lab, and what swaps tell."""

    def __init__(self, testbed: Testbed, experiment: Experiment) -> None:
        self._testbed = testbed
        self._experiment = experiment
        self._told: list[SwapEvent] = []

    async def to(self, *hops: str, connections: str = "reset") -> list[tuple[str, Any]]:
        """Swap to a chain; what was done to connections."""
        new = replace(self._experiment, chain=replace(self._experiment.chain, hops=hops))
        self._told.clear()
        with self._testbed.events.subscribe(self._told.append, SwapEvent):
            await self._testbed.apply(new, connections=ConnectionPolicy.parse(connections))
        await asyncio.sleep(0.3)  # the program listens, or is gone
        found = [event.details for event in self._told if event.state == "connections"]
        return [(each["how"], each["boxes"]) for each in found]

    async def run(self) -> dict[str, Any]:
        """One connection after the other."""
        found: dict[str, Any] = {}
        await self._testbed.apply(self._experiment)
        await self.to("r2", "sat")
        pair = await asyncio.to_thread(Pair, self._testbed)
        found["reset"] = await self.to("sat"), await asyncio.to_thread(pair.fates)

        pair = await asyncio.to_thread(Pair, self._testbed)
        found["unmoved"] = await self.to("sat", "r1"), pair.echoes()
        found["come"] = await self.to("r2", "sat"), await asyncio.to_thread(pair.fate_of_client)

        pair = await asyncio.to_thread(Pair, self._testbed)
        began = time.monotonic()
        leaving = asyncio.create_task(self.to("sat", connections="wait:20 s"))
        await asyncio.sleep(2.5)
        open_still = await asyncio.to_thread(pair.echoes)
        other: list[Pair] = []
        thread = threading.Thread(target=lambda: other.append(Pair(self._testbed, port=7001, limit_s=30)))
        thread.start()
        await asyncio.sleep(1)
        began_early = bool(other)
        pair.close()
        found["waited"] = await leaving, open_still, time.monotonic() - began
        await asyncio.to_thread(thread.join)
        found["new"] = began_early, await asyncio.to_thread(other[0].echoes)
        other[0].close()

        await self.to("r2", "sat")
        pair = await asyncio.to_thread(Pair, self._testbed)
        found["limit"] = await self.to("sat", connections="wait:1 s"), await asyncio.to_thread(pair.fates)
        return found


async def main() -> None:
    """Print what was found."""
    network, experiment = load_experiment(DATA / "experiment.yaml")
    link = experiment.links[0]
    near = replace(link, to_island=replace(link.to_island, delay=type(link.to_island.delay).parse("10 ms")))
    experiment = replace(experiment, links=(near,), chain=replace(experiment.chain, hops=("sat",)))
    testbed = await Testbed.start(with_proxy(network), runtime=RUNTIME)
    try:
        print(json.dumps(await Trial(testbed, experiment).run()))
    finally:
        await testbed.stop()


if __name__ == "__main__":
    asyncio.run(main())
