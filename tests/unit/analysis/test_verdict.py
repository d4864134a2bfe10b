# SPDX-License-Identifier: Apache-2.0
"""Every rule of the verdict, on both sides of its bound; each reason names the figure and the bound."""

import json
from typing import Any, cast

import pytest

from atoll_analysis.summary import Summary
from atoll_analysis.verdict.findings import Finding, FindingCode, Verdict, verdict_of
from atoll_analysis.verdict.verdict import judge

SEEN = {"first_s": 0.1, "last_s": 60.0, "payload_first_s": 0.6, "payload_last_s": 59.9}
VOLUME = {"goodput_bytes": 1000, "share": 0.5, **SEEN}
CHANGE = {"number": 1, "planned_s": 1.0, "lateness_ms": 0.1, "duration_s": 1.0, "failure": None}
CAPTURE = {"captured": 100, "dropped": 0, "decoded": 98, "other_frames": 2, "truncated": False}
SILENCE = {
    "host": "i2",
    "is_client": True,
    "never": False,
    "from_s": 20.0,
    "to_s": 60.0,
    "waiting": 2,
    "tries": 8,
    "successive": 4,
}
VALID: dict[str, Any] = {
    "cut_short": None,
    "duration_s": 60.0,
    "planned_s": 60.0,
    "drained": True,
    "terrestrial_rtt_ms": {"w3": {"configured": 50.0, "measured": 51.5, "tolerance": 1.5}},
    "changes": [],
    "probed_bytes_max": 0,
    "links": {"sat": {"rate_bit_s": 16_000_000, "windows_over_rate": 0, "scheduled_windows_over_rate": 0}},
    "limits": {
        "lateness_p99_ms": 1.0,
        "stall_ms": 5.0,
        "stalled_share": 0.001,
        "lateness_of_rtt": 0.1,
        "failed_flows": 0.1,
    },
    "clocks": {"step_ms": 0.1, "drifts": {"i1": {"drift_ms": -1.5, "bound_ms": 0.5}}},
    "base_rtt_ms": 500.4,
    "base_rtt_shortest_ms": 500.0,
    "sojourn_bound_ms": 50.0,
    "lateness_max_ms": 5.0,
    "lateness_p99_ms": 1.0,
    "stalls": 0,
    "stalled_s": 0.0,
    "start": None,
    "ping_sent": 540,
    "ping_lost": 2,
    "ping_planned": 600,
    "ping_last_s": 59.9,
    "ping_path_loss": 0.002,
    "path_loss": 0.002,
    "silences": [],
    "transfer_bytes": 10_000_000,
    "transfer_room_s": 50.0,
    "transfer_received_bytes": 10_000_000,
    "transfer_complete": True,
    "overloaded": [],
    "oversize_packets": 0,
    "unknown_vlan_packets": 0,
    "loss_bytes_captures": 4711,
    "loss_bytes_link": 4711,
    "channels": 4,
    "placement": {"i1": 2, "i2": 2},
    "flows_completed": 41,
    "flows_cut": 4,
    "flows_failed": 0,
    "servers": {"w1": VOLUME, "w2": VOLUME},
    "clients": {"i1": VOLUME, "i2": VOLUME},
    "captures": {"world": CAPTURE, "island": CAPTURE},
    "whistles": {"world": {"start": True, "end": True}, "island": {"start": True, "end": False}},
}


Changes = tuple[tuple[str, Any], ...]


def found(*changes: tuple[str, Any]) -> list[Finding]:
    """The findings on a valid run of which some figures, named by dotted paths, are other ones."""
    summary = json.loads(json.dumps(VALID))
    for path, figure in changes:
        *way, last = path.split(".")
        place = summary
        for step in way:
            place = place[step]
        place[last] = figure
    return judge(cast("Summary", summary))


def judged(*changes: tuple[str, Any]) -> list[str]:
    """The reasons for which such a run is invalid."""
    return [finding.text for finding in found(*changes) if finding.is_reason]


def caveats(*changes: tuple[str, Any]) -> list[str]:
    """The caveats of such a run, which must be valid."""
    findings = found(*changes)
    assert verdict_of(findings) is not Verdict.INVALID, findings
    return [finding.text for finding in findings]


def test_a_run_at_all_its_bounds_is_valid() -> None:
    assert found() == []


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
        (("lateness_max_ms", 50.01), "a departure was 50.01 ms late, bound 50 ms: the machine was too busy"),
        (
            ("lateness_p99_ms", 1.01),
            "1 % of departures were later than 1.01 ms, bound 1 ms: the machine was too busy",
        ),
        (("overloaded", ["delay"]), "delay lost packets at its own socket: the machine was too busy"),
        (("oversize_packets", 2), "2 packets larger than the MTU reached a box: some interface has offloads enabled"),
        (
            ("unknown_vlan_packets", 4),
            "a delay box dropped 4 packets whose VLAN tag belongs to no latency class, bound 0",
        ),
        (
            ("links.sat.windows_over_rate", 3),
            "sat: the capture behind it has 3 windows of 100 ms above the link's 16 Mbit/s, bound 0",
        ),
        (
            ("links.sat.scheduled_windows_over_rate", 1),
            (
                "sat: departures were scheduled above the link's rate in 1 window of 100 ms, bound 0: "
                "a bug of the emulator"
            ),
        ),
        (
            ("loss_bytes_link", 4710),
            "captures show a loss of 4711 bytes, links counted 4710 bytes; both must be equal",
        ),
        (("captures.world.dropped", 1), "capture world is missing 1 packet: its ring was full; bound 0"),
        (
            ("captures.world.dropped", None),
            "capture world: whether packets were dropped is unknown, because logs/capture-world.out has no counters",
        ),
        (("captures.world.captured", 101), "capture world is missing 1 packet that the capture counted, bound 0"),
        (("captures.island.truncated", True), "capture island ends within a packet: later packets are missing"),
        (("captures.island.decoded", None), "capture island is missing"),
        (("whistles.world.start", False), "capture world does not contain the start whistle"),
        (("whistles.world.end", False), "capture world does not contain the end whistle"),
        (
            ("silences", [SILENCE]),
            (
                "no TCP payload reached i2 from 20.0 s to 60.0 s, though 2 channels waited, the longest for 4 "
                "timeouts: by chance in less than one run of 1,000,000"
            ),
        ),
        (
            ("silences", [{**SILENCE, "host": "w1", "is_client": False, "waiting": 3}]),
            (
                "no TCP payload came from w1 from 20.0 s to 60.0 s, though 3 flows waited, the longest "
                "for 4 "
                "timeouts: by chance in less than one run of 1,000,000"
            ),
        ),
        (
            ("servers.w1.goodput_bytes", 0),
            (
                "the captures have no TCP payload from w1, although 41 flows completed; `atoll trace` shows whether "
                "its packets pass the taps"
            ),
        ),
    ],
)
def test_each_violation_gives_its_reason_and_no_other(change: tuple[str, Any], reason: str) -> None:
    assert judged(change) == [reason]


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("NOT_MEASURED", [("duration_s", None)]),
        ("CUT_SHORT", [("cut_short", "killed at step check")]),
        ("CUT_SHORT", [("duration_s", 59.3)]),
        ("TERRESTRIAL_RTT", [("terrestrial_rtt_ms.w3.measured", 48.0), ("terrestrial_rtt_ms.w3.scatter", 9.0)]),
        ("TERRESTRIAL_RTT", [("terrestrial_rtt_ms.w3.measured", 53.0), ("terrestrial_rtt_ms.w3.scatter", 1.4)]),
        ("TERRESTRIAL_RTT_SCATTER", [("terrestrial_rtt_ms.w3.measured", 53.0), ("terrestrial_rtt_ms.w3.scatter", 1.5)]),
        ("DEPARTURES_LATE", [("lateness_p99_ms", 1.01)]),
        ("DEPARTURE_LATE", [("lateness_max_ms", 50.01)]),
        ("STALLS", [("stalls", 1)]),
        ("BOX_OVERLOADED", [("overloaded", ["delay"])]),
        ("PACKETS_OVER_MTU", [("oversize_packets", 2)]),
        ("UNKNOWN_VLAN", [("unknown_vlan_packets", 4)]),
        ("LINK_OVER_RATE", [("links.sat.windows_over_rate", 3)]),
        ("SCHEDULE_OVER_RATE", [("links.sat.scheduled_windows_over_rate", 1)]),
        ("BOX_BYPASSED", [("ended_connections", {"pep-w": {"kind": "pep", "counted": 0, "completed": 1}})]),
        ("BOX_PARTLY_BYPASSED", [("ended_connections", {"pep-w": {"kind": "pep", "counted": 1, "completed": 9}})]),
        ("CAPTURE_MISSING", [("captures.island.decoded", None)]),
        ("CAPTURE_UNCOUNTED", [("captures.world.dropped", None)]),
        ("CAPTURE_DROPPED", [("captures.world.dropped", 1)]),
        ("CAPTURE_TRUNCATED", [("captures.island.truncated", True)]),
        ("CAPTURE_INCOMPLETE", [("captures.world.captured", 101)]),
        ("WHISTLE_MISSING", [("whistles.island.start", False)]),
        ("WHISTLE_MISSING", [("whistles.world.end", False)]),
        ("LOSS_DIFFERS", [("loss_bytes_link", 4710)]),
        ("CHANGE_FAILED", [("changes", [{**CHANGE, "failure": "probes did not arrive"}])]),
        ("CHANGE_NOT_MADE", [("changes", [{**CHANGE, "duration_s": None}])]),
        ("CHANGE_LATE", [("changes", [{**CHANGE, "lateness_ms": 251.0}])]),
        ("SERVER_UNSEEN", [("servers.w1.goodput_bytes", 0)]),
        ("HOST_SILENT", [("silences", [SILENCE])]),
        ("NO_PAYLOAD", [("flow_tries", 2)]),
        ("FLOWS_FAILED", [("flows_failed", 1)]),
        ("PINGS_UNSENT", [("ping_sent", 530)]),
        ("PINGS_LOST", [("ping_lost", 60)]),
        ("TRANSFER_NO_RESULT", [("transfer_received_bytes", None), ("transfer_complete", None)]),
        ("TRANSFER_NO_BYTE", [("transfer_received_bytes", 0), ("transfer_complete", False)]),
        ("TRANSFER_UNFINISHED", [("transfer_received_bytes", 4711), ("transfer_complete", False)]),
        ("UDP_UNREPORTED", [("udp", {"sent_mbit_s": None, "rate_bit_s": 10**6})]),
        (
            "UDP_LOST",
            [("udp", {"sent_mbit_s": 1.0, "rate_bit_s": 10**6, "sent_packets": 9, "received_packets": 0})],
        ),
        ("UDP_RATE", [("udp", {"sent_mbit_s": 0.98, "rate_bit_s": 10**6})]),
        ("CLOCK_STEPPED", [("clocks.step_ms", 0.2)]),
        ("CLOCK_DRIFTED", [("clocks.drifts.i1.drift_ms", 51.0)]),
        ("START_SPREAD", [("start", {"spread_ms": 51.0, "hosts": {"i1": 0.0, "i2": 51.0}})]),
    ],
)
def test_each_finding_has_a_code(code: str, changes: list[tuple[str, Any]]) -> None:
    assert [finding.code for finding in found(*changes)] == [FindingCode(code)]


@pytest.mark.parametrize(("sent_mbit_s", "codes"), [(0.204, []), (0.189, []), (0.213, ["UDP_RATE"])])
def test_a_rate_of_udp_may_differ_by_a_packet(sent_mbit_s: float, codes: list[str]) -> None:
    """200 kbit/s for a second are 16.7 packets of 1500 bytes: 17 are 2 % more."""
    udp = {"sent_mbit_s": sent_mbit_s, "rate_bit_s": 200_000, "tolerance_bit_s": 12_000}
    assert [finding.code.value for finding in found(("udp", udp))] == codes


def test_a_start_whistle_that_a_lossy_link_may_have_dropped_makes_no_run_invalid() -> None:
    """Behind the link only: before it, nothing drops packets."""
    (finding,) = found(("whistles.island.start", False), ("path_loss", 0.05))
    assert finding.code is FindingCode.WHISTLE_MISSING
    assert judged(("whistles.island.start", False), ("path_loss", 0.05)) == []
    missing = "capture island does not contain the start whistle"
    assert judged(("whistles.island.start", False), ("path_loss", 0.0), ("ping_path_loss", 0.0)) == [missing]


@pytest.mark.parametrize(("loss", "grave"), [(1e-6, True), (0.0009, True), (0.001, False), (0.5, False)])
def test_a_missing_start_whistle_is_explained_by_a_loss_of_one_packet_in_a_thousand(loss: float, grave: bool) -> None:
    (finding,) = found(("whistles.island.start", False), ("path_loss", loss), ("ping_path_loss", loss))
    assert finding.is_reason == grave


def test_a_link_that_is_blocked_at_the_start_may_have_dropped_the_whistle() -> None:
    """Losses by blockages are part of the loss of the pings' path only."""
    (finding,) = found(("whistles.island.start", False), ("path_loss", 0.0), ("ping_path_loss", 0.2))
    assert not finding.is_reason


def test_a_loss_that_differs_because_the_link_had_not_drained_says_so() -> None:
    (reason,) = judged(("loss_bytes_link", 1), ("drained", False))
    assert reason.endswith("(the link had not drained when the captures ended)")


@pytest.mark.parametrize(
    "changes",
    [
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
    assert len(judged(("lateness_max_ms", 60.0), ("overloaded", ["sat"]), ("whistles.world.start", False))) == 3


STALL = (("lateness_max_ms", 10.4), ("lateness_p99_ms", 0.2), ("stalls", 1), ("stalled_s", 0.0104))


def test_one_late_departure_on_a_geo_link_is_a_caveat_with_its_figures() -> None:
    """99.98 % of the packets left within 0.2 ms: a stall of 10 ms changes no figure of RTTs of 500 ms."""
    assert caveats(*STALL) == [
        (
            "packets left links or delay boxes late: 1 stall, 10.40 ms in total, bound 60 ms; "
            "largest lateness 10.40 ms, bound 50 ms"
        )
    ]


def test_stalls_are_judged_by_how_much_of_the_measured_time_they_cover() -> None:
    assert len(caveats(*STALL, ("stalls", 6), ("stalled_s", 0.06))) == 1
    (reason,) = judged(*STALL, ("stalls", 7), ("stalled_s", 0.061))
    assert reason.startswith("packets left links or delay boxes late: 7 stalls, 61.00 ms in total, bound 60 ms")


@pytest.mark.parametrize(("rtt_ms", "bound"), [(20.0, "5"), (50.0, "5"), (80.0, "8"), (None, "5")])
def test_the_lateness_of_one_departure_is_held_against_the_shortest_rtt(rtt_ms: float | None, bound: str) -> None:
    """At least what a stall is."""
    (reason, *_) = judged(*STALL, ("base_rtt_shortest_ms", rtt_ms))
    assert reason == f"a departure was 10.40 ms late, bound {bound} ms: the machine was too busy"


def test_the_bounds_of_lateness_are_settings() -> None:
    strict = judged(*STALL, ("limits.stalled_share", 0.0001), ("limits.lateness_p99_ms", 0.1))
    assert len(strict) == 2
    assert "bound 6 ms" in strict[1]
    assert caveats(*STALL, ("base_rtt_shortest_ms", 20.0), ("limits.lateness_of_rtt", 1.0)) != []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            [("flows_failed", 340), ("flows_completed", 60)],
            "340 of 404 flows failed, bound 10 %",
        ),
        (
            [("flows_failed", 3), ("flows_completed", 400), ("limits.failed_flows", 0.005)],
            "3 of 407 flows failed, bound 0.5 %",
        ),
        ([("ping_lost", 540)], "540 of 540 pings were lost, and the links on their path dropped 0.20% of all packets"),
        ([("ping_sent", 538)], "only 538 of 600 planned pings were sent; at least 90 % must be"),
        (
            [("transfer_received_bytes", None), ("transfer_complete", None)],
            "the transfer of 10000000 bytes left no result within 50 s",
        ),
        (
            [("transfer_received_bytes", 0), ("transfer_complete", False)],
            "no byte of the transfer of 10000000 bytes arrived within 50 s",
        ),
        (
            [("transfer_received_bytes", 0), ("transfer_complete", False), ("transfer_tries", 4)],
            (
                "no byte of the transfer of 10000000 bytes arrived within 50 s; 4 timeouts in succession, "
                "and links lost 0.20% of all packets in both directions: by chance in less than one run of 1,000,000"
            ),
        ),
        (
            [("flow_tries", 41), ("flows_completed", 0), ("flows_cut", 41)],
            (
                "no byte arrived in any of 41 flows, although pings were answered; 41 timeouts, and links lost 0.20% "
                "of all packets in both directions: by chance in less than one run of 1,000,000"
            ),
        ),
        ([("clocks.step_ms", 20_000.0)], "the clock was set by +20.000 s during the measurement, bound 5 ms"),
        ([("clocks.step_ms", -5.5)], "the clock was set by -5.50 ms during the measurement, bound 5 ms"),
        (
            [("clocks.drifts.i1.drift_ms", 51.0)],
            "the clock of i1 drifted by +51.00 ms (± 0.50 ms) during the measurement, bound 50 ms: run chrony there",
        ),
    ],
)
def test_what_was_asked_for_and_not_measured_makes_a_run_invalid(changes: list[tuple[str, Any]], reason: str) -> None:
    (found,) = judged(*changes)
    assert found.startswith(reason)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([("flows_failed", 1)], "1 of 46 flows failed, bound 1 %"),
        (
            [("flows_failed", 2), ("flows_silent", 1)],
            "2 of 47 flows failed (1 given up after the timeout without a byte), bound 1 %",
        ),
        (
            [("flows_failed", 2), ("flows_failed_by", {"ENFILE": 1, "EPIPE": 1})],
            "2 of 47 flows failed, bound 1 %: 1 by ENFILE (too many open files in system), 1 by EPIPE (broken pipe)",
        ),
        ([("flows_failed", 4), ("changes", [CHANGE])], "4 of 49 flows failed"),
        (
            [("flows_failed", 4), ("flows_failed_in_changes", 3), ("changes", [CHANGE])],
            "1 of 49 flows failed, besides 3 in changes, bound 1 %",
        ),
        (
            [("transfer_received_bytes", None), ("transfer_complete", None), ("transfer_room_s", 5.0)],
            "the transfer of 10000000 bytes left no result within 5 s",
        ),
        ([("ping_lost", 60)], "60 of 540 pings were lost"),
        # An outage is no fault of the run, but nothing of a kind got through.
        (
            [("ping_lost", 540), ("ping_path_loss", 0.6)],
            "540 of 540 pings were lost, and the links on their path dropped 60.00%",
        ),
        (
            [("flow_tries", 41), ("ping_sent", 2), ("ping_lost", 2), ("ping_planned", 2)],
            "no byte arrived in any of 45 flows, and no ping was answered",
        ),
        (
            [("udp", {"sent_mbit_s": 1.0, "rate_bit_s": 10**6, "sent_packets": 9, "received_packets": 0})],
            "none of 9 UDP packets arrived",
        ),
        (
            [("ping_lost", 200), ("ping_blocked_share", 0.1)],
            "dropped 0.20% of all packets and were blocked for 10.00% of the time, bound 11.40%",
        ),
        (
            [("silences", [{**SILENCE, "never": True, "from_s": 0.6, "to_s": 5.0, "tries": 1, "successive": 1}])],
            (
                "no TCP payload reached i2 from 0.6 s to 5.0 s, though 2 channels waited, the longest for 1 timeout: "
                "too short to judge"
            ),
        ),
        ([("silences", [{**SILENCE, "tries": 4}]), ("path_loss", 0.02)], "by chance in one run of 10,000 at most"),
        ([("transfer_received_bytes", 4711), ("transfer_complete", False)], "4711 of 10000000 bytes arrived"),
        (
            [("transfer_received_bytes", 0), ("transfer_complete", False), ("transfer_room_s", 5.0)],
            "no byte of the transfer of 10000000 bytes arrived within 5 s",
        ),
        (
            [
                ("transfer_received_bytes", 0),
                ("transfer_complete", False),
                ("transfer_tries", 4),
                ("path_loss", 0.1),
                ("transfer_failure", "transfer-receive failed: timed out (exit status 1)"),
            ],
            (
                "4 timeouts in succession, and links lost 10.00% of all packets in both directions: by chance in one "
                "run of 32 at most; transfer-receive failed: timed out (exit status 1)"
            ),
        ),
        (
            [("transfer_received_bytes", 0), ("transfer_complete", False), ("transfer_tries", 0)],
            "0 timeouts in succession, and links lost 0.20% of all packets in both directions: too short to judge",
        ),
        (
            [("flow_tries", 41), ("path_loss", 0.3)],
            "in both directions: the links lost too many packets to judge",
        ),
        ([("flow_tries", 2)], "no byte arrived in any of 45 flows, although pings were answered; 2 timeouts, and"),
        (
            [("transfer_received_bytes", 0), ("transfer_complete", False), ("transfer_tries", 2)],
            "2 timeouts in succession",
        ),
        (
            [
                ("transfer_received_bytes", 4711),
                ("transfer_complete", False),
                ("transfer_failure", "transfer-receive failed: connection reset (exit status 1)"),
            ],
            "4711 of 10000000 bytes arrived; transfer-receive failed: connection reset (exit status 1)",
        ),
        ([("clocks.step_ms", 0.2)], "the clock was set by +0.20 ms"),
        ([("clocks.drifts.i1.drift_ms", -1.6)], "the clock of i1 drifted by -1.60 ms"),
    ],
)
def test_what_can_be_read_with_its_figure_is_a_caveat(changes: list[tuple[str, Any]], words: str) -> None:
    (found,) = caveats(*changes)
    assert words in found


@pytest.mark.parametrize(
    "changes",
    [
        [("flows_failed", 4), ("flows_failed_in_changes", 4), ("changes", [CHANGE])],
        [("ping_sent", 2), ("ping_lost", 2), ("ping_planned", 2)],  # two of two are lost by chance
        [("ping_lost", 60), ("ping_blocked_share", 0.1)],  # likewise, while TCP sent little
        [("clocks", None)],
        [("transfer_bytes", None), ("transfer_complete", None), ("transfer_received_bytes", None)],
    ],
)
def test_what_chance_or_the_experiment_explains_is_no_finding(changes: list[tuple[str, Any]]) -> None:
    assert found(*changes) == []


def ended(counted: int, completed: int) -> tuple[str, Any]:
    return "ended_connections", {"pep-w": {"kind": "pep", "counted": counted, "completed": completed}}


def test_a_pep_that_its_packets_bypass_makes_the_run_invalid() -> None:
    """Connections that were established before the measurement are not missing: one for each of the four channels."""
    assert judged(ended(0, 1)) == [
        (
            "PEP_BYPASSED: pep-w saw no connection, but 1 TCP connection on chains through pep-w completed: traffic "
            "bypasses it"
        )
    ]
    accelerator = {"kind": "tcp-accelerator", "counted": 0, "completed": 1}
    (reason,) = judged(("ended_connections", {"acc-w": accelerator}))
    assert reason.startswith("TCP_ACCELERATOR_BYPASSED: acc-w saw no connection")
    assert caveats(ended(0, 0)) == []
    assert caveats(ended(37, 41)) == []
    assert caveats(ended(36, 41)) == [
        "pep-w saw 36 connections, but 41 on chains through pep-w completed: some bypassed it"
    ]


def test_the_direction_to_the_world_is_judged_as_the_other_one() -> None:
    """Of runs with uploads; a server that only receives is not unseen."""
    link = {"rate_bit_s": 4_000_000, "least_rate_bit_s": 4_000_000, "windows_over_rate": 0}
    figures: dict[str, Any] = {
        "links": {"sat": {**link, "scheduled_windows_over_rate": 0}},
        "stretches": [],
        "payload": None,
        "loss_bytes_captures": 10,
        "loss_bytes_link": 10,
        "servers": VALID["servers"],
        "flow_packets": {"all": {"flows": 41}},
    }
    received = {name: {**volume, "goodput_bytes": 0} for name, volume in VALID["servers"].items()}
    run = {**VALID, "servers": received, "flow_packets": {}, "to_world": figures}
    assert judge(cast("Summary", run)) == judge(cast("Summary", VALID))
    for key, text in (
        ({"servers": received}, "the captures have no TCP payload to w1, w2, although 41 flows had some"),
        ({"loss_bytes_captures": 7}, "to the world, captures show a loss of 7 bytes, links counted 10 bytes"),
        (
            {"loss_bytes_captures": -7},
            "to the world, packets were added between world and island: world captured 7 bytes",
        ),
        (
            {"links": {"sat": {**figures["links"]["sat"], "windows_over_rate": 2}}},
            "to the world, sat: the capture behind",
        ),
    ):
        findings = judge(cast("Summary", {**run, "to_world": {**figures, **key}}))
        assert [finding.text for finding in findings if finding.text.startswith(text)], findings
