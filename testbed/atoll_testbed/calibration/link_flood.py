# SPDX-License-Identifier: Apache-2.0
"""Test traffic between the two special hosts of a live testbed: single packets, and floods with pings."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atoll_controller.planner import traffic_jobs
from atoll_controller.planner.traffic_jobs import PING_MARGIN_NS, PING_PACKET_BYTES, PING_TIMEOUT_NS
from atoll_core.errors import RunError
from atoll_core.lab.network import Host, Network
from atoll_core.plan.plan import JobSpec
from atoll_hosts.agent import Job
from atoll_testbed.calibration.calibration_checks import LinkUnderTest
from atoll_testbed.testbed import Testbed

_LEAD_NS = 150_000_000  # from the start of the jobs to the start of their traffic
_LAB_DELAY_NS = 50_000_000  # time that a packet may spend in the lab outside the links, on a busy machine


@dataclass(slots=True)
class Flood:
    """The results of flooding some directions at once, by direction."""

    begin_ns: int
    full_ns: int  # every queue is full from here on
    end_ns: int
    rtts: list[tuple[int, int]]  # (when sent, RTT) of pings
    received: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    overflowed: int = 0
    marks: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def loaded_rtts(self, links: Sequence[LinkUnderTest]) -> list[int]:
        """RTTs of pings that met a full queue in every flooded direction."""
        last_ns = self.end_ns - _reply_time_ns(links) - _LAB_DELAY_NS
        return [rtt for sent, rtt in self.rtts if self.full_ns <= sent <= last_ns]


def special_hosts(network: Network) -> tuple[Host, Host]:
    """The hosts of the world and of the island between which links are tested. Raises RunError without both."""
    if network.specials is None:
        raise RunError(f"lab {network.name}: a test of links needs a world-special and an island-special host")
    return network.specials


def _source_and_target(network: Network, direction: str) -> tuple[Host, Host]:
    """(source, target) of traffic in this direction."""
    world, island = special_hosts(network)
    return (world, island) if direction == "to_island" else (island, world)


async def measure_idle_rtts(testbed: Testbed, seconds: float, interval_ns: int, rtt_ns: int) -> list[int]:
    """RTTs of pings on an idle path, which has about an RTT of ``rtt_ns``."""
    timeout_ns = max(PING_TIMEOUT_NS, rtt_ns + PING_MARGIN_NS)
    rtts, answered = list[int](), asyncio.Event()

    def on_line(line: dict[str, Any]) -> None:
        if line.get("type") == "reply":
            rtts.append(line["rtt_ns"])
            answered.set()

    world, island = special_hosts(testbed.network)
    spec = traffic_jobs.calibration_ping(world, island, interval_ns=interval_ns, start_at_ns=0, timeout_ns=timeout_ns)
    async with _running_job(testbed, spec, on_line):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ns / 1e9):
                await answered.wait()
        await asyncio.sleep(seconds)
    return rtts


async def measure_one_way_delays(testbed: Testbed, link: LinkUnderTest, seconds: float, rtt_ns: int) -> list[int]:
    """One-way delays of single packets on an idle path, by the common clock of both ends."""
    source, target = _source_and_target(testbed.network, link.name)
    delays: list[int] = []

    def on_line(line: dict[str, Any]) -> None:
        if line.get("type") == "packet":
            delays.append(line["received_ns"] - line["sent_ns"])

    rate = max(1, PING_PACKET_BYTES * 8 * 10**9 // link.probe_interval_ns)
    probe = {"rate_bit_s": rate, "packet_bytes": PING_PACKET_BYTES, "start_at_ns": 0, "duration_ns": int(seconds * 1e9)}
    async with (
        _running_job(testbed, traffic_jobs.calibration_receive(target, per_packet=True), on_line),
        _running_job(testbed, traffic_jobs.calibration_send(source, target, **probe)) as sender,
    ):
        await sender.wait()
        await asyncio.sleep((rtt_ns + _LAB_DELAY_NS) / 1e9)
    return delays


async def flood(
    testbed: Testbed,
    links: Sequence[LinkUnderTest],
    seconds: float,
    *,
    packet_bytes: int,
    ping_interval_ns: int | None = None,
    rtt_ns: int = 0,
) -> Flood:
    """Fill the queues of these directions and keep them full for ``seconds``, with pings if an interval is given.

    ``rtt_ns``: that of pings on the idle path. Returns when all packets have left the links.
    """
    world, island = special_hosts(testbed.network)
    to_world_ns = sum(link.settings.delay.ns for link in links if link.name == "to_world") + links[0].terrestrial_ns
    await testbed.mark_boxes()
    begin_ns = time.time_ns() + _LEAD_NS
    full_ns = begin_ns + max(link.fill_ns for link in links)
    reply_ns = 0 if ping_interval_ns is None else _reply_time_ns(links)
    end_ns = full_ns + reply_ns + int(seconds * 1e9) + _LAB_DELAY_NS
    result = Flood(begin_ns, full_ns, end_ns, [])

    def on_ping(line: dict[str, Any]) -> None:
        if line.get("type") == "reply":
            result.rtts.append((line["sent_ns"], line["rtt_ns"]))

    async with contextlib.AsyncExitStack() as jobs:
        receivers = {link.name: await jobs.enter_async_context(_receiver(testbed, link, result)) for link in links}
        options = {"packet_bytes": packet_bytes, "start_at_ns": begin_ns, "duration_ns": end_ns - begin_ns}
        senders: list[Job] = []
        for link in links:
            source, target = _source_and_target(testbed.network, link.name)
            spec = traffic_jobs.calibration_send(source, target, rate_bit_s=link.flood_bit_s, **options)
            senders.append(await jobs.enter_async_context(_running_job(testbed, spec)))
        if ping_interval_ns is not None:
            spec = traffic_jobs.calibration_ping(
                world,
                island,
                interval_ns=ping_interval_ns,
                start_at_ns=begin_ns,
                timeout_ns=max(PING_TIMEOUT_NS, rtt_ns + sum(link.drain_ns for link in links) + PING_MARGIN_NS),
            )
            await jobs.enter_async_context(_running_job(testbed, spec, on_ping))
        for sender in senders:
            await sender.wait()
        await asyncio.sleep((max(link.drain_ns for link in links) + to_world_ns + 2 * _LAB_DELAY_NS) / 1e9)
        for name, receiver in receivers.items():
            await receiver.stop()
            await receiver.wait()
            _add_final_counters(result, name, receiver)
    result.marks = await testbed.mark_boxes()
    return result


def _reply_time_ns(links: Sequence[LinkUnderTest]) -> int:
    """The time from sending a ping until its reply reaches the flooded world-bound queues; 0 if there are none.

    Before that, the ping waits in the flooded island-bound queues. Without any, its delay to the island is assumed to
    equal the delay back.
    """
    to_world = [link for link in links if link.name == "to_world"]
    to_island = [link for link in links if link.name == "to_island"]
    if not to_world:
        return 0
    terrestrial_ns = to_world[0].terrestrial_ns + to_world[0].terrestrial_jitter_ns
    if not to_island:
        return terrestrial_ns + sum(link.settings.delay.ns for link in to_world)
    full_ns = sum(int(link.serialisation_ns(link.queue_bytes)) for link in to_island)
    return terrestrial_ns + full_ns + sum(link.settings.delay.ns for link in to_island)


def _receiver(testbed: Testbed, link: LinkUnderTest, result: Flood) -> contextlib.AbstractAsyncContextManager[Job]:
    counters = result.received[link.name] = []

    def on_line(line: dict[str, Any]) -> None:
        if line.get("type") == "counters" and line["last_ns"] is not None:
            counters.append(line)

    target = _source_and_target(testbed.network, link.name)[1]
    return _running_job(testbed, traffic_jobs.calibration_receive(target), on_line)


def _add_final_counters(result: Flood, direction: str, receiver: Job) -> None:
    counters = receiver.last or {}
    if counters.get("last_ns") is not None:
        result.received[direction].append(counters)
    result.overflowed += counters.get("overflowed_packets", 0)


@contextlib.asynccontextmanager
async def _running_job(testbed: Testbed, spec: JobSpec, on_line: Any = None) -> AsyncGenerator[Job]:
    """Run a job during the block, which begins when the job is ready; afterwards the job has ended."""
    job = await testbed.start_job(spec, Path(), on_line=on_line)
    try:
        await job.ready()
        yield job
    finally:
        await job.stop()
        await job.wait()
    if job.exit is not None and job.exit.code != 0:
        raise RunError(f"{spec.name} failed: {job.exit_text()}")
