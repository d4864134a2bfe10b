# SPDX-License-Identifier: Apache-2.0
"""The tolerance of tests in real time excuses a busy machine, and nothing else."""

from typing import Any

import pytest

from tests.support.sandbox import faults


def summary(*findings: tuple[str, str], rtt_ms: float = 5.0) -> dict[str, Any]:
    """A summary with these reasons and their codes, and one server."""
    return {
        "reason_codes": [code for code, _ in findings],
        "reasons": [text for _, text in findings],
        "terrestrial_rtt_ms": {"w1": {"configured": 5.0, "measured": rtt_ms, "tolerance": 0.6}},
    }


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("UNKNOWN_VLAN", "a delay box dropped 4 packets whose VLAN tag belongs to no latency class, bound 0"),
        ("CAPTURE_TRUNCATED", "capture island ends within a packet: later packets are missing"),
        ("TERRESTRIAL_RTT", "terrestrial RTT of w1 is 2.50 ms, configured 5 ms ± 0.60 ms"),
    ],
)
def test_a_reason_that_is_not_of_a_busy_machine_is_a_fault(code: str, reason: str) -> None:
    late = ("DEPARTURE_LATE", "a departure was 60.00 ms late, bound 50 ms: the machine was too busy")
    assert faults(summary(late, (code, reason))) == [reason]


def test_the_rtt_of_another_latency_class_is_a_fault_however_much_pings_scatter() -> None:
    scattered = ("TERRESTRIAL_RTT_SCATTER", "terrestrial RTT of w1 is 20.01 ms, configured 5 ms ± 0.60 ms")
    assert faults(summary(scattered, rtt_ms=20.01)) != []
    assert faults(summary(scattered, rtt_ms=7.0)) == []


def test_lateness_is_no_fault() -> None:
    late = ("DEPARTURE_LATE", "a departure was 60.00 ms late, bound 50 ms: the machine was too busy")
    assert faults(summary(late)) == []
