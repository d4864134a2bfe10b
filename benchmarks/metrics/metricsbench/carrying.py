# SPDX-License-Identifier: Apache-2.0
"""The metrics of a large lab through spool and sink: processor time, delay, lost points."""

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory.metrics_spool import SPOOL
from benchkit.machine_facts import describe, in_words
from benchkit.program import part
from tests.support.influx_servers import Influx2

_CATCH_UP_S = 120


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one measurement; ``behind_s``: from the last point to the last one in the database."""

    machine: dict[str, str]
    points: int
    seconds: float
    spool_bytes: int
    spool_cpu_s: float
    sink_cpu_s: float
    behind_s: float
    late_s: float
    delivered: int
    in_database: int


def measure(rate: int, seconds: float, ours: int, theirs: int) -> Figures:
    """Points at a rate into a spool, from there into an InfluxDB on another core; all of it counted."""
    machine = describe()
    with tempfile.TemporaryDirectory(prefix="bench-metrics-") as made:
        directory = Path(made)
        with Influx2(directory / "influx") as influx:
            influx.start(lambda argv: ["taskset", "-c", str(theirs), *(str(word) for word in argv)]).wait().set_up()
            (directory / SPOOL).touch()
            pinned = ["taskset", "-c", str(ours)]
            environment = {**os.environ, **influx.variables()}
            sink = subprocess.Popen(
                [*pinned, *part("atoll_dashboards.influx.influx_sink", made)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            try:
                producing = subprocess.run(
                    [*pinned, *part("metricsbench.producing", made, str(rate), str(seconds))],
                    stdout=subprocess.PIPE,
                    check=True,
                )
                ended = time.monotonic()
                output, _ = sink.communicate(timeout=_CATCH_UP_S)
            finally:
                sink.kill()
            behind_s = time.monotonic() - ended
            sink_cpu_s = _cpu_of_children() - (produced := json.loads(producing.stdout))["cpu_s"]
            messages: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
            counted = influx.series('SELECT count("seq") FROM "ping"')
            return Figures(
                machine=machine,
                points=produced["points"],
                seconds=seconds,
                spool_bytes=(directory / SPOOL).stat().st_size,
                spool_cpu_s=produced["cpu_s"],
                sink_cpu_s=sink_cpu_s,
                behind_s=behind_s,
                late_s=produced["late_s"],
                delivered=messages[-1]["delivered"],
                in_database=counted[0]["values"][0][1],
            )


def table(result: Figures) -> str:
    """The figures for people, as Markdown."""
    rate = result.points / result.seconds
    both = result.spool_cpu_s + result.sink_cpu_s
    return "\n".join(
        (
            in_words(result.machine),
            "",
            "| | |",
            "|---|---:|",
            f"| points, in {result.seconds:g} s | {result.points:,} ({rate:,.0f}/s) |",
            f"| in the database in the end | {result.in_database:,} (missing: {result.points - result.in_database}) |",
            f"| spool | {result.spool_bytes / 1e6:.1f} MB |",
            f"| written, CPU | {result.spool_cpu_s:.1f} s, {result.spool_cpu_s / result.points * 1e6:.1f} us a point |",
            f"| sent, CPU | {result.sink_cpu_s:.1f} s, {result.sink_cpu_s / result.points * 1e6:.1f} us a point |",
            f"| both together | {both / result.seconds:.0%} of one core |",
            f"| the last was written late by | {result.late_s * 1e3:.0f} ms |",
            f"| and all were sent after another | {result.behind_s:.1f} s |",
        )
    )


def _cpu_of_children() -> float:
    """CPU time of those children that have ended: the sink's and the producer's."""
    times = os.times()
    return times.children_user + times.children_system
