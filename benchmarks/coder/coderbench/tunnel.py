# SPDX-License-Identifier: Apache-2.0
"""Two boxes between two hosts on bare veths that carry UDP as routers, as coders, or in the tunnel of tinyfecVPN.

    world ══ near [box] ══ [box] far ══ island

Packets go from the world to the island. All processes share the machine's CPUs, so a tunnel's rate without loss is
bounded by the CPU time that it takes, and that sender and receiver take.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from atoll_core.errors import AtollError
from atoll_core.plan.plan import HostSettings, LegPair
from atoll_hosts.binary import find_binary
from atoll_hosts.job import Job, OnLine
from tests.support.agent_lab import ISLAND, READY_S, TWO_PAIRS, WORLD, Machines, machines

ROUTERS, CODERS = "two routers", "two atoll-host coder"
PEER, PEER_AT_ONCE = "tinyfecVPN, mode 0", "tinyfecVPN, mode 1"
GENERATION, REDUNDANCY = 30, 6
PACKET_BYTES = 1400
LOST_MAX = 1e-3
"""Share of packets that may be lost at the rate without loss: the stalls of a busy machine lose some at any rate."""

_UDP_BYTES = 28  # headers
_CABLE_MTU = 1544  # between the boxes: room for the bytes of either tunnel
_PORT, _PEER_PORT = 5301, 4096
_NEAR, _FAR = "10.30.0.1", "10.30.0.2"  # addresses of the peer's processes
_TICKS_PER_S = 100  # of /proc/PID/stat
_STEP = 1.06  # the search for a rate ends within this factor
_FIRST_BIT_S, _LAST_BIT_S = 20_000_000, 20_000_000_000
_DELAY_BIT_S = 20_000_000


@dataclass
class Between:
    """The machines, by their network namespaces, and the two processes between them; none if the kernel routes."""

    lab: Machines
    world: str
    island: str
    boxes: tuple[Job, ...]
    _streams: int = 0

    async def stream(self, bit_s: int, seconds: float, *, each: bool = False) -> "Stream":
        """Send packets at a rate of IP bits to the end, and what came of them."""
        self._streams += 1
        port = _PORT + self._streams
        delays: list[int] = []
        receive = await self._job(
            "receive", self.island, {"role": "receive", "listen": f"10.20.0.1:{port}", "each": each},
            lambda line: delays.append(line["received_ns"] - line["sent_ns"]) if line["type"] == "packet" else None,
        )  # fmt: skip
        await receive.ready(READY_S)
        before = await self.cpu_s()
        send = await self._job(
            "send", self.world,
            {"role": "send", "connect": f"10.20.0.1:{port}", "rate_bit_s": bit_s,
             "payload_bytes": PACKET_BYTES - _UDP_BYTES, "start_at_ns": 0, "duration_ns": round(seconds * 1e9)},
        )  # fmt: skip
        await send.wait()
        await asyncio.sleep(0.3)  # the last generation, and what waits in sockets
        after = await self.cpu_s()
        await receive.stop()
        await receive.wait()
        sent, received = send.last or {}, receive.last or {}
        asked = bit_s * seconds / 8 / PACKET_BYTES
        took = tuple(late - early for early, late in zip(before, after, strict=True))
        return Stream(asked, sent["sent_packets"], received["packets"], took, delays)

    async def cpu_s(self) -> tuple[float, ...]:
        """CPU time that each of the two processes has taken."""
        return tuple([await self._cpu_s(job.pid) for job in self.boxes])

    async def _cpu_s(self, pid: int) -> float:
        fields = (await self.lab.run(None, f"cat /proc/{pid}/stat")).rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    async def _job(self, name: str, netns: str, config: dict[str, Any], on_line: OnLine | None = None) -> Job:
        argv = [str(find_binary()), "udp"]
        return await self.lab.agent.start_job(
            f"{name}-{self._streams}", argv, netns=netns, config=config, on_line=on_line
        )


@dataclass(frozen=True)
class Stream:
    """One stream: packets asked for, sent and received; CPU time of each box; delays of packets, if asked for."""

    asked: float
    sent: int
    received: int
    cpu_s: tuple[float, ...]
    delays_ns: list[int]

    @property
    def is_lossless(self) -> bool:
        """Whether nearly all packets arrived, and the sender sent what it was asked for."""
        return self.received >= (1 - LOST_MAX) * self.sent and self.sent >= 0.98 * self.asked

    @property
    def gbit(self) -> float:
        """What arrived."""
        return 8e-9 * self.received * PACKET_BYTES


@asynccontextmanager
async def between(way: str, tinyvpn: Path | None, directory: Path) -> AsyncGenerator[Between]:
    """The hosts with two boxes between them, ready for packets."""
    async with machines(Path(tempfile.mkdtemp(dir=directory))) as lab:
        world, near, far, island = [await lab.add(name) for name in ("world", "near", "far", "island")]
        settings = {netns: _settings(number, way) for number, netns in ((4, near), (5, far))}
        (near_w, near_i), (far_w, far_i) = (each.interfaces for each in settings.values())
        await lab.cable((world, WORLD), (near, near_w))
        await lab.cable((near, near_i), (far, far_w))
        await lab.cable((far, far_i), (island, ISLAND))
        await lab.agent.set_host(HostSettings("world", (WORLD,)), world)
        await lab.agent.set_host(HostSettings("island", (ISLAND,)), island)
        for netns, each in settings.items():
            await lab.run(netns, "ip link set lo up")
            await lab.agent.set_host(each, netns)
        jobs: list[Job] = []
        if way == CODERS:
            jobs = [await _coder(lab, netns, settings, near=netns == near) for netns in (near, far)]
        elif way in (PEER, PEER_AT_ONCE) and tinyvpn:
            mode = "1" if way == PEER_AT_ONCE else "0"
            jobs = await _peers(lab, (near, far), (near_i.mac, far_w.mac), tinyvpn, mode)
        yield Between(lab, world, island, tuple(jobs))


def _settings(number: int, way: str) -> HostSettings:
    """Of a box: a router, or one whose kernel forwards nothing because a coder takes all packets."""
    world, island = (
        replace(leg, mac=f"02:00:00:00:{number:02x}:{which:02x}",
                mtu=_CABLE_MTU if leg.name == ("box-i" if number == 4 else "box-w") else leg.mtu)
        for which, leg in enumerate(TWO_PAIRS.interfaces[:2])
    )  # fmt: skip
    legs = () if way == CODERS else (LegPair("box-w", "box-i", accept_foreign=True),)
    return HostSettings(f"box-{number}", (world, island), forwarding=way != CODERS, legs=legs)


async def _coder(lab: Machines, netns: str, settings: dict[str, HostSettings], *, near: bool) -> Job:
    own = settings[netns].interfaces
    (peer,) = (each.interfaces[0 if near else 1] for other, each in settings.items() if other != netns)
    addresses = ["10.10.255.254", "10.20.255.254"]
    address, peer_address = addresses if near else reversed(addresses)
    tunnel = {
        "carries": {"world": "10.10.0.0/16", "island": "10.20.0.0/16", "protocol": None},
        "peer_at": "island" if near else "world",
        "address": address,
        "peer_address": peer_address,
        "peer_mac": peer.mac,
        "way": 0,
    }
    legs = zip(("world", "island"), own, strict=True)
    config = {
        "pairs": [{side: {"name": leg.name, "mac": leg.mac, "mtu": leg.mtu} for side, leg in legs}],
        "hosts": {"world": {"10.10.0.1": WORLD.mac}, "island": {"10.20.0.1": ISLAND.mac}},
        "tunnels": [tunnel],
        "scheme": "rlnc",
        "generation": GENERATION,
        "redundancy": REDUNDANCY,
        "interleave": 1,
        "flush_ns": 100_000_000,
        "scheduler": {"kind": "tail"},
        "stale_ns": 10**9,
        "direction": "both",
        "small_bytes": 0,
        "flow_threshold_bytes": 0,
        "low_priority": True,
        "signal": "hide",
        "calibration_port": 5311,
        "poll_ns": 0,
    }
    job = await lab.agent.start_job(
        f"coder-{'near' if near else 'far'}", [str(find_binary()), "coder"], netns=netns, config=config,
        privileges=("net-admin", "net-raw"),
    )  # fmt: skip
    await job.ready(READY_S)
    return job


async def _peers(lab: Machines, boxes: tuple[str, str], macs: tuple[str, str], tinyvpn: Path, mode: str) -> list[Job]:
    """Start them, with a route to the hosts behind the other one, longer than that past the tunnel; no encryption."""
    for netns, own, other, mac, leg in (
        (boxes[0], _NEAR, _FAR, macs[1], "box-i"),
        (boxes[1], _FAR, _NEAR, macs[0], "box-w"),
    ):
        await lab.run(
            netns,
            f"ip address add {own}/32 dev {leg} && ip route add {other} dev {leg} src {own}"
            f" && ip neighbour add {other} lladdr {mac} dev {leg} && sysctl -qw net.ipv4.conf.all.rp_filter=0",
        )
    common = [f"-f{GENERATION}:{REDUNDANCY}", "--mode", mode, "--mtu", "1460", "--tun-dev", "fec", "--tun-mtu", "1500"]
    common += ["--sock-buf", "10240", "--disable-obscure", "1", "--sub-net", "10.22.22.0", "--log-level", "3"]
    jobs: list[Job] = []
    ends = ((boxes[1], ["-s", f"-l0.0.0.0:{_PEER_PORT}"], "10.10.0.0/17"),
            (boxes[0], ["-c", f"-r{_FAR}:{_PEER_PORT}"], "10.20.0.0/17"))  # fmt: skip
    for number, (netns, role, behind) in enumerate(ends):
        argv = [str(tinyvpn), *role, *common]
        jobs.append(await lab.agent.start_job(f"tinyvpn-{number}", argv, netns=netns))
        wait = "until ip link show fec >/dev/null 2>&1; do sleep 0.05; done"
        await lab.run(
            netns,
            f"timeout 10 sh -c '{wait}' && ip link set fec up && sysctl -qw net.ipv4.conf.fec.forwarding=1"
            f" && ip route add {behind} dev fec",
        )
    await lab.run(boxes[0], "sleep 1")  # the client says that it is there
    return jobs


async def lossless_bit_s(coded: Between, seconds: float) -> tuple[int, Stream]:
    """The highest rate at which nearly nothing is lost, within 6 %, and the stream at it."""
    low, high = 0, 0
    best: Stream | None = None
    bit_s = _FIRST_BIT_S
    while True:
        stream = await coded.stream(bit_s, seconds)
        if stream.is_lossless:
            low, best = bit_s, stream
        else:
            high = bit_s
        if (low and high and high <= _STEP * low) or bit_s >= _LAST_BIT_S or (high and high < _FIRST_BIT_S / 8):
            break
        bit_s = round((low * high) ** 0.5) if low and high else 2 * bit_s if low else bit_s // 2
    return low, best or stream


async def delay_ns(coded: Between, seconds: float) -> float:
    """Median of the one-way delay at 20 Mbit/s. Raises AtollError if nothing arrives."""
    stream = await coded.stream(_DELAY_BIT_S, seconds, each=True)
    if not stream.delays_ns:
        said = "; ".join(job.exit_text() for job in coded.boxes)
        raise AtollError(f"no packet passes the boxes: {said}")
    return median(stream.delays_ns)


async def measured(rounds: int, seconds: float, tinyvpn: Path | None) -> list[dict[str, Any]]:
    """All ways in turn, so many times: a slow spell of the machine meets all of them."""
    ways = [ROUTERS, CODERS, *([PEER, PEER_AT_ONCE] if tinyvpn else [])]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds):
            for way in ways:
                async with between(way, tinyvpn, Path(scratch)) as coded:
                    delay = await delay_ns(coded, seconds)
                    bit_s, stream = await lossless_bit_s(coded, seconds)
                per_gbit = [cpu_s / stream.gbit for cpu_s in stream.cpu_s]
                results.append({"round": number, "way": way, "delay_ns": delay, "lossless_bit_s": bit_s,
                                "cpu_s_per_gbit": per_gbit})  # fmt: skip
    return results
