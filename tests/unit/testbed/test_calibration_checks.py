# SPDX-License-Identifier: Apache-2.0
"""How measured figures of a link are judged: what is as configured passes, what is not does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import (
    Bernoulli,
    BitError,
    Codel,
    Counted,
    GilbertElliott,
    Jitter,
    JitterShape,
    LinkDirection,
    LinkTrace,
    LossPoint,
    TraceRow,
    mean_loss,
)
from atoll_core.lab.network import LatencyClass
from atoll_core.units import Duration, Rate, Size
from atoll_testbed.calibration.calibration_checks import (
    PRECISE,
    ROUGH,
    CheckState,
    LinkUnderTest,
    byte_row,
    delay_row,
    jitter_row,
    loaded_row,
    offered_note,
    queue_row,
    rate_row,
    steady_rate,
)
from atoll_testbed.calibration.link_calibration import links_under_test
from atoll_testbed.calibration.link_flood import Flood

MS = 1_000_000
GEO = LinkDirection(Rate(16_000_000), Duration(250 * MS), Size(100_000))
BASE_NS = 501 * MS


def way(settings: LinkDirection = GEO, counts: Counted = Counted.IP, *, narrower: bool = False) -> LinkUnderTest:
    return LinkUnderTest.of("sat", "to_island", settings, counts, narrower=narrower)


def arrivals(
    rate_bit_s: float, *, packet: int = 1500, seconds: float = 2, gap_at: int | None = None
) -> list[dict[str, int]]:
    """A receiver's counters, ten a second, of a link that sends at this rate; nothing for 50 ms in one of the steps."""
    found: list[dict[str, int]] = []
    late = 0.0
    for step in range(int(seconds * 10)):
        late += 0.05 if step == gap_at else 0
        packets = int(rate_bit_s * (step + 1) / 80 / packet)
        last_ns = int((packets * packet * 8 / rate_bit_s + late) * 1e9)
        found.append({"packets": packets, "bytes": packets * packet, "last_ns": last_ns})
    return found


@pytest.mark.parametrize(
    ("delay_ms", "state"), [(250.2, CheckState.OK), (249.5, CheckState.OFF), (270, CheckState.OFF)]
)
def test_a_delay_is_never_shorter_and_longer_only_by_what_a_lab_takes(delay_ms: float, state: CheckState) -> None:
    one_way = [int((delay_ms + late) * MS) for late in (0.1, 0, 40)]
    assert delay_row(way(), one_way, 0, PRECISE).state is state


def test_the_delay_of_a_chain_is_shared_among_its_links() -> None:
    row = delay_row(way(), [280 * MS], 30 * MS, PRECISE)
    assert row.state is CheckState.OK
    assert row.measured == pytest.approx(249.958)


def test_the_special_servers_latency_is_allowed_for() -> None:
    """60 ms, 30 of them each way, with jitter of 3: packets take 280 ms, some of them 277."""
    delayed = replace(way(), terrestrial=LatencyClass("rtt-60", 123, Duration(60 * MS), Duration(3 * MS)))
    one_way = [(277 + step) * MS for step in range(7)]
    assert delay_row(delayed, one_way, delayed.terrestrial_ns, PRECISE).state is CheckState.OK
    assert delay_row(delayed, [each - 30 * MS for each in one_way], 30 * MS, PRECISE).state is CheckState.OFF
    assert delayed.drain_ns == way().drain_ns + 33 * MS


def test_jitter_is_told_from_none_and_from_twice_as_much() -> None:
    settings = replace(GEO, jitter=Jitter(JitterShape.UNIFORM, Duration(20 * MS)))
    spread = [250 * MS + int((2 * k / 99 - 1) * 20 * MS) for k in range(100)]
    assert jitter_row(way(settings), spread, is_ambiguous=False, tolerance=PRECISE).state is CheckState.OK
    assert jitter_row(way(settings), [250 * MS] * 100, is_ambiguous=False, tolerance=PRECISE).state is CheckState.OFF
    wide = [250 * MS + 2 * (each - 250 * MS) for each in spread]
    assert jitter_row(way(settings), wide, is_ambiguous=False, tolerance=PRECISE).state is CheckState.OFF
    assert jitter_row(way(), spread, is_ambiguous=False, tolerance=PRECISE).state is CheckState.OFF


def test_jitter_that_few_packets_cannot_show_is_not_judged() -> None:
    for jitter in (
        Jitter(JitterShape.PARETO, Duration(5 * MS)),
        Jitter(JitterShape.NORMAL, Duration(5 * MS), correlation=0.9),
    ):
        row = jitter_row(way(replace(GEO, jitter=jitter)), [250 * MS] * 100, is_ambiguous=False, tolerance=PRECISE)
        assert row.state is CheckState.SKIPPED
        assert row.why


@pytest.mark.parametrize(("rate", "state"), [(16e6, CheckState.OK), (15.8e6, CheckState.OFF), (20e6, CheckState.OFF)])
def test_a_rate_may_be_off_by_half_a_percent(rate: float, state: CheckState) -> None:
    assert rate_row(way(), steady_rate(arrivals(rate), 0), PRECISE).state is state


def test_a_sender_that_was_held_up_for_a_moment_does_not_change_the_rate() -> None:
    steady = steady_rate(arrivals(16e6, gap_at=7), 0)
    assert rate_row(way(), steady, PRECISE).state is CheckState.OK


@pytest.mark.parametrize("counts", list(Counted))
def test_what_counts_as_a_byte_shows_in_small_packets(counts: Counted) -> None:
    small = way().small_packet
    header = 14 if counts is Counted.ETHERNET else 0
    steady = steady_rate(arrivals(16e6 * small / (small + header), packet=small), 0)
    other = Counted.IP if counts is Counted.ETHERNET else Counted.ETHERNET
    assert byte_row(way(counts=counts), steady, small, PRECISE).state is CheckState.OK
    assert byte_row(way(counts=other), steady, small, PRECISE).state is CheckState.OFF


@pytest.mark.parametrize(("fullest", "state"), [(98_500, "ok"), (100_000, "ok"), (98_499, "off"), (100_001, "off")])
def test_a_full_queue_is_within_one_packet_of_its_size(fullest: int, state: str) -> None:
    assert queue_row(way(), {"queue_max_bytes": fullest}).state == state


def test_a_limit_in_packets_bounds_what_full_size_packets_fill() -> None:
    assert way(replace(GEO, queue_packets=20)).queue_bytes == 30_000
    assert way(replace(GEO, queue_packets=2000)).queue_bytes == 100_000


@pytest.mark.parametrize(
    ("above_ms", "state"),
    [
        (50, CheckState.OK),
        (48.6, CheckState.OK),
        (47.5, CheckState.OFF),
        (50.7, CheckState.OK),
        (25, CheckState.OFF),
        (100, CheckState.OFF),
    ],
)
def test_an_rtt_tops_out_at_what_the_queue_holds(above_ms: float, state: CheckState) -> None:
    """100 kB at 16 Mbit/s are 50 ms; netem chained with tbf would show seconds."""
    rtts = [BASE_NS + int(above_ms * MS)] * 20
    assert loaded_row([way()], rtts, BASE_NS, 0, PRECISE).state is state
    if state is CheckState.OK:
        assert loaded_row([way()], rtts, BASE_NS, 0, ROUGH).state is state


def test_two_full_queues_add_up() -> None:
    both = [way(), replace(way(), name="to_world")]
    assert loaded_row(both, [BASE_NS + 100 * MS] * 9, BASE_NS, 0, ROUGH).state is CheckState.OK
    assert loaded_row(both, [BASE_NS + 50 * MS] * 9, BASE_NS, 0, ROUGH).state is CheckState.OFF


def test_pings_count_that_meet_a_full_queue_on_their_way_back() -> None:
    back = replace(way(), name="to_world")
    pings = [(50 * MS, 1), (1000 * MS, 2), (1800 * MS, 3)]
    assert Flood(0, 100 * MS, 2000 * MS, pings).loaded_rtts([back]) == [2]
    assert Flood(0, 100 * MS, 2000 * MS, pings).loaded_rtts([way()]) == [2, 3]


def test_a_queue_under_an_aqm_is_not_judged() -> None:
    managed = way(replace(GEO, aqm=Codel(Duration(5 * MS), Duration(100 * MS))))
    assert queue_row(managed, {"queue_max_bytes": 9_000}).state is CheckState.SKIPPED
    assert loaded_row([managed], [BASE_NS] * 20, BASE_NS, 0, PRECISE).state is CheckState.SKIPPED


def test_a_link_is_judged_as_it_stands_where_its_trace_begins() -> None:
    rows = (TraceRow(Duration(0), rate=Rate(8_000_000), delay=Duration(200 * MS)), TraceRow(Duration(10**9)))
    first = way(replace(GEO, trace=LinkTrace("rain.csv", rows))).settings
    assert (first.rate.bit_s, first.delay.ns, first.queue.bytes) == (8_000_000, 200 * MS, 100_000)
    blocked = LinkTrace("pass.csv", (TraceRow(Duration(0), blocked=True),))
    assert way(replace(GEO, trace=blocked)).refusal == "its trace begins with a blocked link"


def test_what_cannot_be_filled_is_refused_with_the_reason() -> None:
    assert way().refusal == ""
    assert "lower rate" in way(narrower=True).refusal
    assert "loss" in way(replace(GEO, loss=Bernoulli(0.3))).refusal
    assert way(replace(GEO, loss=Bernoulli(0.001))).refusal == ""


def test_bursty_loss_is_that_of_the_channels_long_run() -> None:
    bursty = GilbertElliott(good_to_bad=0.01, bad_to_good=0.09, loss_good=0.0, loss_bad=0.5)
    assert mean_loss(bursty, 1500) == pytest.approx(0.05)


def test_a_bit_error_rate_takes_more_of_longer_packets() -> None:
    assert [round(BitError(1e-7).of_packet(size), 5) for size in (40, 1500, 9000)] == [0.00003, 0.0012, 0.00717]
    assert (BitError(0.0).of_packet(1500), BitError(1.0).of_packet(1)) == (0.0, 1.0)


def test_packets_lost_at_the_receiver_are_not_missing_from_the_rate() -> None:
    """The link has sent them; those lost before the queue leave their time to others."""
    received = steady_rate(arrivals(0.95 * 16e6), 0)
    lossy = way(replace(GEO, loss=Bernoulli(0.05)))
    assert rate_row(lossy, received, PRECISE).state is CheckState.OK
    before = way(replace(GEO, loss=Bernoulli(0.05, LossPoint.BEFORE)))
    assert rate_row(before, received, PRECISE).state is CheckState.OFF


def test_a_flood_fills_the_queue_within_half_a_second_and_is_above_the_rate() -> None:
    for settings in (GEO, replace(GEO, rate=Rate(320_000_000), queue=Size(2_000_000)), replace(GEO, queue=Size(3000))):
        each = way(settings)
        assert each.flood_bit_s >= 1.25 * settings.rate.bit_s
        surplus = each.flood_bit_s - settings.rate.bit_s
        assert surplus * each.fill_ns >= 8 * each.queue_bytes * 1e9
        assert each.fill_ns < 500 * MS


def test_a_flood_that_did_not_reach_the_link_is_told_from_a_slow_link() -> None:
    assert offered_note({"in_bytes": 990_000}, 1_000_000) == ""
    assert "cannot forward enough" in offered_note({"in_bytes": 500_000}, 1_000_000)


def test_every_direction_of_a_shipped_experiment_is_tested(project: Path) -> None:
    found = links_under_test(*load_experiment(project / "examples" / "geo.yaml"))
    assert [(each.box, each.name, each.refusal) for each in found] == [
        ("sat", "to_island", ""),
        ("sat", "to_world", ""),
    ]
