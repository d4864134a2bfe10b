# SPDX-License-Identifier: Apache-2.0
"""Short runs of the demo experiment whose metrics several tests load into databases."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory.metrics_spool import SPOOL, read_spool
from atoll_core.metrics.line_protocol import MetricPoint
from tests.support.influx_servers import Identity, Typed
from tests.support.sandbox import ATOLL, GEO, ROOT, Sandbox

_CHANGES = """
changes:
  - {at: 1 s, chain: [tap-w, pep-w, coder-w, sat, coder-i, tap-i]}
  - {at: 5 s, latency: {w1: rtt-50}}
"""
_SERIES = re.compile(r"(?:\\.|[^\\ ])+")
_TYPES = {int: "integer", float: "float", str: "string", bool: "boolean"}
_STEP = re.compile(r"(?<!\\),")


@dataclass(frozen=True)
class Made:
    """A run of the demo experiment."""

    path: Path

    @property
    def run(self) -> str:
        return f"geo-{self.path.name}"

    @property
    def lines(self) -> list[str]:
        return list(read_spool(self.path / SPOOL))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "events.jsonl").read_text().splitlines()]


def recorded(lines: Iterable[str], *by_ns: int) -> dict[Identity, dict[str, Typed]]:
    """The points of lines as ``influx_servers.points`` has them, each at so much from its instant, ns."""
    found: dict[Identity, dict[str, Typed]] = {}
    for line in lines:
        fields = {name: (_TYPES[type(figure)], figure) for name, figure in MetricPoint.parse(line).fields.items()}
        found |= {identity(line, shift): fields for shift in by_ns or (0,)}
    return found


def identity(line: str, by_ns: int = 0) -> Identity:
    """What makes a line a point of its own: measurement, tags, instant."""
    series = _SERIES.match(line)
    assert series is not None
    measurement, *tags = _STEP.split(series.group())
    pairs = (re.split(r"(?<!\\)=", tag, maxsplit=1) for tag in tags)
    plain = tuple(sorted((re.sub(r"\\(.)", r"\1", name), re.sub(r"\\(.)", r"\1", text)) for name, text in pairs))
    return measurement, plain, int(line.rpartition(" ")[2]) + by_ns


def changed_run(directory: Path) -> Made:
    """Make one, in a sandbox, in which chain and latency change; whose database is never there, which it notes.

    The new chain has a PEP and coders, so that kinds of boxes have points, too, and the link has low-priority queues
    for the coders' repair packets. The transfer begins after the change, which would reset it.
    """
    lab = ROOT / "emulation/labs/island.yaml"
    kinds = {"pep-w": "pep", "coder-w": "coder", "coder-i": "coder"}
    text = lab.read_text()
    for box, kind in kinds.items():
        text = text.replace(f"{box}: {{kind: router", f"{box}: {{kind: {kind}")
    (directory / "lab.yaml").write_text(text)
    experiment = directory / "geo.yaml"
    described = GEO.read_text().replace("../emulation/labs/island.yaml", "lab.yaml")
    described = described.replace("start: 10 s", "start: 4 s")
    described = described.replace("queue: 100 kB", "queue: 100 kB, low_priority: 100 kB")
    experiment.write_text(described + _CHANGES)
    with Sandbox(directory) as sandbox:
        away = "ATOLL_INFLUX_URL=http://127.0.0.1:9"
        run = sandbox.run("env", away, ATOLL, "run", experiment, "--duration", "8 s", "--no-analysis", "--json")
    assert run.returncode == 0, run.stderr
    return Made(Path(json.loads(run.stdout)["run_dir"]))
