# SPDX-License-Identifier: Apache-2.0
"""Every rule of the verdict, on both sides of its bound; each reason names the figure and the bound."""

import json
from typing import Any, cast

import pytest

from atoll.analysis.summary import Summary
from atoll.analysis.verdict import judge

VOLUME = {"goodput_bytes": 1000, "share": 0.5, "first_s": 0.1, "last_s": 59.0}
CAPTURE = {"captured": 100, "dropped": 0, "decoded": 98, "other_frames": 2, "truncated": False}
VALID: dict[str, Any] = {
    "cut_short": None,
    "duration_s": 60.0,
    "planned_s": 60.0,
    "drained": True,
    "terrestrial_rtt_ms": {"w3": {"configured": 50.0, "measured": 51.5, "tolerance": 1.5}},
    "changes": [],
    "probed_bytes_max": 0,
    "links": {"sat": {"rate_bit_s": 16_000_000, "windows_over_rate": 0, "scheduled_windows_over_rate": 0}},
    "lateness_max_ms": 5.0,
    "lateness_p99_ms": 1.0,
    "overloaded": [],
    "oversize_packets": 0,
    "unknown_vlan_packets": 0,
    "loss_bytes_captures": 4711,
    "loss_bytes_link": 4711,
    "channels": 4,
    "placement": {"i1": 2, "i2": 2},
    "flows_completed": 41,
    "servers": {"w1": VOLUME, "w2": VOLUME},
    "clients": {"i1": VOLUME, "i2": VOLUME},
    "captures": {"world": CAPTURE, "island": CAPTURE},
    "whistles": {"world": {"start": True, "end": True}, "island": {"start": True, "end": False}},
}


def judged(*changes: tuple[str, Any]) -> list[str]:
    """The verdict on a valid run of which some figures, named by dotted paths, are other ones."""
    summary = json.loads(json.dumps(VALID))
    for path, figure in changes:
        *way, last = path.split(".")
        place = summary
        for step in way:
            place = place[step]
        place[last] = figure
    return judge(cast("Summary", summary))


def test_a_run_at_all_its_bounds_is_valid() -> None:
    assert judged() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("cut_short", "cancelled at step measure"), "cancelled at step measure"),
        (("duration_s", None), "nothing was measured: the run has no measurement window"),
        (("duration_s", 59.3), "cut short: 59.3 s of 60 s were measured"),
        (
            ("terrestrial_rtt_ms.w3.measured", 51.51),
            "terrestrial RTT of w3 is 51.51 ms, configured 50 ms ± 1.50 ms",
        ),
        (
            ("terrestrial_rtt_ms.w3.measured", 48.49),
            "terrestrial RTT of w3 is 48.49 ms, configured 50 ms ± 1.50 ms",
        ),
        (("lateness_max_ms", 5.01), "a departure was 5.01 ms late, bound 5 ms: the machine was too busy"),
        (
            ("lateness_p99_ms", 1.01),
            "1 % of departures were later than 1.01 ms, bound 1 ms: the machine was too busy",
        ),
        (("overloaded", ["delay"]), "delay lost packets at its own socket: the machine was too busy"),
        (("oversize_packets", 2), "2 packets larger than the MTU reached a box: offloads were on somewhere"),
        (("unknown_vlan_packets", 4), "a delay box lost 4 packets of no latency class, bound 0"),
        (("links.sat.windows_over_rate", 3), "3 windows of 100 ms behind sat above its 16 Mbit/s, bound 0"),
        (
            ("links.sat.scheduled_windows_over_rate", 1),
            "sat scheduled 1 window of 100 ms above its rate, bound 0: an error of the emulator",
        ),
        (
            ("loss_bytes_link", 4710),
            "captures show a loss of 4711 bytes, the link counted 4710; they must be equal",
        ),
        (("captures.world.dropped", 1), "capture world lacks 1 packet that its ring had no room for, bound 0"),
        (
            ("captures.world.dropped", None),
            "capture world does not say whether packets were dropped: nothing of it in logs/capture-world.out",
        ),
        (("captures.world.captured", 101), "capture world lacks 1 packet that the capture counted, bound 0"),
        (("captures.island.truncated", True), "capture island ends within a packet: its end is lost"),
        (("captures.island.decoded", None), "capture island is missing"),
        (("whistles.island.start", False), "capture island does not hold the start whistle"),
        (("whistles.world.end", False), "capture world does not hold the end whistle"),
        (("clients.i2.goodput_bytes", 0), "no TCP payload reached i2, in spite of 2 channels"),
        (("servers.w1.goodput_bytes", 0), "no TCP payload came from w1 though 41 flows completed"),
    ],
)
def test_each_violation_gives_its_reason_and_no_other(change: tuple[str, Any], reason: str) -> None:
    assert judged(change) == [reason]


def test_a_loss_that_differs_because_the_link_had_not_drained_says_so() -> None:
    (reason,) = judged(("loss_bytes_link", 1), ("drained", False))
    assert reason.endswith("(the link had not drained when the captures ended)")


@pytest.mark.parametrize(
    "changes",
    [
        [("clients.i2.goodput_bytes", 0), ("placement.i2", 1)],
        [("servers.w1.goodput_bytes", 0), ("flows_completed", 40)],
        [("servers", {}), ("clients", {})],
        [("loss_bytes_captures", None)],
        [("lateness_max_ms", None), ("lateness_p99_ms", None)],
        [("captures", {}), ("whistles", {})],
    ],
)
def test_what_is_unlikely_or_unmeasured_is_not_held_against_a_run(changes: list[tuple[str, Any]]) -> None:
    assert judged(*changes) == []


def test_all_reasons_are_given_at_once() -> None:
    assert len(judged(("lateness_max_ms", 6.0), ("overloaded", ["sat"]), ("whistles.world.start", False))) == 3
