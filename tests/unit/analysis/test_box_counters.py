# SPDX-License-Identifier: Apache-2.0
"""What boxes say of themselves between the marks is put together as one measurement."""

from typing import Any

from atoll_analysis.tables.box_counters import SojournFigures, lateness_p99_ns, measurements, stalls


def figures(**changes: Any) -> dict[str, Any]:
    """One direction's figures in a mark: 100 packets, 99 of them at most 50 us late."""
    return {
        "in_packets": 101,
        "in_bytes": 101_000,
        "out_packets": 100,
        "out_bytes": 100_000,
        "dropped_packets": 1,
        "dropped_bytes": 1000,
        "lateness_max_ns": 200_000,
        "lateness_p99_ns": 50_000,
        "lateness_histogram": [[50_000, 99], [250_000, 1]],
        **changes,
    }


def mark(name: str, box: str = "sat", **parts: Any) -> dict[str, Any]:
    directions = parts or {"to_island": figures(), "to_world": figures()}
    return {"box": box, "type": "mark", "id": 5, "mark": name, "t_ns": 1, "overloaded": False, **directions}


def test_only_what_lies_between_begin_and_end_counts() -> None:
    before, after = figures(dropped_bytes=10**9), figures(dropped_bytes=10**6)
    lines = [mark("begin", to_island=before), mark("end", to_island=figures()), mark("end", to_island=after)]
    (found,) = measurements(lines)
    (part,) = found.parts
    assert (found.box, part.name, part.dropped_bytes) == ("sat", "to_island", 1000)


def test_marks_named_by_their_id_are_understood() -> None:
    lines = [{**mark("x"), "mark": name, "id": name} for name in ("begin", "end")]
    for line in lines:
        del line["mark"]
    (found,) = measurements(lines)
    assert [part.name for part in found.parts] == ["to_island", "to_world"]


def test_marks_in_between_are_added_up_and_maxima_kept() -> None:
    late = figures(lateness_max_ns=900_000, lateness_p99_ns=800_000, lateness_histogram=[[50_000, 50], [900_000, 50]])
    lines = [mark("begin"), mark("rain fade", to_island=late), mark("end", to_island=figures())]
    measured = measurements(lines)
    part = measured[0].parts[0]
    assert (part.in_packets, part.dropped_packets, part.lateness_max_ns) == (202, 2, 900_000)
    assert lateness_p99_ns(measured) == 800_000


def test_packets_of_low_priority_are_counted_apart() -> None:
    low = {
        "low_priority_in_packets": 5,
        "low_priority_in_bytes": 5000,
        "low_priority_sent_packets": 4,
        "low_priority_sent_bytes": 4000,
        "dropped_low_priority_packets": 1,
        "dropped_low_priority_bytes": 1000,
        "low_priority_queue_max_bytes": 3000,
        "low_priority_sojourn_max_ns": 900,
        "low_priority_sojourn_count": 4,
        "low_priority_sojourn_sum_ns": 2000,
        "low_priority_sojourn_histogram": [[400, 3], [1000, 1]],
    }
    (found,) = measurements([mark("begin"), mark("x", to_island=figures(**low)), mark("end", to_island=figures(**low))])
    part = found.parts[0]
    assert part.losses["low_priority"] == {"packets": 2, "bytes": 2000}
    assert part.low_priority == {
        "queue_max_bytes": 3000,
        "in_packets": 10,
        "sent_packets": 8,
        "sent_bytes": 8000,
        "sojourn": SojournFigures(mean_ms=0.0005, p50_ms=0.0004, p95_ms=0.0009, p99_ms=0.0009, max_ms=0.0009),
    }
    (without,) = measurements([mark("begin"), mark("end")])
    assert without.parts[0].low_priority is None
    assert "low_priority" not in without.parts[0].losses


def test_a_box_without_an_end_mark_measured_nothing() -> None:
    assert measurements([mark("begin"), mark("something")]) == ()


def test_overload_is_seen_wherever_a_box_says_it() -> None:
    (found,) = measurements([mark("begin"), {**mark("end"), "overloaded": True}])
    assert found.overloaded
    (found,) = measurements([mark("begin"), mark("end", to_island=figures(overloaded=True))])
    assert found.overloaded


def test_the_classes_of_a_delay_box_are_judged_together() -> None:
    """One late packet of three in a class that carried nearly nothing is not one per cent of the box's."""
    rare = figures(out_packets=3, lateness_p99_ns=4_000_000, lateness_histogram=[[50_000, 2], [4_000_000, 1]])
    much = figures(out_packets=10_000, lateness_histogram=[[50_000, 9_990], [250_000, 10]])
    lines = [mark(name, "delay", classes={"101": rare, "102": much}) for name in ("begin", "end")]
    found = measurements(lines)
    assert [part.name for part in found[0].parts] == ["101", "102"]
    assert lateness_p99_ns(found) == 50_000


def test_what_a_box_says_of_itself_is_counted_once() -> None:
    end = {
        **mark("end", "delay", classes={"101": figures(), "102": figures()}),
        "unknown_vlan_packets": 4,
        "oversize_packets": 1,
    }
    (found,) = measurements([mark("begin", "delay", classes={}), end])
    assert (found.unknown_vlan_packets, found.oversize_packets) == (4, 1)


def test_the_directions_of_a_link_are_judged_apart() -> None:
    late = figures(out_packets=100, lateness_p99_ns=3_000_000, lateness_histogram=[[50_000, 50], [3_000_000, 50]])
    much = figures(out_packets=100_000, lateness_histogram=[[50_000, 100_000]])
    assert (
        lateness_p99_ns(measurements([mark(n, to_island=late, to_world=much) for n in ("begin", "end")])) == 3_000_000
    )


def test_without_packets_there_is_no_lateness() -> None:
    idle = figures(out_packets=0, lateness_histogram=[], lateness_p99_ns=0, lateness_max_ns=0)
    assert lateness_p99_ns(measurements([mark(n, to_island=idle) for n in ("begin", "end")])) is None


def test_what_the_kernel_does_not_measure_is_unknown_rather_than_zero() -> None:
    kernel = {name: count for name, count in figures().items() if not name.startswith("lateness")}
    (measured,) = measurements([mark("begin", to_island=kernel), mark("end", to_island=kernel)])
    assert measured.parts[0].lateness_max_ns is None
    assert lateness_p99_ns([measured]) is None
    (engine,) = measurements([mark("begin", box="delay"), mark("end", box="delay")])
    assert lateness_p99_ns([measured, engine]) == lateness_p99_ns([engine])


def test_losses_are_put_together_by_cause() -> None:
    first = figures(dropped_queue_packets=3, dropped_queue_bytes=4500, dropped_loss_packets=1, lost_after_bytes=40)
    (found,) = measurements([mark("begin"), mark("swap", to_island=first), mark("end", to_island=first)])
    (part,) = found.parts
    assert part.losses == {"queue": {"packets": 6, "bytes": 9000}, "loss": {"packets": 2, "bytes": None}}
    assert part.lost_after_bytes == 80


def test_the_sojourn_of_several_marks_is_that_of_all_their_packets() -> None:
    first = figures(
        sojourn_max_ns=9_500, sojourn_count=3, sojourn_sum_ns=11_500, sojourn_histogram=[[1_000, 2], [9_999, 1]]
    )
    then = figures(sojourn_max_ns=2_000, sojourn_count=1, sojourn_sum_ns=2_000, sojourn_histogram=[[2_047, 1]])
    (found,) = measurements([mark("begin"), mark("swap", to_island=first), mark("end", to_island=then)])
    assert found.parts[0].sojourn == SojournFigures(
        mean_ms=13_500 / 4e6, p50_ms=0.001, p95_ms=0.0095, p99_ms=0.0095, max_ms=0.0095
    )


def test_boxes_of_older_versions_and_of_tc_say_less() -> None:
    (found,) = measurements([mark("begin"), mark("end")])
    part = found.parts[0]
    assert (part.losses, part.lost_after_bytes, part.sojourn, part.clamped_packets) == ({}, None, None, 0)
    assert (found.unread_packets, found.unstamped_packets, found.no_checksum_packets) == (0, 0, 0)
    summed = figures(sojourn_max_ns=5, sojourn_histogram=[[7, 2]])
    (found,) = measurements([mark("begin"), mark("end", to_island=summed)])
    assert found.parts[0].sojourn == SojournFigures(mean_ms=None, p50_ms=5e-6, p95_ms=5e-6, p99_ms=5e-6, max_ms=5e-6)


def test_doubtful_frames_are_counted_by_box_whether_it_or_its_directions_say_so() -> None:
    link = mark(
        "end",
        to_island=figures(unread_packets=2, clamped_packets=4, clamped_max_ns=7),
        to_world=figures(unread_packets=3),
    )
    delay = {**mark("end", box="delay"), "unread_packets": 5, "unstamped_packets": 6, "no_checksum_packets": 7}
    sat, box = measurements([mark("begin"), mark("begin", box="delay"), link, delay])
    assert (sat.unread_packets, sat.parts[0].clamped_packets, sat.parts[0].clamped_max_ns) == (5, 4, 7)
    assert (box.unread_packets, box.unstamped_packets, box.no_checksum_packets) == (5, 6, 7)


def late(box: str, t_ms: int, **parts_ms: float) -> dict[str, Any]:
    """A counters line with the largest lateness of each part in the 100 ms before it."""
    parts = {name: {"lateness_max_ns": int(ms * 1e6)} for name, ms in parts_ms.items()}
    return {"type": "counters", "box": box, "t_ns": t_ms * 10**6, **parts}


def marked(*boxes: str, name: str) -> list[dict[str, Any]]:
    return [{"type": "mark", "box": box, "mark": name, "t_ns": 0} for box in boxes]


def test_a_stall_that_several_boxes_saw_is_one_as_long_as_the_longest() -> None:
    lines = [
        late("sat", 50, to_island=90.0),  # before the measurement
        *marked("sat", "delay", name="begin"),
        late("sat", 1000, to_island=9.0, to_world=10.5),
        late("delay", 1040, to_island=8.0),
        late("sat", 1100, to_island=4.9),
        late("sat", 5000, to_island=6.0),
        late("sat", 5090, to_island=7.0),
        *marked("sat", "delay", name="end"),
        late("sat", 9000, to_island=90.0),
    ]
    assert stalls(lines, 5_000_000, None) == (3, 23_500_000)
    assert stalls(lines, 10_000_000, None) == (1, 10_500_000)


def test_boxes_that_measure_no_lateness_have_no_stalls_to_tell_of() -> None:
    counted = {"type": "counters", "box": "sat", "t_ns": 1, "to_island": {"in_packets": 1}}
    assert stalls([*marked("sat", name="begin"), counted, *marked("sat", name="end")], 5_000_000, None) is None


def stalled(t_ms: int, **stalled_ms: float) -> dict[str, Any]:
    parts = {name: {"lateness_max_ns": 40_000_000, "stall_ns": int(ms * 1e6)} for name, ms in stalled_ms.items()}
    return {"type": "counters", "box": "sat", "t_ns": t_ms * 10**6, **parts}


def test_boxes_that_add_up_their_stalls_are_believed() -> None:
    """Twice 20 ms within 100 ms are 40; what left late after a stall is no other one."""
    lines = [
        stalled(900, to_island=70, to_world=0),  # before the measurement
        *marked("sat", name="begin"),
        stalled(1000, to_island=110, to_world=20),
        stalled(1100, to_island=110, to_world=20),
        stalled(5000, to_island=110, to_world=26),
        *marked("sat", name="end"),
        stalled(9000, to_island=500, to_world=26),
    ]
    assert stalls(lines, 5_000_000, None) == (2, 46_000_000)


def within(begin_ms: int, end_ms: int) -> tuple[int, int]:
    return begin_ms * 10**6, end_ms * 10**6


def test_only_stalls_within_the_measurement_count() -> None:
    """Marks lie before the clients start and after the drain; a line tells of the 100 ms before it."""
    lines = [
        *marked("sat", name="begin"),
        stalled(500, to_island=30),
        stalled(1000, to_island=60),
        stalled(1100, to_island=70),
        stalled(2000, to_island=90),
        stalled(2100, to_island=94),
        stalled(2200, to_island=500),
        *marked("sat", name="end"),
    ]
    assert stalls(lines, 5_000_000, within(1000, 2000)) == (3, 34_000_000)
    old = [*marked("sat", name="begin"), late("sat", 500, to_island=9.0), late("sat", 1500, to_island=6.0)]
    assert stalls(old, 5_000_000, within(1000, 2000)) == (1, 6_000_000)


def test_the_last_instants_before_an_end_mark_count() -> None:
    end = {**stalled(2060, to_island=47), "type": "mark", "mark": "end"}
    lines = [stalled(900, to_island=5), *marked("sat", name="begin"), stalled(1990, to_island=45), end]
    assert stalls(lines, 5_000_000, within(1000, 2000)) == (2, 47_000_000)
    assert stalls([*lines[:-1], {**end, "t_ns": 5 * 10**9}], 5_000_000, within(1000, 2000)) == (1, 40_000_000)


def test_a_box_that_restarted_begins_its_sums_at_0() -> None:
    lines = [*marked("sat", name="begin"), stalled(1000, to_island=40), stalled(1500, to_island=7)]
    assert stalls(lines, 5_000_000, within(0, 2000)) == (2, 47_000_000)


def test_marks_that_are_named_by_their_id_bound_stalls_too_and_the_first_end_is_the_end() -> None:
    marks = [{"type": "mark", "box": "sat", "id": name, "t_ns": 0} for name in ("begin", "end", "begin", "end")]
    lines = [late("sat", 50, to_island=90.0), marks[0], late("sat", 1000, to_island=9.0), marks[1]]
    assert stalls([*lines, marks[2], late("sat", 2000, to_island=9.0), marks[3]], 5_000_000, None) == (1, 9_000_000)
