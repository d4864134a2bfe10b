# SPDX-License-Identifier: Apache-2.0
"""UDP traffic: figures from the last reports of sender and receiver."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from atoll_analysis.tables.job_logs import last_line, udp_receiver_logs
from atoll_analysis.verdict.findings import Finding, FindingCode, caveat, reason
from atoll_core.plural import counted
from atoll_core.units import Rate, Size

RATE_TOLERANCE = 0.01
"""The sender keeps its rate within 1 %, or a packet if that is more; else the run is not the configured one."""


class UdpVolume(TypedDict):
    """What one of several receivers got."""

    received_bytes: int | None  # IP bytes; None: not reported
    share: float | None  # its share in the total of all receivers; None: not all of them reported
    # by sequence numbers, so without what was lost at the end of a flow; None: not reported, or nothing arrived
    loss_fraction: float | None


class UdpFigures(TypedDict):
    """UDP towards the island; bytes are IP bytes. None: not reported."""

    rate_bit_s: int  # mean rate that the experiment asks for
    # largest difference of the rate sent that is allowed: 1 %, or a packet in the time if that is more
    tolerance_bit_s: NotRequired[int]
    sent_mbit_s: float | None  # rate sent, over the time that the experiment asks for
    received_mbit_s: float | None  # rate received, over the same time
    receivers: NotRequired[int]  # number of hosts that received the flows in turn
    clients: NotRequired[dict[str, UdpVolume]]  # by name; absent: a single host received all
    sent_packets: int | None  # packets sent
    received_packets: int | None  # packets received
    lost_packets: int | None  # packets sent and not received, whatever the reason
    loss_fraction: float | None  # the same as a share of the packets sent
    reordered_packets: int | None  # packets that came after a later one of the same flow
    jitter_ms: float | None  # interarrival jitter at the end (RFC 3550), largest of all receivers
    jitter_max_ms: float | None  # largest interarrival jitter
    flows_completed: int | None  # flows completed; None: one constant stream, or not reported


def udp_figures(packet: Size, configured: Rate, seconds: float, logs: Path) -> UdpFigures:
    """Return the figures of UDP packets that were sent for a number of seconds, at the configured rate on average."""
    sent = last_line(logs / "udp-send.out", "done") or {}
    by_host = {host: last_line(log, "done") or {} for host, log in udp_receiver_logs(logs).items()}
    received = list(by_host.values())
    sent_packets, received_packets = sent.get("sent_packets"), _total(received, "packets")
    lost = sent_packets - received_packets if sent_packets is not None and received_packets is not None else None
    figures = UdpFigures(
        rate_bit_s=configured.bit_s,
        tolerance_bit_s=math.ceil(max(RATE_TOLERANCE * configured.bit_s, 8 * packet.bytes / seconds)),
        sent_mbit_s=_mbit_s(sent.get("sent_bytes"), seconds),
        received_mbit_s=_mbit_s(_total(received, "bytes"), seconds),
        receivers=len(received),
        sent_packets=sent_packets,
        received_packets=received_packets,
        lost_packets=lost,
        loss_fraction=lost / sent_packets if lost is not None and sent_packets else None,
        reordered_packets=_total(received, "reordered_packets"),
        jitter_ms=_largest_ms(received, "jitter_ns"),
        jitter_max_ms=_largest_ms(received, "jitter_max_ns"),
        flows_completed=sent.get("flows_completed"),
    )
    if len(by_host) > 1:
        total = _total(received, "bytes")
        figures["clients"] = {host: _volume(report, total) for host, report in by_host.items()}
    return figures


def _volume(report: Mapping[str, Any], total_bytes: int | None) -> UdpVolume:
    received, lost = report.get("bytes"), report.get("lost_packets")
    return UdpVolume(
        received_bytes=received,
        share=received / total_bytes if received is not None and total_bytes else None,
        loss_fraction=lost / (lost + report["packets"]) if lost is not None and lost + report["packets"] else None,
    )


def judge_udp(udp: UdpFigures | None) -> Iterator[Finding]:
    """Return findings if the sender did not keep its rate, or no packet arrived."""
    if udp is None:
        return
    sent, configured = udp["sent_mbit_s"], udp["rate_bit_s"] / 1e6
    tolerance = udp.get("tolerance_bit_s", RATE_TOLERANCE * udp["rate_bit_s"]) / udp["rate_bit_s"]  # older: no key
    if sent is None:
        yield reason(FindingCode.UDP_UNREPORTED, "the UDP sender did not report how many bytes it sent")
    elif abs(sent / configured - 1) > tolerance:
        text = f"UDP was sent at {sent:.4g} Mbit/s, asked for {configured:g} Mbit/s ± {100 * tolerance:.3g}%"
        yield reason(FindingCode.UDP_RATE, text)
    if (packets := udp.get("sent_packets")) and udp.get("received_packets") == 0:
        yield caveat(FindingCode.UDP_LOST, f"none of {counted(packets, 'UDP packet')} arrived")


def _mbit_s(octets: int | None, seconds: float) -> float | None:
    return 8 * octets / seconds / 1e6 if octets is not None and seconds > 0 else None


def _total(reports: Sequence[Mapping[str, Any]], key: str) -> int | None:
    """The sum over all receivers; None if one of them did not report it."""
    counts = [report[key] for report in reports if report.get(key) is not None]
    return sum(counts) if len(counts) == len(reports) > 0 else None


def _largest_ms(reports: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """The largest of all receivers; one that received nothing has none."""
    return max((report[key] / 1e6 for report in reports if report.get(key) is not None), default=None)
