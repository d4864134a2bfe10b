# SPDX-License-Identifier: Apache-2.0
"""The points of a large laboratory, into a spool at their pace: ``metricsbench.producing DIRECTORY RATE SECONDS``.

140 hosts, each with the RTTs to so many others that all of them have the wanted number of points ten times a second.
Prints one JSON object: points, the CPU time they took, by how much the last of them was late.
"""

import json
import sys
import time
from pathlib import Path

from atoll_analysis.run_directory import MetricsSpool
from atoll_analysis.run_directory.metrics_spool import SPOOL
from atoll_core.metrics.line_protocol import MetricPoint

HOSTS = 140
_TICKS = 10  # a second


def tags_of(rate: int) -> list[dict[str, str]]:
    """The tags of each series."""
    common = {"testbed": "large", "place": "hardware", "experiment": "bench", "run": "bench-20260102T030405Z-1"}
    each = rate // _TICKS
    return [{"host": f"i{number % HOSTS}", "target": f"w{number // HOSTS}", **common} for number in range(each)]


def main(directory: Path, rate: int, seconds: float) -> None:
    """Write the points, then print the cost."""
    series = tags_of(rate)
    spool = MetricsSpool(directory / SPOOL)
    begin, begin_ns = time.monotonic(), time.time_ns()
    late_s = 0.0
    ticks = int(seconds * _TICKS)
    for tick in range(ticks):
        due = begin + tick / _TICKS
        time.sleep(max(0.0, due - time.monotonic()))
        late_s = time.monotonic() - due
        t_ns = begin_ns + tick * 1_000_000_000 // _TICKS
        spool.write(
            MetricPoint("ping", tags, {"rtt_ns": 500_000_000 + 977 * tick + number, "lost": 0, "seq": tick}, t_ns)
            for number, tags in enumerate(series)
        )
    spool.close()
    print(json.dumps({"points": spool.points, "cpu_s": time.process_time(), "late_s": late_s}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
