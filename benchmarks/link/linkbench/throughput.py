# SPDX-License-Identifier: Apache-2.0
"""Throughput without loss: both directions of a gigabit link, and the smallest frames one way."""

from linkbench import probe
from linkbench.boxes import LinkSettings, link
from linkbench.link_lab import AT_BOX_FROM_ISLAND, AT_BOX_FROM_WORLD, ISLAND, WORLD, LabPort
from linkbench.measurement import MBIT, MS, CaseFigures, of_mark
from linkbench.probe import HEADER_BYTES

GIGABIT = "1514-byte frames, 1000 + 100 Mbit/s"
SMALL = {f"64-byte frames, {kpps} kpps": kpps * 1000 for kpps in (320, 400, 500)}
FASTEST, *BEYOND = SMALL

_DELAY_NS = 250 * MS
_QUEUE_BYTES = 4_000_000
_BURST_NS = 200_000  # of the sender: it wakes 5000 times a second
_WIRE_SHARE = 1500 / 1514  # of the wire's bits, those of IP packets


def measure(kind: str, case: str, seconds: float, seed: int) -> CaseFigures:
    """One run of one case."""
    if case == GIGABIT:
        rates = (1000 * MBIT, 100 * MBIT)
        flows = [
            _flow(port, 1500, round(rate * _WIRE_SHARE), seconds, seed)
            for port, rate in zip((WORLD, ISLAND), rates, strict=True)
        ]
        ways = [LinkSettings(rate, _DELAY_NS, _QUEUE_BYTES) for rate in rates]
    else:
        packet_bytes = 64 - HEADER_BYTES
        flows = [_flow(WORLD, packet_bytes, SMALL[case] * 8 * packet_bytes, seconds, seed)]
        ways = [LinkSettings(10_000 * MBIT, _DELAY_NS, _QUEUE_BYTES)] * 2
    ends = ((AT_BOX_FROM_WORLD, ISLAND), (AT_BOX_FROM_ISLAND, WORLD))[: len(flows)]
    with link(kind, *ways) as box:
        box.mark()
        cpu_s = box.cpu_s()
        before = [_counts(*ports) for ports in ends]
        passed = probe.run(flows, settle_s=1.0)
        after = [_counts(*ports) for ports in ends]
        cpu_s = box.cpu_s() - cpu_s
        mark = box.mark()
    figures: dict[str, float] = {}
    lost = 0
    for way, flow, sent, old, new in zip(("forward", "back"), flows, passed.sent, before, after, strict=False):
        came, left = new[0] - old[0], new[1] - old[1]
        seconds_taken = sent["duration_ns"] / 1e9
        figures[f"{way}_mbit_s"] = left * (flow.packet_bytes + HEADER_BYTES) * 8 / seconds_taken / 1e6
        figures[f"{way}_kpps"] = left / seconds_taken / 1e3
        figures[f"{way}_sent_but_lost_before_box"] = float(sent["frames"] - came)
        lost += came - left
    seconds_taken = max(sent["duration_ns"] for sent in passed.sent) / 1e9
    figures |= {"lost_packets": float(lost), "box_cpu_percent": 100 * cpu_s / seconds_taken}
    figures["sender_held_up_ms"] = max(sent["shifted_ns"] for sent in passed.sent) / 1e6
    return CaseFigures(figures | of_mark(mark, *("to_island", "to_world")[: len(flows)]))


def _flow(port: LabPort, packet_bytes: int, rate_bit_s: int, seconds: float, seed: int) -> probe.ProbeFlow:
    return probe.ProbeFlow(port, packet_bytes, rate_bit_s, seconds, burst_ns=_BURST_NS, seed=seed)


def _counts(before_box: LabPort, behind_box: LabPort) -> tuple[int, int]:
    """Frames that reached the box's interface, and the machine's behind it."""
    return before_box.received(), behind_box.received()
