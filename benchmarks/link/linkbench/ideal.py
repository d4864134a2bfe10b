# SPDX-License-Identifier: Apache-2.0
"""The departures of an ideal link for given arrivals, and the errors of a real one. Pure.

Times are in ns, sizes in IP bytes. A link: a queue without loss, serialisation at a rate, a propagation delay
(docs/contracts.md). Arrivals are those at the box's own interface, so the behaviour of the sending host is in neither
side of the comparison.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.floating[Any]]


def departures_ns(arrivals_ns: Times, packet_bytes: NDArray[np.int64], rate_bit_s: int, delay_ns: int) -> Times:
    """When each packet leaves, none being lost: Lindley's recursion (1952) in closed form.

    Packet i is through when the busiest run of packets that ends with it is: max over j <= i of its arrival plus
    the serialisation of j..i.
    """
    service_ns = packet_bytes * (8e9 / rate_bit_s)
    through_ns = np.cumsum(service_ns)
    begin_ns = np.maximum.accumulate(arrivals_ns - (through_ns - service_ns))
    return begin_ns + through_ns + delay_ns


@dataclass(frozen=True, slots=True)
class Windows:
    """How much more and less than the rate passed in any window."""

    most_over_bits: float
    most_under_bits: float
    bits: Times  # of the windows that follow each other from the first departure on


def windows(times_ns: Times, packet_bytes: NDArray[np.int64], rate_bit_s: int, window_ns: int = 100_000_000) -> Windows:
    """Every window that begins with a packet and ends before the last one.

    A window that begins at a departure holds that packet and those after it, so that a perfect link passes the rate
    and up to one packet.
    """
    bits: Times = np.zeros(packet_bytes.size + 1)
    bits[1:] = np.cumsum(packet_bytes * 8.0)
    complete = int((times_ns <= float(times_ns[-1]) - window_ns).sum())
    ends = np.searchsorted(times_ns, times_ns[:complete] + window_ns, side="left")
    deviations = bits[ends] - bits[:complete] - rate_bit_s * window_ns / 1e9
    edges: Times = np.arange(float(times_ns[0]), float(times_ns[-1]), float(window_ns))
    at_edges = bits[np.searchsorted(times_ns, edges, side="left")]
    if not deviations.size:
        return Windows(0.0, 0.0, np.diff(at_edges))
    return Windows(float(deviations.max()), float(-deviations.min()), np.diff(at_edges))


def mean_rate_bit_s(times_ns: Times, packet_bytes: NDArray[np.int64]) -> float:
    """From the first departure to the last, without the first's bytes."""
    return float(packet_bytes[1:].sum() * 8e9 / (times_ns[-1] - times_ns[0]))


_SHARES = (*np.linspace(0.0, 0.99, 100), 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0)


def distribution_us(errors_ns: Times) -> dict[str, list[float]]:
    """Quantiles to draw a distribution from."""
    quantiles = np.quantile(errors_ns, _SHARES) / 1e3
    return {"share": [round(float(share), 4) for share in _SHARES], "us": [round(float(us), 2) for us in quantiles]}


def summary_us(errors_ns: Times) -> dict[str, float]:
    """Mean of the errors' amounts, and of those the 50th and 99th percentile and the most."""
    amounts = np.abs(errors_ns) / 1e3
    return {
        "mean_us": float(amounts.mean()),
        "p50_us": float(np.quantile(amounts, 0.5)),
        "p99_us": float(np.quantile(amounts, 0.99)),
        "max_us": float(amounts.max()),
        "early_us": float(max(0.0, -errors_ns.min() / 1e3)),
    }
