# SPDX-License-Identifier: Apache-2.0
"""Calibrate the links of an applied experiment against their configuration: completely, or briefly before a run."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from atoll_apps.segments.world_edge import class_by_host
from atoll_controller.planner.path_checks import MOST_PING_SHARE
from atoll_core.errors import RunError
from atoll_core.events.events import Progress
from atoll_core.experiment.experiment import DIRECTIONS, Experiment, Protocol
from atoll_core.experiment.path_mtu import PathMtus
from atoll_core.lab.network import Network
from atoll_testbed.calibration.calibration_checks import (
    PRECISE,
    ROUGH,
    CalibrationFigure,
    CheckState,
    LinkUnderTest,
    byte_row,
    delay_row,
    jitter_row,
    loaded_row,
    offered_note,
    queue_row,
    rate_row,
    row_of,
    skipped_row,
    steady_rate,
)
from atoll_testbed.calibration.link_flood import Flood, flood, idle_rtts, one_way_delays, special_hosts
from atoll_testbed.testbed import Testbed

# Never in step with what fills the queue: pings at a multiple of a packet's serialisation time would all find it full,
# or none (phase effects: Floyd and Jacobson, Internetworking: Research and Experience 3, 1992).
_PING_INTERVAL_NS = 19_937_000
_IDLE_PING_S = 0.5
_BRIEF_FLOOD_S = 0.3  # with full queues
_LEAST_PACKETS = 8  # or for as long as these take to serialise
_BRIEF_LONGEST_NS = 1_000_000_000  # longer queues are not filled before every run
_BRIEF_LONGEST_RTT_NS = 5_000_000_000  # of pings with the flood, which lasts as long


def links_under_test(network: Network, experiment: Experiment) -> tuple[LinkUnderTest, ...]:
    """Every direction of every link, in the order of the description."""
    world, island = special_hosts(network)
    latency = class_by_host(network, experiment).get(world.name)
    paths = PathMtus(network, experiment)
    mtu = paths.between(world, island, Protocol.UDP)
    carrier = experiment.carrier(world.address, island.address, Protocol.UDP)
    overhead = {leg.box: leg.tested_bytes for leg in paths.legs[carrier]}
    return tuple(
        LinkUnderTest.of(
            link.box,
            name,
            getattr(link, name),
            link.counts,
            narrower=any(getattr(other, name).rate < getattr(link, name).rate for other in experiment.links),
            terrestrial=latency and latency[0],
            mtu=mtu,
            overhead_bytes=overhead.get(link.box, 0),
        )
        for name in DIRECTIONS
        for link in experiment.links
    )


async def calibrate(
    testbed: Testbed, experiment: Experiment, directions: Sequence[str], seconds: float
) -> tuple[list[CalibrationFigure], int, int]:
    """Test every link in these directions; ``seconds``: duration of each part of the test.

    Returns all rows, the minimum idle RTT (ns), and the part of it that the lab adds to all configured delays.
    The experiment is applied to the testbed, and nothing else uses it. Raises RunError, LabError.
    """
    links = links_under_test(testbed.network, experiment)
    testbed.events.publish(Progress("pinging the idle path"))
    delays_ns = sum(link.settings.delay.ns for link in links) + _terrestrial_rtt_ns(links)
    interval_ns = max(_PING_INTERVAL_NS, *(2 * math.ceil(link.ping_ns) for link in links))
    rtts = await idle_rtts(testbed, max(_IDLE_PING_S, seconds / 2), interval_ns, delays_ns)
    if not rtts:
        raise RunError("no ping crossed the chain; `atoll run` reports which paths are broken")
    lab_ns = max(0, min(rtts) - delays_ns)
    rows: list[CalibrationFigure] = []
    for link in links:
        if link.name in directions:
            others = [other for other in links if other.name == link.name and other.box != link.box]
            rows += await _idle_rows(testbed, link, others, seconds, min(rtts))
            rows += await _flooded_rows(testbed, links, link, seconds, min(rtts))
    return rows, min(rtts), lab_ns


async def _idle_rows(
    testbed: Testbed, link: LinkUnderTest, others: Sequence[LinkUnderTest], seconds: float, base_ns: int
) -> list[CalibrationFigure]:
    testbed.events.publish(Progress(f"{link.box} {link.name}: testing delay alone"))
    others_ns = sum(other.settings.delay.ns for other in others) + link.terrestrial_ns
    others_jitter = link.terrestrial_jitter_ns > 0 or any(other.settings.jitter for other in others)

    async def measure() -> list[CalibrationFigure]:
        one_way = await one_way_delays(testbed, link, seconds, base_ns + _reach_ns([link, *others]))
        return [
            delay_row(link, one_way, others_ns, PRECISE),
            jitter_row(link, one_way, others=others_jitter, tolerance=PRECISE),
        ]

    return await _repeat_if_off(measure)


async def _flooded_rows(
    testbed: Testbed,
    links: Sequence[LinkUnderTest],
    link: LinkUnderTest,
    seconds: float,
    base_ns: int,
) -> list[CalibrationFigure]:
    if link.refusal:
        rate, queue = rate_row(link, None, PRECISE), queue_row(link, {})
        rows = [rate, byte_row(link, None, link.mtu, PRECISE), queue, loaded_row([link], [], 0, 0, PRECISE)]
        return [skipped_row(row, link.refusal) for row in rows]

    async def rate_alone() -> list[CalibrationFigure]:
        result = await flood(testbed, [link], seconds, packet_bytes=link.mtu)
        return [_with_reason(rate_row(link, _steady(result, link), PRECISE), _note(result, link))]

    async def small_packets() -> list[CalibrationFigure]:
        size = link.small_packet
        result = await flood(testbed, [link], seconds, packet_bytes=size)
        return [_with_reason(byte_row(link, _steady(result, link), size, PRECISE), _note(result, link))]

    async def both() -> list[CalibrationFigure]:
        why_no_pings = _filled_by_pings(links, [link], _PING_INTERVAL_NS)
        pinging_ns = None if why_no_pings else _PING_INTERVAL_NS
        result = await flood(
            testbed, [link], seconds, packet_bytes=link.mtu, ping_interval_ns=pinging_ns, rtt_ns=base_ns
        )
        loaded = loaded_row([link], result.loaded_rtts([link]), base_ns, _reach_ns(links), PRECISE)
        rows = [queue_row(link, _mark(result, link)), _skip_if_off(loaded, why_no_pings)]
        return [_with_reason(row, _note(result, link)) for row in rows]

    parts = {"rate alone": rate_alone, "bytes counted per packet": small_packets, "delay and rate together": both}
    rows: list[CalibrationFigure] = []
    for name, part in parts.items():
        testbed.events.publish(Progress(f"{link.box} {link.name}: testing {name}"))
        rows += await _repeat_if_off(part)
    return rows


async def _repeat_if_off(part: Callable[[], Awaitable[list[CalibrationFigure]]]) -> list[CalibrationFigure]:
    """Repeat a test whose figures are off: once may be an effect of the machine."""
    rows = await part()
    return await part() if any(row.state is CheckState.OFF for row in rows) else rows


async def brief_calibration(testbed: Testbed, experiment: Experiment, base_ns: int) -> tuple[CalibrationFigure, ...]:
    """The brief calibration before a run: flood both directions of each link for a moment, with pings.

    ``base_ns``: RTT of the idle path. Links that the lab cannot fill are skipped, as the machine may be too busy.
    """
    links = links_under_test(testbed.network, experiment)
    rows: list[CalibrationFigure] = []
    for box in dict.fromkeys(link.box for link in links):
        tested: list[LinkUnderTest] = []
        for link in links:
            if link.box == box and (why := _why_skipped(link)):
                rows.append(skipped_row(row_of(link, "queue", "kB", link.queue_bytes / 1e3), why))
            elif link.box == box:
                tested.append(link)
        if tested:
            rows += await _brief_rows(testbed, links, tested, base_ns)
    return tuple(rows)


async def _brief_rows(
    testbed: Testbed,
    links: Sequence[LinkUnderTest],
    tested: Sequence[LinkUnderTest],
    base_ns: int,
) -> list[CalibrationFigure]:
    seconds = max(_BRIEF_FLOOD_S, *(link.serialisation_ns(_LEAST_PACKETS * link.mtu) / 1e9 for link in tested))
    interval_ns = _PING_INTERVAL_NS // 2
    why_no_pings = _filled_by_pings(links, tested, interval_ns)
    if base_ns > _BRIEF_LONGEST_RTT_NS:
        why_no_pings = f"the RTT is {base_ns / 1e9:.1f} s; only `atoll link calibrate` floods a link for so long"
    pinging_ns = None if why_no_pings else interval_ns
    result = rate_result = await flood(
        testbed, tested, seconds, packet_bytes=tested[0].mtu, ping_interval_ns=pinging_ns, rtt_ns=base_ns
    )
    if not why_no_pings and any(link.ping_ns > MOST_PING_SHARE * interval_ns for link in tested):
        # On a slow link, pings reduce the rate of the flood.
        rate_result = await flood(testbed, tested, seconds, packet_bytes=tested[0].mtu)
    rows: list[CalibrationFigure] = []
    for link in tested:
        rows.append(_skip_if_off(queue_row(link, _mark(result, link)), _note(result, link)))
        rows.append(_skip_if_off(rate_row(link, _steady(rate_result, link), ROUGH), _note(rate_result, link)))
    note = next((text for link in tested if (text := _note(result, link))), "")
    loaded = loaded_row(tested, result.loaded_rtts(tested), base_ns, _reach_ns(links), ROUGH)
    rows.append(_skip_if_off(loaded, why_no_pings or note))
    return rows


def _filled_by_pings(links: Sequence[LinkUnderTest], flooded: Sequence[LinkUnderTest], interval_ns: int) -> str:
    """The reason to send no pings with a flood: they would fill another direction. Empty if there is none."""
    slow = [link for link in links if link not in flooded and link.ping_ns > interval_ns]
    return f"pings every {interval_ns / 1e6:.0f} ms would fill {slow[0].box} {slow[0].name}" if slow else ""


def _why_skipped(link: LinkUnderTest) -> str:
    if link.refusal:
        return link.refusal
    full_ns = link.serialisation_ns(link.queue_bytes)
    if full_ns > _BRIEF_LONGEST_NS:
        return f"its queue holds {full_ns / 1e9:.1f} s; only `atoll link calibrate` tests such a link"
    return ""


def _steady(result: Flood, link: LinkUnderTest) -> tuple[float, float] | None:
    return steady_rate(
        result.received[link.name], result.begin_ns + link.settings.delay.ns + link.terrestrial_ns + link.fill_ns // 3
    )


def _mark(result: Flood, link: LinkUnderTest) -> dict[str, Any]:
    return result.marks.get(link.box, {}).get(link.name, {})


def _note(result: Flood, link: LinkUnderTest) -> str:
    if result.overflowed:
        return f"the receiver lost {result.overflowed} packets: this machine is too busy"
    return offered_note(_mark(result, link), link.flood_bit_s / 8e9 * (result.end_ns - result.begin_ns))


def _with_reason(row: CalibrationFigure, note: str) -> CalibrationFigure:
    return replace(row, why=note) if note and row.state is CheckState.OFF else row


def _skip_if_off(row: CalibrationFigure, note: str) -> CalibrationFigure:
    return replace(row, state=CheckState.SKIPPED, why=note) if note and row.state is CheckState.OFF else row


def _reach_ns(links: Sequence[LinkUnderTest]) -> int:
    """The maximum effect of jitter on one RTT."""
    return sum(link.reach_ns for link in links) + 2 * max((link.terrestrial_jitter_ns for link in links), default=0)


def _terrestrial_rtt_ns(links: Sequence[LinkUnderTest]) -> int:
    return max((2 * link.terrestrial_ns for link in links), default=0)
