# SPDX-License-Identifier: Apache-2.0
"""A host on each side of a box that runs the proxy ``atoll-host pep``, as docs/contracts.md describes it."""

import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atoll_core.plan.plan import (
    UNLIMITED,
    FilterVerdict,
    HostSettings,
    JobLimits,
    LocalDelivery,
    PacketMark,
    PacketRule,
    Packets,
)
from atoll_hosts.binary import find_binary
from atoll_hosts.job import Job, OnLine
from tests.guests.pep_peer import MISSING, RIGHT, WRONG
from tests.support.agent_lab import ISLAND, READY_S, TWO_PAIRS, WORLD, Machines, ends, eventually, machines

PEER = Path(__file__).parents[1] / "guests" / "pep_peer.py"

LOCAL = PacketMark(1, 1)
WORLD_MARK = 8
PRIVILEGES = ("net-admin", "net-raw", "net-bind-service")
MARKS = (PacketMark(0, 6), PacketMark(2, 6))
_FIRST_PORT = 5001
_ACCEPT, _DROP = FilterVerdict.ACCEPT, FilterVerdict.DROP


def _ports(pair: int) -> tuple[int, int]:
    """The listeners for clients of the world and of the island."""
    return _FIRST_PORT + 2 * pair, _FIRST_PORT + 2 * pair + 1


def _rules() -> tuple[PacketRule, ...]:
    every = tuple(each.name for each in TWO_PAIRS.interfaces)
    pairs = [
        (legs, mark, _ports(number)) for number, (legs, mark) in enumerate(zip(TWO_PAIRS.legs, MARKS, strict=True))
    ]
    strays = [
        PacketRule((leg,), Packets.TCP, set_mark=LOCAL, tproxy_port=port, verdict=_ACCEPT)
        for legs, _, ports in pairs
        for leg, port in zip((legs.world, legs.island), ports, strict=True)
    ]
    again = [
        PacketRule(("lo",), Packets.SYN, mark=PacketMark(mark.value | side | 1, 15), tproxy_port=port, verdict=_ACCEPT)
        for _, mark, ports in pairs
        for side, port in zip((WORLD_MARK, 0), ports, strict=True)
    ]
    return (
        PacketRule(every, Packets.SYN, verdict=_DROP),
        PacketRule(every, Packets.TCP, transparent_socket=True, set_mark=LOCAL, verdict=_ACCEPT),
        *strays,
        PacketRule(every, Packets.TCP, verdict=_DROP),
        *again,
        PacketRule(every, Packets.TCP_ICMP_ERRORS, set_mark=LOCAL, verdict=_ACCEPT),
    )


SETTINGS = replace(
    TWO_PAIRS,
    legs=tuple(replace(legs, mark=mark) for legs, mark in zip(TWO_PAIRS.legs, MARKS, strict=True)),
    local=LocalDelivery(100, LOCAL),
    packet_rules=_rules(),
    sysctls=(("net.ipv4.tcp_tw_reuse", "1"), ("net.ipv4.tcp_no_metrics_save", "1")),
)
"""Of the box."""


def config(**settings: Any) -> dict[str, Any]:
    """The configuration of the proxy: its defaults, and ``settings``."""
    pairs = [
        {
            "world": legs.world,
            "island": legs.island,
            "mark": mark.value,
            "ports": dict(zip(("world", "island"), _ports(number), strict=True)),
        }
        for number, (legs, mark) in enumerate(zip(TWO_PAIRS.legs, MARKS, strict=True))
    ]
    hosts = {"world": ["10.10.0.1"], "island": ["10.20.0.1"]}
    return {
        "pairs": pairs,
        "local_mark": LOCAL.value,
        "world_mark": WORLD_MARK,
        "hosts": hosts,
        "mode": "after",
        **settings,
    }


async def start(
    lab: Machines, name: str, netns: str, on_line: OnLine | None = None, limits: JobLimits = UNLIMITED, **settings: Any
) -> Job:
    """Start a proxy."""
    argv = [str(find_binary()), "pep"]
    job = await lab.agent.start_job(
        name, argv, netns=netns, config=config(**settings), on_line=on_line, limits=limits, privileges=PRIVILEGES
    )
    await job.ready(READY_S)
    return job


@dataclass
class Proxied:
    """The machines, by their network namespaces, and the proxy."""

    lab: Machines
    box: str
    pairs: list[tuple[str, str]]  # world and island host of each pair of legs
    said: list[dict[str, Any]]
    proxy: Job | None = None

    @property
    def world(self) -> str:
        """The world host at the first pair."""
        return self.pairs[0][0]

    @property
    def island(self) -> str:
        """The island host at the first pair."""
        return self.pairs[0][1]

    async def start(self, **settings: Any) -> Job:
        """Start the proxy."""
        self.said.clear()
        self.proxy = await start(self.lab, "pep", self.box, self.said.append, **settings)
        return self.proxy

    async def server(self, pair: int = 0) -> Job:
        """Start the servers of tests/guests/pep_peer.py at the world host of a pair."""
        job = await self.lab.agent.start_job(
            f"servers-{pair}", [sys.executable, str(PEER), "serve", "10.10.0.1"], netns=self.pairs[pair][0]
        )
        await job.ready(READY_S)
        return job

    async def client(self, scenario: str, *words: str, pair: int = 0) -> str:
        """Play a client of tests/guests/pep_peer.py at the island host of a pair; what it prints."""
        argv = " ".join([sys.executable, str(PEER), scenario, "10.10.0.1", *words])
        return (await self.lab.run(self.pairs[pair][1], argv)).strip()

    async def endings(self, count: int, at_once: int, first: int = 0) -> dict[str, dict[str, int]]:
        """Connections with every ending in turn; of each, how many ended in which way. Numbers begin with ``first``."""
        said = json.loads(await self.client("endings", str(count), str(at_once), str(first)))
        argv = " ".join([sys.executable, str(PEER), "seen", "10.10.0.1"])
        seen = {first: (size, how) for size, how, first in json.loads(await self.lab.run(self.world, argv))}
        resets = Counter[str]()
        for number, sent in said["sent"].items():
            size, how = seen.get(number, (0, "nothing"))
            resets[f"{WRONG} ({how})" if how != "ECONNRESET" else RIGHT if size == sent else MISSING] += 1
        return {**said["endings"], "client resets": dict(resets)}

    def _counters(self) -> list[dict[str, Any]]:
        return [line for line in self.said if line["type"] == "counters"]

    async def counters(self) -> dict[str, Any]:
        """Counters that were printed after this call."""
        before = len(self._counters())
        await eventually(lambda: len(self._counters()) > before, "the proxy prints counters")
        return self._counters()[-1]

    async def settled(self) -> dict[str, Any]:
        """Counters once no connection is left."""
        last = await self.counters()
        for _ in range(300):
            if not last["open_connections"] + last["pending_connections"]:
                break
            last = await self.counters()
        assert not last["open_connections"] + last["pending_connections"], last
        return await self.counters()

    async def answer(self, **request: Any) -> dict[str, Any]:
        """Send a request with an id; its answer."""
        assert self.proxy
        await self.proxy.send(request)
        await eventually(lambda: any(line.get("id") == request["id"] for line in self.said), "the proxy answers")
        return next(line for line in self.said if line.get("id") == request["id"])


async def proxied(lab: Machines, pairs: Collection[int] = (0, 1)) -> Proxied:
    """The machines, with all settings, without the proxy; no hosts at other pairs than ``pairs``."""
    box = await lab.add("box")
    await lab.run(box, "ip link set lo up")
    legs = [await ends(lab, box, TWO_PAIRS.interfaces[2 * pair : 2 * pair + 2], f"-{pair}") for pair in pairs]
    await lab.agent.set_host(SETTINGS, box)
    return Proxied(lab, box, legs, [])


async def behind_another(
    lab: Machines, mtu: int, other: HostSettings = TWO_PAIRS, own: HostSettings = SETTINGS
) -> tuple[Proxied, str]:
    """The same, with another box between this one and the world host at the first pair; the other's namespace.

    ``mtu``: of the other's leg towards the world. ``other``, ``own``: settings of the boxes, of a router or a proxy.
    """
    box, router = await lab.add("box"), await lab.add("other")
    await lab.run(box, "ip link set lo up")
    await lab.run(router, "ip link set lo up && ip address add 192.0.2.1/32 dev lo")  # its errors come from there
    world, island = await lab.add("world"), await lab.add("island")
    legs = tuple(
        replace(leg, mac=f"02:00:00:00:04:{number:02x}", mtu=mtu if leg.name == "box-w" else leg.mtu)
        for number, leg in enumerate(other.interfaces)
    )
    ends_ = own.interfaces
    await lab.cable((world, WORLD), (router, legs[0]))
    await lab.cable((router, legs[1]), (box, ends_[0]))
    await lab.cable((box, ends_[1]), (island, ISLAND))
    for netns, (_, _, *spare) in ((router, legs), (box, ends_)):
        await lab.cable((netns, spare[0]), (netns, spare[1]))
    await lab.agent.set_host(HostSettings("world", (WORLD,)), world)
    await lab.agent.set_host(HostSettings("island", (ISLAND,)), island)
    await lab.agent.set_host(replace(other, host="other", interfaces=legs), router)
    await lab.agent.set_host(own, box)
    return Proxied(lab, box, [(world, island)], []), router


REJECT = (
    "nft add table ip t && nft add chain ip t c '{ type filter hook input priority 0; }'"
    " && nft add rule ip t c tcp dport 8010 reject with icmp type host-unreachable"
)
"""Servers of one port of tests/guests/pep_peer.py are unreachable."""

_SILENT = (
    "nft add table ip s && nft add chain ip s c '{ type filter hook output priority 0; }'"
    " && nft add rule ip s c tcp sport 8007 tcp flags rst drop"
)
_LOSSY = (
    "nft add table ip l && nft add chain ip l c '{ type filter hook prerouting priority -350; }'"
    " && nft add rule ip l c iifname LEG meta l4proto tcp numgen random mod 200 == 0 drop"
)


async def lose_packets(pep: Proxied, other: str) -> None:
    """0.5 % of the packets between two boxes are lost. Hosts vanish, and are unreachable, as pep_peer.py needs it."""
    await pep.lab.run(pep.world, f"ip link set lo up && {REJECT} && {_SILENT} && sysctl -qw net.ipv4.icmp_ratelimit=0")
    for netns, leg in ((pep.box, "box-w"), (other, "box-i")):
        await pep.lab.run(netns, _LOSSY.replace("LEG", leg))


def multiplexed(side: str, **settings: Any) -> dict[str, Any]:
    """The setting of a proxy that multiplexes with another one, which is on that side."""
    given = {"side": side, "world": "10.10.0.1:1", "island": "10.20.0.1:1", "stream_bytes": 4_000_000}
    return {"between": {**given, **settings}}


async def connected(pep: Proxied) -> None:
    """Wait until the multiplexed connection is up."""
    await eventually(lambda: pep.said[-1].get("multiplexes") == 1, "the proxies are connected")


@asynccontextmanager
async def two_proxies(
    directory: Path, *, multiplex: bool = True, **settings: Any
) -> AsyncGenerator[tuple[Proxied, Job, str]]:
    """Two proxies, connected if they multiplex, and servers; the proxy at the world with its network namespace.

    ``settings``: of the proxy at the island.
    """
    async with machines(directory) as lab:
        pep, other = await behind_another(lab, 1500, SETTINGS)
        await pep.server()
        far = await start(lab, "other", other, **(multiplexed("island") if multiplex else {}))
        await pep.start(**(multiplexed("world") if multiplex else {}), **settings)
        if multiplex:
            await connected(pep)
        yield pep, far, other
