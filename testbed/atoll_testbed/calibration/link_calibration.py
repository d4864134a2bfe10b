# SPDX-License-Identifier: Apache-2.0
"""Holding the links of an applied experiment against their settings: at length, or briefly before a run."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atoll_apps.segments.world_edge import classes
from atoll_controller.planner.path_checks import MOST_PING_SHARE
from atoll_core.errors import RunError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_testbed.calibration.calibration_checks import (
    PRECISE,
    ROUGH,
    CalibrationFigure,
    Received,
    State,
    Tolerance,
    byte_row,
    delay_row,
    jitter_row,
    loaded_row,
    offered_note,
    queue_row,
    rate_row,
    row_of,
    skipped,
    steady_rate,
)
from atoll_testbed.calibration.link_direction import MTU, PROBE_PACKET, LinkUnderTest
from atoll_testbed.calibration.link_flood import Flood, SpecialHosts, flood, idle_rtts, one_way_delays
from atoll_testbed.testbed import Testbed

DIRECTIONS = ("to_island", "to_world")

# Never in step with what fills the queue: pings at a multiple of a packet's serialisation time would all find it full,
# or none (phase effects: Floyd and Jacobson, Internetworking: Research and Experience 3, 1992).
_PING_INTERVAL_NS = 19_937_000
_IDLE_PING_S = 0.5
_BRIEF_S = 0.3  # with full queues
_LEAST_PACKETS = 8  # or for as long as these take to serialise
_BRIEF_LONGEST_NS = 1_000_000_000  # a queue that holds more than a second is not filled before every run

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Calibration:
    """All rows, and what the lab itself adds to an RTT: the least idle one less all configured delays."""

    rows: tuple[CalibrationFigure, ...]
    base_rtt_ns: int
    lab_rtt_ns: int

    @property
    def off(self) -> tuple[CalibrationFigure, ...]:
        """The rows that are not within tolerance."""
        return tuple(row for row in self.rows if row.state is State.OFF)


def directions(network: Network, experiment: Experiment) -> tuple[LinkUnderTest, ...]:
    """Every direction of every link, in the order of the description."""
    held = classes(network, experiment).get(SpecialHosts.of(network).world.name)
    found: list[LinkUnderTest] = []
    for name in DIRECTIONS:
        rates = {link.box: getattr(link, name).rate.bit_s for link in experiment.links}
        found += [
            LinkUnderTest.of(
                link.box,
                name,
                getattr(link, name),
                link.counts,
                narrower=min(rates.values()) < rates[link.box],
                terrestrial=held and held[0],
            )
            for link in experiment.links
        ]
    return tuple(found)


async def calibrate(
    testbed: Testbed, experiment: Experiment, wanted: Sequence[str], seconds: float, say: Say
) -> Calibration:
    """Test every link in the wanted directions; ``seconds``: for each of its parts.

    The testbed holds the experiment, and nothing else uses it. Raises RunError, LabError.
    """
    ways = directions(testbed.network, experiment)
    say("idle path: pinging along it")
    rtts = await idle_rtts(testbed, max(_IDLE_PING_S, seconds / 2), _PING_INTERVAL_NS)
    if not rtts:
        msg = "no ping crossed the chain; is the lab's chain whole? `atoll run` says which paths are not"
        raise RunError(msg)
    delays_ns = sum(way.settings.delay.ns for way in ways) + _terrestrial_rtt_ns(ways)
    lab_ns = max(0, min(rtts) - delays_ns)
    rows: list[CalibrationFigure] = []
    for way in ways:
        if way.name in wanted:
            others = [other for other in ways if other.name == way.name and other.box != way.box]
            rows += await _idle_rows(testbed, way, others, seconds, min(rtts), say)
            rows += await _flooded_rows(testbed, ways, way, seconds, min(rtts), say)
    return Calibration(tuple(rows), min(rtts), lab_ns)


async def _idle_rows(
    testbed: Testbed, way: LinkUnderTest, others: Sequence[LinkUnderTest], seconds: float, base_ns: int, say: Say
) -> list[CalibrationFigure]:
    say(f"{way.box} {way.name}: testing delay alone")
    elsewhere = sum(other.settings.delay.ns for other in others) + way.terrestrial_ns
    jittery = way.shake_ns > 0 or any(other.settings.jitter for other in others)

    async def part() -> list[CalibrationFigure]:
        one_way = await one_way_delays(testbed, way, seconds, base_ns + _reach_ns([way, *others]))
        return [
            delay_row(way, one_way, elsewhere, PRECISE),
            jitter_row(way, one_way, others=jittery, tolerance=PRECISE),
        ]

    return await _again_if_off(part)


async def _flooded_rows(
    testbed: Testbed, ways: Sequence[LinkUnderTest], way: LinkUnderTest, seconds: float, base_ns: int, say: Say
) -> list[CalibrationFigure]:
    if way.refused:
        return [skipped(row, way.refused) for row in _flood_rows_of(way)]

    async def alone() -> list[CalibrationFigure]:
        found = await flood(testbed, [way], seconds, packet_bytes=MTU, ping_interval_ns=None)
        return [_explained(rate_row(way, _steady(found, way), PRECISE), _note(found, way))]

    async def small() -> list[CalibrationFigure]:
        size = way.small_packet
        found = await flood(testbed, [way], seconds, packet_bytes=size, ping_interval_ns=None)
        return [_explained(byte_row(way, _steady(found, way), size, PRECISE), _note(found, way))]

    async def together() -> list[CalibrationFigure]:
        found = await flood(testbed, [way], seconds, packet_bytes=MTU, ping_interval_ns=_PING_INTERVAL_NS)
        rtts = found.loaded_rtts([way])
        rows = [queue_row(way, _mark(found, way)), loaded_row([way], rtts, base_ns, _reach_ns(ways), PRECISE)]
        return [_explained(row, _note(found, way)) for row in rows]

    parts = {"rate alone": alone, "what counts as a byte": small, "delay and rate together": together}
    rows: list[CalibrationFigure] = []
    for name, part in parts.items():
        say(f"{way.box} {way.name}: testing {name}")
        rows += await _again_if_off(part)
    return rows


async def _again_if_off(part: Callable[[], Awaitable[list[CalibrationFigure]]]) -> list[CalibrationFigure]:
    """What is off once may be the machine's doing; what is off twice is off."""
    rows = await part()
    return await part() if any(row.state is State.OFF for row in rows) else rows


def _flood_rows_of(way: LinkUnderTest) -> list[CalibrationFigure]:
    return [
        rate_row(way, None, PRECISE),
        byte_row(way, None, MTU, PRECISE),
        queue_row(way, {}),
        loaded_row([way], [], 0, 0, PRECISE),
    ]


async def brief(testbed: Testbed, experiment: Experiment, base_ns: int) -> tuple[CalibrationFigure, ...]:
    """The short form before a run: both directions of each link flooded at once for a moment, with pings.

    ``base_ns``: RTT of the idle path. What the lab cannot fill is not judged: it may be too busy for that.
    """
    ways = directions(testbed.network, experiment)
    rows: list[CalibrationFigure] = []
    for box in dict.fromkeys(way.box for way in ways):
        here = [way for way in ways if way.box == box]
        judged = [way for way in here if not _too_long(way)]
        rows += [
            skipped(row_of(way, "queue", "kB", way.queue_bytes / 1e3), _too_long(way)) for way in here if _too_long(way)
        ]
        if judged:
            rows += await _brief_rows(testbed, ways, judged, base_ns, ROUGH)
    return tuple(rows)


async def _brief_rows(
    testbed: Testbed, ways: Sequence[LinkUnderTest], judged: Sequence[LinkUnderTest], base_ns: int, tolerance: Tolerance
) -> list[CalibrationFigure]:
    seconds = max(_BRIEF_S, *(way.serialisation_ns(_LEAST_PACKETS * MTU) / 1e9 for way in judged))
    interval_ns = _PING_INTERVAL_NS // 2
    found = rated = await flood(testbed, judged, seconds, packet_bytes=MTU, ping_interval_ns=interval_ns)
    if any(way.serialisation_ns(way.counted(PROBE_PACKET)) > MOST_PING_SHARE * interval_ns for way in judged):
        # What pings take of a slow link is missing from the rate of the flood.
        rated = await flood(testbed, judged, seconds, packet_bytes=MTU, ping_interval_ns=None)
    rows: list[CalibrationFigure] = []
    for way in judged:
        rows.append(_excused(queue_row(way, _mark(found, way)), _note(found, way)))
        rows.append(_excused(rate_row(way, _steady(rated, way), tolerance), _note(rated, way)))
    note = next((text for way in judged if (text := _note(found, way))), "")
    rows.append(_excused(loaded_row(judged, found.loaded_rtts(judged), base_ns, _reach_ns(ways), tolerance), note))
    return rows


def _too_long(way: LinkUnderTest) -> str:
    if way.refused:
        return way.refused
    if way.serialisation_ns(way.queue_bytes) > _BRIEF_LONGEST_NS:
        return f"its queue holds {way.serialisation_ns(way.queue_bytes) / 1e9:.1f} s; `atoll link calibrate` fills it"
    return ""


def _steady(found: Flood, way: LinkUnderTest) -> tuple[float, float] | None:
    received: list[Received] = found.received[way.name]
    return steady_rate(received, found.begin_ns + way.settings.delay.ns + way.terrestrial_ns + way.fill_ns // 3)


def _mark(found: Flood, way: LinkUnderTest) -> dict[str, Any]:
    mark: dict[str, Any] = found.marks.get(way.box, {}).get(way.name, {})
    return mark


def _note(found: Flood, way: LinkUnderTest) -> str:
    if found.overflowed:
        return f"the receiver did not keep up with {found.overflowed} packets: this machine is too busy"
    return offered_note(_mark(found, way), way.flood_bit_s / 8e9 * (found.end_ns - found.begin_ns))


def _explained(row: CalibrationFigure, note: str) -> CalibrationFigure:
    return replace(row, why=note) if note and row.state is State.OFF else row


def _excused(row: CalibrationFigure, note: str) -> CalibrationFigure:
    return replace(row, state=State.SKIPPED, why=note) if note and row.state is State.OFF else row


def _reach_ns(ways: Sequence[LinkUnderTest]) -> int:
    """How far jitter may move one RTT."""
    links = sum(way.settings.jitter.reach.ns for way in ways if way.settings.jitter)
    return links + 2 * max((way.shake_ns for way in ways), default=0)


def _terrestrial_rtt_ns(ways: Sequence[LinkUnderTest]) -> int:
    return max((2 * way.terrestrial_ns for way in ways), default=0)
