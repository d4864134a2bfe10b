# SPDX-License-Identifier: Apache-2.0
"""Added-delay error: the difference between each packet's time in the box and in an ideal link.

Poisson arrivals on a link of 1 Gbit/s with 2 ms of delay. Both stamps are the kernel's: when the frame reaches the
box's interface from the world, and when it has reached the island's. The sending host's wake-ups and system calls lie
before the first stamp, the receiving program after the second one; the box's own system call and one crossing of a
cable's software (some 2 us) lie between.
"""

import numpy as np

from atoll_core.errors import LabError
from linkbench import ideal, probe
from linkbench.boxes import LinkSettings, link
from linkbench.link_lab import AT_BOX_FROM_WORLD, ISLAND, WORLD
from linkbench.measurement import MBIT, MS, CaseFigures, ip_bytes, of_mark, times_ns

LINK = LinkSettings(1000 * MBIT, 2 * MS, 4_000_000)

LOADS = {"idle": (84, 67_200), "16 Mbit/s": (1500, 16 * MBIT), "320 Mbit/s": (1500, 320 * MBIT)}
"""Packet size and mean rate by case. Idle: packets as of `ping`, every 10 ms."""


def measure(kind: str, case: str, seconds: float, seed: int) -> CaseFigures:
    """One run of one case."""
    packet_bytes, rate_bit_s = LOADS[case]
    flow = probe.ProbeFlow(WORLD, packet_bytes, rate_bit_s, seconds, gaps="exponential", seed=seed)
    with link(kind, LINK, LINK) as box:
        box.mark()
        cpu_s = box.cpu_s()
        passed = probe.run([flow], {"in": AT_BOX_FROM_WORLD, "out": ISLAND})
        cpu_s = box.cpu_s() - cpu_s
        mark = box.mark()
    errors_ns, lost = errors(passed, LINK)
    figures = ideal.summary_us(errors_ns) | {
        "lost_packets": float(lost),
        "sender_late_p99_us": passed.sent[0]["late_p99_ns"] / 1e3,
        "sender_late_max_us": passed.sent[0]["late_max_ns"] / 1e3,
        "box_cpu_percent": 100 * cpu_s / (passed.sent[0]["duration_ns"] / 1e9),
    }
    return CaseFigures(figures | of_mark(mark, "to_island"), {"error": ideal.distribution_us(errors_ns)})


def errors(passed: probe.ProbeResult, way: LinkSettings) -> tuple[ideal.Times, int]:
    """Departure less ideal departure of each packet that came out, and how many did not. Raises LabError."""
    came, left = passed.captured["in"], passed.captured["out"]
    if passed.lost or not left.size:
        raise LabError(f"the captures lost {passed.lost} frames of {came.size}: errors cannot be computed")
    base_ns = int(came["t_ns"][0])
    ideal_ns = ideal.departures_ns(times_ns(came, base_ns), ip_bytes(came), way.rate_bit_s, way.delay_ns)
    by_seq = np.full(int(came["seq"].max()) + 1, np.nan)
    by_seq[came["seq"].astype(np.int64)] = ideal_ns
    errors_ns = times_ns(left, base_ns) - by_seq[left["seq"].astype(np.int64)]
    return errors_ns, int(came.size - left.size)
