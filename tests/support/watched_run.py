# SPDX-License-Identifier: Apache-2.0
"""A run directory as runs write it, made in a moment: a request, events, a spool that ends when one says so."""

import json
import os
import time
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import Appender
from atoll_core.description.loader import load_experiment
from atoll_core.platforms import MININET
from atoll_testbed.metrics.metrics_recorder import MetricsRecorder
from atoll_testbed.run.run_request import RunOptions, RunRequest, create_run

ROOT = Path(__file__).resolve().parents[2]
BEGAN_S = 1_795_276_328
SECOND_NS = 10**9


class WatchedRun:
    """A run that began ``later_s`` after 2026-11-21 15:52:08 UTC, and writes when it is told to."""

    def __init__(
        self, runs: Path, experiment: str = "geo", later_s: int = 0, place: str = MININET, *, metrics: bool = True
    ) -> None:
        network, described = load_experiment(ROOT / "examples" / f"{experiment}.yaml")
        self.began_ns = (BEGAN_S + later_s) * SECOND_NS
        request = RunRequest(network, described, place, RunOptions(metrics=metrics))
        self.dir: RunDir = create_run(runs, request, self.began_ns)
        self.dir.update_manifest({"started_ns": self.began_ns})
        self.id = f"{experiment}-{self.dir.name}"
        self._metering = MetricsRecorder(self.dir, network, described)
        self._counted = Appender(self.dir.path / "link.jsonl")

    def second(self, number: int, points: int = 3, **counted: int) -> None:
        """The counters of one second, as a frame of the spool of their own; ``counted``: more of the same direction."""
        for index in range(points):
            t_ns = self.began_ns + number * SECOND_NS + index * 100_000_000
            line = {"type": "counters", "t_ns": t_ns, "to_island": {"in_packets": 10 * number + index, **counted}}
            self._metering.record_box_line("sat", line)
            self._counted.append(json.dumps({"box": "sat", **line}).encode() + b"\n")
        self._metering.flush()

    def event(self, kind: str, at_s: float, **fields: Any) -> None:
        t_ns = self.began_ns + int(at_s * SECOND_NS)
        self.dir.append_event(kind, t_ns, **fields)
        self._metering.event(kind, t_ns, fields)

    def end(self, outcome: str = "completed") -> None:
        self._metering.close()
        self._counted.close()
        self.dir.close()
        self.dir.update_manifest({"outcome": outcome})

    def age(self, seconds: float) -> None:
        """As if nothing had been written for so long."""
        then = time.time() - seconds
        for path in self.dir.path.rglob("*"):
            os.utime(path, (then, then))
