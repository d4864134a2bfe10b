# SPDX-License-Identifier: Apache-2.0
"""Ways between a world and an island host: a router, the proxy, and PEPsal."""

import json
import shlex
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from atoll_core.errors import AtollError
from atoll_core.plan.plan import FilterVerdict, LocalDelivery, PacketRule, Packets
from atoll_hosts.job import Job
from tests.support.agent_lab import TWO_PAIRS, Machines, ends, eventually, machines
from tests.support.pep_lab import (
    LOCAL,
    PEER,
    SETTINGS,
    Proxied,
    behind_another,
    connected,
    multiplexed,
    start,
)

ROUTER, PROXY, PEPSAL = "routing", "atoll-host pep", "PEPsal"
ROUTERS, SPLIT, MULTIPLEXED = "two routers", "two atoll-host pep, split", "two atoll-host pep, multiplexed"

_FIRST_PAIR = tuple(each.name for each in TWO_PAIRS.interfaces[:2])
_PEPSAL_PORT = 5000
PEPSAL_SETTINGS = replace(
    TWO_PAIRS,
    local=LocalDelivery(100, LOCAL),
    packet_rules=(
        PacketRule(_FIRST_PAIR, Packets.TCP, transparent_socket=True, set_mark=LOCAL, verdict=FilterVerdict.ACCEPT),
        PacketRule(("box-i",), Packets.TCP, set_mark=LOCAL, tproxy_port=_PEPSAL_PORT, verdict=FilterVerdict.ACCEPT),
    ),
)
_PEPSAL_ADDRESSES = ("10.20.0.200", "10.20.0.201")  # servers see one, and not the client


@asynccontextmanager
async def between_two(way: str, directory: Path) -> AsyncGenerator[Proxied]:
    """The hosts with two boxes between them, ready for connections."""
    settings = TWO_PAIRS if way == ROUTERS else SETTINGS
    async with machines(Path(tempfile.mkdtemp(dir=directory))) as lab:
        proxied, other = await behind_another(lab, 1500, settings, settings)
        if way != ROUTERS:
            given = {side: multiplexed(side) if way == MULTIPLEXED else {} for side in ("world", "island")}
            await start(lab, "other", other, **given["island"])
            await proxied.start(**given["world"])
        if way == MULTIPLEXED:
            await connected(proxied)
        yield proxied


@asynccontextmanager
async def between(way: str, pepsal: Path | None, directory: Path, *, offloads: bool) -> AsyncGenerator[Proxied]:
    """The hosts with a box between them, ready for connections. ``offloads``: of all interfaces, on."""
    own = Path(tempfile.mkdtemp(dir=directory))
    async with machines(own) as lab:
        box = await lab.add("box")
        await lab.run(box, "ip link set lo up")
        pairs = [await ends(lab, box, TWO_PAIRS.interfaces[:2], "-0")]
        await ends(lab, box, TWO_PAIRS.interfaces[2:], "-1")
        proxied = Proxied(lab, box, pairs, [])
        settings = {ROUTER: TWO_PAIRS, PROXY: SETTINGS, PEPSAL: PEPSAL_SETTINGS}[way]
        await lab.agent.set_host(settings, box)
        if offloads:
            await _offload(lab, [(box, _FIRST_PAIR), (proxied.world, ("w-eth0",)), (proxied.island, ("i-eth0",))])
        if way == PROXY:
            await proxied.start()
        elif way == PEPSAL and pepsal:
            await start_pepsal(proxied, pepsal)
        yield proxied


async def _offload(lab: Machines, machines_: list[tuple[str, tuple[str, ...]]]) -> None:
    for netns, interfaces in machines_:
        for interface in interfaces:
            await lab.run(netns, f"ethtool -K {interface} tx on sg on tso on gso on gro on")


async def start_pepsal(proxied: Proxied, pepsal: Path, other: str | None = None) -> list[Job]:
    """Start it in the box, and in the one towards the world if there is one.

    It connects to servers from an address of its own, which the next machine needs to know.
    """
    own = TWO_PAIRS.interfaces[0].mac
    others = "02:00:00:00:04:00"  # behind_another
    hops = [(proxied.box, _PEPSAL_ADDRESSES[0], own, other or proxied.world, "box-i" if other else "w-eth0")]
    if other:
        hops.append((other, _PEPSAL_ADDRESSES[1], others, proxied.world, "w-eth0"))
    jobs: list[Job] = []
    for box, address, mac, next_, interface in hops:
        await proxied.lab.run(
            box,
            f"ip address add {address}/32 dev box-w"
            f" && ip route replace 10.10.0.0/16 dev box-w scope link src {address}",
        )
        await proxied.lab.run(next_, f"ip neighbour add {address} lladdr {mac} dev {interface}")
        argv = [str(pepsal), "-p", str(_PEPSAL_PORT), "-c", "1000", "-C", "cubic"]
        name = f"pepsal-{address}"
        jobs.append(await proxied.lab.agent.start_job(name, argv, netns=box, stdout="/dev/null", stderr="/dev/null"))
        listens = f"until ss -Htln 'sport = :{_PEPSAL_PORT}' | grep -q .; do sleep 0.05; done"
        await proxied.lab.run(box, f"timeout 10 sh -c {shlex.quote(listens)}")
    return jobs


async def bulk_bit_s(proxied: Proxied, seconds: float) -> float:
    """What an iperf3 client at the island receives in a download."""
    lines: list[str] = []
    argv = ["iperf3", "-s", "-1", "-B", "10.10.0.1", "--forceflush"]
    server = await proxied.lab.agent.start_job("iperf3", argv, netns=proxied.world, on_output=lines.append)
    await eventually(lambda: any("listening" in line for line in lines), "iperf3 listens")
    result = json.loads(await proxied.lab.run(proxied.island, f"iperf3 -J -R -c 10.10.0.1 -t {seconds:g}"))
    await server.wait()
    return float(result["end"]["sum_received"]["bits_per_second"])


async def idle_bytes(proxied: Proxied, count: int) -> float:
    """Memory of the proxy at the island for each of so many idle connections; that of the kernel is apart."""
    before = (await proxied.counters())["memory_bytes"]
    argv = [sys.executable, str(PEER), "idle", "10.10.0.1", str(count)]
    job = await proxied.lab.agent.start_job("idle", argv, netns=proxied.island)
    await job.ready(600)
    counted = await proxied.counters()
    if counted["open_connections"] != count:
        raise AtollError(f"{counted['open_connections']} of {count} connections are open")
    return (counted["memory_bytes"] - before) / count


async def downloads(proxied: Proxied, count: int) -> dict[str, int]:
    """Downloads of 100,000 bytes at once behind 8 Mbit/s, whose server closes first: what became of them."""
    await proxied.lab.run(proxied.box, "tc qdisc add dev box-i root tbf rate 8mbit burst 5000 limit 30000")
    await proxied.server()
    return json.loads(await proxied.client("downloads", str(count)))
