# SPDX-License-Identifier: Apache-2.0
"""Achieved rate: packets of 1500 bytes at 1.05 times the rate, stamped behind the box for ten seconds.

The queue holds 0.1 s of the rate, so that it never runs empty while the sender is held up for less.
"""

from linkbench import ideal, probe
from linkbench.boxes import MTU, LinkSettings, link
from linkbench.link_lab import ISLAND, WORLD
from linkbench.measurement import MBIT, MS, CaseFigures, ip_bytes, of_mark, times_ns

RATES = {f"{rate} Mbit/s": rate * MBIT for rate in (8, 16, 64, 320, 1000)}

_OVERLOAD = 1.05
_QUEUE_S = 0.1
_DELAY_NS = 20 * MS
_BURST_NS = 200_000  # of the sender, above 60 packets a millisecond; far below the size of the queue


def measure(kind: str, case: str, seconds: float, seed: int) -> CaseFigures:
    """One run of one case."""
    rate_bit_s = RATES[case]
    way = LinkSettings(rate_bit_s, _DELAY_NS, round(rate_bit_s * _QUEUE_S / 8))
    back = LinkSettings(10 * MBIT, _DELAY_NS, 100_000)
    flow = probe.ProbeFlow(WORLD, MTU, round(rate_bit_s * _OVERLOAD), seconds, burst_ns=_BURST_NS, seed=seed)
    with link(kind, way, back) as box:
        box.mark()
        passed = probe.run([flow], {"out": ISLAND}, settle_s=0.5)
        mark = box.mark()
    left = passed.captured["out"]
    base_ns = int(left["t_ns"][0])
    times, sizes = times_ns(left, base_ns), ip_bytes(left)
    windows = ideal.windows(times, sizes, rate_bit_s)
    mean_bit_s = ideal.mean_rate_bit_s(times, sizes)
    figures = {
        "mean_mbit_s": mean_bit_s / 1e6,
        "error_percent": 100 * abs(mean_bit_s / rate_bit_s - 1),
        "window_over_packets": windows.most_over_bits / (8 * MTU),
        "window_under_packets": windows.most_under_bits / (8 * MTU),
        "sender_held_up_ms": passed.sent[0]["shifted_ns"] / 1e6,
    }
    box = of_mark(mark, "to_island")
    box.pop("box_dropped_packets", None)  # intended: more is offered than passes
    if mark and box:
        ours = mark["to_island"]
        allowed = 2 + rate_bit_s * ours["lateness_max_ns"] / 1e9 / (8 * MTU)
        box |= {
            "window_allowed_packets": allowed,
            "window_beyond_packets": max(0.0, windows.most_over_bits / (8 * MTU) - allowed,
                                         windows.most_under_bits / (8 * MTU) - allowed),
            "scheduled_windows_over_rate": float(ours["scheduled_windows_over_rate"]),
        }  # fmt: skip
    shares = [round(float(bits / (rate_bit_s * 0.1)), 6) for bits in windows.bits]
    return CaseFigures(figures | box, {"window_share": shares})
