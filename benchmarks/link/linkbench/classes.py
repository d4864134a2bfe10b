# SPDX-License-Identifier: Apache-2.0
"""64 delay classes on one delay box, 200 Mbit/s in all: each class's error, as `delay` has it for a link."""

import numpy as np

from atoll_core.errors import LabError
from linkbench import ideal, probe
from linkbench.boxes import delay_box
from linkbench.link_lab import TRUNK_BOX, TRUNK_HOST
from linkbench.measurement import MBIT, MS, CaseFigures, times_ns

CASE = "64 classes, 200 Mbit/s"

# From 2 to 254 ms each way, not in step with the times between packets.
CLASSES_NS = {101 + number: 2 * MS + number * 4 * MS + number * 1009 for number in range(64)}


def measure(kind: str, case: str, seconds: float, seed: int) -> CaseFigures:  # noqa: ARG001 there is one of each
    """One run: the mean and 99th percentile of the worst classes."""
    flow = probe.ProbeFlow(
        TRUNK_HOST, 1500, 200 * MBIT, seconds, gaps="exponential", vlans=tuple(CLASSES_NS), seed=seed
    )
    with delay_box(CLASSES_NS) as box:
        box.mark()
        cpu_s = box.cpu_s()
        passed = probe.run([flow], {"in": TRUNK_BOX, "out": TRUNK_HOST})
        cpu_s = box.cpu_s() - cpu_s
        mark = box.mark()
    came, left = passed.captured["in"], passed.captured["out"]
    if passed.lost or not left.size or mark is None:
        raise LabError(f"the captures lost {passed.lost} frames of {came.size}: errors cannot be computed")
    base_ns = int(came["t_ns"][0])
    delays_ns = np.zeros(4096)
    delays_ns[list(CLASSES_NS)] = list(CLASSES_NS.values())
    due_ns = np.full(int(came["seq"].max()) + 1, np.nan)
    due_ns[came["seq"].astype(np.int64)] = times_ns(came, base_ns) + delays_ns[came["vlan"]]
    errors_ns = times_ns(left, base_ns) - due_ns[left["seq"].astype(np.int64)]
    each = [ideal.summary_us(errors_ns[left["vlan"] == vlan]) for vlan in CLASSES_NS]
    classes = mark["classes"].values()
    figures = {
        "mean_us": float(np.abs(errors_ns).mean() / 1e3),
        "p99_us": float(np.quantile(np.abs(errors_ns), 0.99) / 1e3),
        "max_us": float(np.abs(errors_ns).max() / 1e3),
        "worst_class_mean_us": max(summary["mean_us"] for summary in each),
        "worst_class_p99_us": max(summary["p99_us"] for summary in each),
        "median_class_p99_us": float(np.median([summary["p99_us"] for summary in each])),
        "lost_packets": float(came.size - left.size),
        "box_cpu_percent": 100 * cpu_s / (passed.sent[0]["duration_ns"] / 1e9),
        "box_lateness_p99_us": max(own["lateness_p99_ns"] for own in classes) / 1e3,
        "box_lateness_max_us": max(own["lateness_max_ns"] for own in classes) / 1e3,
        "box_overloaded": float(mark["overloaded"]),
    }
    return CaseFigures(figures, {"error": ideal.distribution_us(errors_ns)})
