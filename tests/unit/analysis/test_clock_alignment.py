# SPDX-License-Identifier: Apache-2.0
"""Clocks of two captures are compared by the packets that both have, whatever waits in the queues."""

from random import Random

import polars as pl
import pytest

from atoll_analysis.importers.clock_alignment import PathDelay, common_packets, fit_clock
from atoll_analysis.tables.lost_packets import HEADERS

START_NS = 1_767_322_800 * 10**9
TO_ISLAND = PathDelay(250e6, 500.0)  # 16 Mbit/s
TO_WORLD = PathDelay(250e6, 2000.0)
SECONDS = 600


def common(offset_ns: int, drift_ppm: float, seed: int = 1, queue_ms: float = 50.0, spare_ns: int = 0) -> pl.DataFrame:
    """600 s of 40 packets a second, of which one in ten to the island finds the queue empty; none at the end does."""
    random = Random(seed)
    rows: list[dict[str, int]] = []
    for number in range(40 * SECONDS):
        at_ns = START_NS + number * 25_000_000
        to_island = random.random() < 0.6
        octets = random.choice((40, 1500))
        path = TO_ISLAND if to_island else TO_WORLD
        is_free = not to_island or (random.random() < 0.1 and number < 30 * SECONDS)
        waited_ns = random.expovariate(1 / 20_000) + (0 if is_free else random.uniform(0.1, 1) * queue_ms * 1e6)
        delay_ns = round(path.ns + path.ns_per_byte * octets + waited_ns) + spare_ns
        world_ns, true_island_ns = (at_ns, at_ns + delay_ns) if to_island else (at_ns + delay_ns, at_ns)
        island_ns = true_island_ns + offset_ns + round((true_island_ns - START_NS) * drift_ppm / 1e6)
        rows.append({"world_ns": world_ns, "island_ns": island_ns, "ip_bytes": octets, "to_island": int(to_island)})
    return pl.DataFrame(rows).sort("island_ns")


def offset_at_start_ns(fit: object) -> float:
    return fit.offset_ns - fit.drift_ppb * (fit.since_ns - fit.offset_ns - START_NS) / 1e9  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("offset_ns", "drift_ppm"), [(0, 0.0), (3_723_000_456_789, 37.5), (-1_500_000, -120.0), (86_400 * 10**9, 0.3)]
)
def test_offset_within_1_ms_and_drift_within_a_tenth_of_a_ppm(offset_ns: int, drift_ppm: float, seed: int) -> None:
    fit = fit_clock(common(offset_ns, drift_ppm, seed), TO_ISLAND, TO_WORLD)
    assert fit is not None
    assert abs(fit.drift_ppb / 1e3 - drift_ppm) < 0.1
    # An offset at the island's first instant, which drifted since START_NS by less than 0.1 ms.
    assert abs(offset_at_start_ns(fit) - offset_ns) < 1_000_000
    assert fit.offset_error_ns is not None
    assert fit.offset_error_ns < 1_000_000
    assert fit.is_same_clock == (offset_ns == 0)


@pytest.mark.parametrize("direction", [0, 1])
def test_one_direction_gives_the_clock_but_no_error(direction: int) -> None:
    packets = common(20_000_000, 5.0).filter(
        pl.col("to_island") == direction, pl.col("island_ns") < START_NS + 300 * 10**9
    )
    fit = fit_clock(packets, TO_ISLAND, TO_WORLD)
    assert fit is not None
    assert (fit.offset_error_ns, fit.drift_error_ppb) == (None, None)
    assert abs(fit.drift_ppb / 1e3 - 5.0) < 0.2
    assert abs(offset_at_start_ns(fit) - 20_000_000) < 1_000_000


def test_a_path_that_is_longer_than_described_in_both_directions_is_an_error_and_no_offset() -> None:
    fit = fit_clock(common(0, 0.0, spare_ns=4_000_000), TO_ISLAND, TO_WORLD)
    assert fit is not None
    assert abs(fit.offset_ns) < 100_000
    assert fit.offset_error_ns == pytest.approx(4_000_000, abs=100_000)
    assert fit.too_short_ns == pytest.approx(-8_000_000, abs=200_000)


def test_a_single_packet_in_each_direction_is_not_enough() -> None:
    packets = common(0, 0.0)
    one_each = pl.concat([packets.filter(pl.col("to_island") == to_island).head(1) for to_island in (0, 1)])
    assert fit_clock(one_each, TO_ISLAND, TO_WORLD) is None


def test_a_queue_that_never_empties_does_not_move_the_clock() -> None:
    waiting = common(0, 0.0).with_columns(pl.col("island_ns") + 60_000_000 * pl.col("to_island"))
    fit = fit_clock(waiting, TO_ISLAND, TO_WORLD)
    assert fit is not None
    assert fit.is_same_clock
    assert fit.offset_error_ns == pytest.approx(30_000_000, abs=200_000)


def test_few_packets_give_an_offset_and_no_drift() -> None:
    """Three replies to the world; the queue makes each packet to the island wait longer."""
    packets = common(7_000_000, 0.0)
    rare = packets.filter(pl.col("to_island") == 0).gather([0, 1000, -1])
    waiting = packets.filter(pl.col("to_island") == 1).gather_every(200).with_row_index("number")
    waiting = waiting.with_columns(pl.col("island_ns") + 1_000_000 * pl.col("number").cast(pl.Int64)).drop("number")
    fit = fit_clock(pl.concat([waiting, rare]).sort("island_ns"), TO_ISLAND, TO_WORLD)
    assert fit is not None
    assert (fit.drift_ppb, fit.drift_error_ppb) == (0.0, None)


def test_two_whistles_are_enough_for_the_offset() -> None:
    packets = common(7_000_000, 2.0, queue_ms=0.0).filter(pl.col("to_island") == 1)
    fit = fit_clock(pl.concat([packets.head(1), packets.tail(1)]), TO_ISLAND, TO_WORLD)
    assert fit is not None
    assert abs(fit.offset_ns - 7_000_000) < 1_000_000
    assert fit.drift_ppb == 0.0


def test_packets_that_a_capture_has_twice_are_not_compared() -> None:
    def capture(rows: list[tuple[int, int]]) -> pl.LazyFrame:
        fields = {name: [number for _, number in rows] for name in HEADERS}
        return pl.LazyFrame(
            {**fields, "t_ns": [t for t, _ in rows], "ip_bytes": [40] * len(rows), "to_island": [1] * len(rows)}
        )

    found = common_packets(capture([(1, 7), (2, 8), (3, 8), (4, 9)]), capture([(11, 7), (12, 8), (13, 6)]))
    assert found.select("world_ns", "island_ns").rows() == [(1, 11)]
