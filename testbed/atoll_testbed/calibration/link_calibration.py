# SPDX-License-Identifier: Apache-2.0
"""Calibrate the links of an applied experiment against their configuration: completely, or briefly before a run."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from atoll_apps.segments.world_edge import class_by_host
from atoll_controller.planner.path_checks import MAX_PING_SHARE
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
from atoll_testbed.calibration.link_flood import Flood, flood, measure_idle_rtts, measure_one_way_delays, special_hosts
from atoll_testbed.testbed import Testbed

# Never in step with what fills the queue: pings at a multiple of a packet's serialisation time would all find it full,
# or none (phase effects: Floyd and Jacobson, Internetworking: Research and Experience 3, 1992).
_PING_INTERVAL_NS = 19_937_000
_IDLE_PING_S = 0.5
_BRIEF_FLOOD_S = 0.3  # with full queues
_MIN_PACKETS = 8  # or for as long as these take to serialise
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
            narrower=any(getattr(other_link, name).rate < getattr(link, name).rate for other_link in experiment.links),
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
    rtts = await measure_idle_rtts(testbed, max(_IDLE_PING_S, seconds / 2), interval_ns, delays_ns)
    if not rtts:
        raise RunError("no ping crossed the chain; `atoll run` reports which paths are broken")
    lab_ns = max(0, min(rtts) - delays_ns)
    rows: list[CalibrationFigure] = []
    for link in links:
        if link.name in directions:
            other_links = [other for other in links if other.name == link.name and other.box != link.box]
            rows += await _idle_rows(testbed, link, other_links, seconds, min(rtts))
            rows += await _flooded_rows(testbed, links, link, seconds, min(rtts))
    return rows, min(rtts), lab_ns


async def _idle_rows(
    testbed: Testbed, link: LinkUnderTest, other_links: Sequence[LinkUnderTest], seconds: float, base_ns: int
) -> list[CalibrationFigure]:
    testbed.events.publish(Progress(f"{link.box} {link.name}: testing delay alone"))
    other_delays_ns = sum(other.settings.delay.ns for other in other_links) + link.terrestrial_ns
    is_ambiguous = link.terrestrial_jitter_ns > 0 or any(other.settings.jitter for other in other_links)

    async def measure() -> list[CalibrationFigure]:
        delays = await measure_one_way_delays(testbed, link, seconds, base_ns + _jitter_ns([link, *other_links]))
        return [
            delay_row(link, delays, other_delays_ns, PRECISE),
            jitter_row(link, delays, is_ambiguous=is_ambiguous, tolerance=PRECISE),
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
        return [_with_reason(rate_row(link, _steady_rate(result, link), PRECISE), _reason_of_deviation(result, link))]

    async def small_packets() -> list[CalibrationFigure]:
        size = link.small_packet
        result = await flood(testbed, [link], seconds, packet_bytes=size)
        return [
            _with_reason(byte_row(link, _steady_rate(result, link), size, PRECISE), _reason_of_deviation(result, link))
        ]

    async def together() -> list[CalibrationFigure]:
        no_pings_reason = _filled_by_pings(links, [link], _PING_INTERVAL_NS)
        pinging_ns = None if no_pings_reason else _PING_INTERVAL_NS
        result = await flood(
            testbed, [link], seconds, packet_bytes=link.mtu, ping_interval_ns=pinging_ns, rtt_ns=base_ns
        )
        loaded = loaded_row([link], result.loaded_rtts([link]), base_ns, _jitter_ns(links), PRECISE)
        rows = [queue_row(link, _direction_counters(result, link)), _skip_if_off(loaded, no_pings_reason)]
        return [_with_reason(row, _reason_of_deviation(result, link)) for row in rows]

    tests = {"rate alone": rate_alone, "bytes counted per packet": small_packets, "delay and rate together": together}
    rows: list[CalibrationFigure] = []
    for name, test in tests.items():
        testbed.events.publish(Progress(f"{link.box} {link.name}: testing {name}"))
        rows += await _repeat_if_off(test)
    return rows


async def _repeat_if_off(test: Callable[[], Awaitable[list[CalibrationFigure]]]) -> list[CalibrationFigure]:
    """Repeat a test whose figures are off: once may be an effect of the machine."""
    rows = await test()
    return await test() if any(row.state is CheckState.OFF for row in rows) else rows


async def brief_calibration(testbed: Testbed, experiment: Experiment, base_ns: int) -> tuple[CalibrationFigure, ...]:
    """The brief calibration before a run: flood both directions of each link for a moment, with pings.

    ``base_ns``: RTT of the idle path. Links that the lab cannot fill are skipped, as the machine may be too busy.
    """
    links = links_under_test(testbed.network, experiment)
    rows: list[CalibrationFigure] = []
    for box in dict.fromkeys(link.box for link in links):
        tested: list[LinkUnderTest] = []
        for link in links:
            if link.box == box and (reason := _skip_reason(link)):
                rows.append(skipped_row(row_of(link, "queue", "kB", link.queue_bytes / 1e3), reason))
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
    seconds = max(_BRIEF_FLOOD_S, *(link.serialisation_ns(_MIN_PACKETS * link.mtu) / 1e9 for link in tested))
    interval_ns = _PING_INTERVAL_NS // 2
    no_pings_reason = _filled_by_pings(links, tested, interval_ns)
    if base_ns > _BRIEF_LONGEST_RTT_NS:
        no_pings_reason = f"the RTT is {base_ns / 1e9:.1f} s; only `atoll link calibrate` floods a link for so long"
    pinging_ns = None if no_pings_reason else interval_ns
    result = rate_result = await flood(
        testbed, tested, seconds, packet_bytes=tested[0].mtu, ping_interval_ns=pinging_ns, rtt_ns=base_ns
    )
    if not no_pings_reason and any(link.ping_ns > MAX_PING_SHARE * interval_ns for link in tested):
        # On a slow link, pings reduce the rate of the flood.
        rate_result = await flood(testbed, tested, seconds, packet_bytes=tested[0].mtu)
    rows: list[CalibrationFigure] = []
    for link in tested:
        rows.append(
            _skip_if_off(queue_row(link, _direction_counters(result, link)), _reason_of_deviation(result, link))
        )
        rows.append(
            _skip_if_off(
                rate_row(link, _steady_rate(rate_result, link), ROUGH), _reason_of_deviation(rate_result, link)
            )
        )
    note = next((text for link in tested if (text := _reason_of_deviation(result, link))), "")
    loaded = loaded_row(tested, result.loaded_rtts(tested), base_ns, _jitter_ns(links), ROUGH)
    rows.append(_skip_if_off(loaded, no_pings_reason or note))
    return rows


def _filled_by_pings(links: Sequence[LinkUnderTest], flooded: Sequence[LinkUnderTest], interval_ns: int) -> str:
    """The reason to send no pings with a flood: they would fill another direction. Empty if there is none."""
    slow = [link for link in links if link not in flooded and link.ping_ns > interval_ns]
    return f"pings every {interval_ns / 1e6:.0f} ms would fill {slow[0].box} {slow[0].name}" if slow else ""


def _skip_reason(link: LinkUnderTest) -> str:
    if link.refusal:
        return link.refusal
    full_ns = link.serialisation_ns(link.queue_bytes)
    if full_ns > _BRIEF_LONGEST_NS:
        return f"its queue holds {full_ns / 1e9:.1f} s; only `atoll link calibrate` tests such a link"
    return ""


def _steady_rate(result: Flood, link: LinkUnderTest) -> tuple[float, float] | None:
    return steady_rate(
        result.received[link.name], result.begin_ns + link.settings.delay.ns + link.terrestrial_ns + link.fill_ns // 3
    )


def _direction_counters(result: Flood, link: LinkUnderTest) -> dict[str, Any]:
    return result.marks.get(link.box, {}).get(link.name, {})


def _reason_of_deviation(result: Flood, link: LinkUnderTest) -> str:
    if result.overflowed:
        return f"the receiver lost {result.overflowed} packets: this machine is too busy"
    return offered_note(_direction_counters(result, link), link.flood_bit_s / 8e9 * (result.end_ns - result.begin_ns))


def _with_reason(row: CalibrationFigure, note: str) -> CalibrationFigure:
    return replace(row, why=note) if note and row.state is CheckState.OFF else row


def _skip_if_off(row: CalibrationFigure, note: str) -> CalibrationFigure:
    return replace(row, state=CheckState.SKIPPED, why=note) if note and row.state is CheckState.OFF else row


def _jitter_ns(links: Sequence[LinkUnderTest]) -> int:
    """The maximum effect of jitter on one RTT."""
    return sum(link.jitter_ns for link in links) + 2 * max((link.terrestrial_jitter_ns for link in links), default=0)


def _terrestrial_rtt_ns(links: Sequence[LinkUnderTest]) -> int:
    return max((2 * link.terrestrial_ns for link in links), default=0)
