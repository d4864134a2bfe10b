# SPDX-License-Identifier: Apache-2.0
"""The cost of metrics for the emulator: lateness of departures in pairs of demo runs, with and without metrics.

With them points are spooled, switches and machines are asked for counters once a second, and a sink carries all of it
into an InfluxDB on the same machine. Both runs of a pair are made one after the other on one lab that stays up, and
the one that comes first changes from pair to pair, so that a slow spell of the machine meets both kinds alike.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import comb
from pathlib import Path
from statistics import median
from typing import Any

from atoll_analysis.run_directory.metrics_spool import SPOOL, read_spool
from atoll_core.errors import AtollError
from benchkit.machine_facts import describe
from tests.support.influx_servers import Influx2
from tests.support.sandbox import ATOLL, ROOT, Sandbox

DEMO = ROOT / "examples" / "geo.yaml"
FIGURES = ("p50", "mean", "p99", "max")
_CONFIDENCE = 0.95
_BUCKETS = 16  # of the engine's histograms, to an octave: no bucket is wider than a sixteenth of its upper bound


@dataclass(frozen=True, slots=True)
class Lateness:
    """Of one run's departures, all boxes and directions together. Microseconds behind schedule, by FIGURES."""

    departures: int
    points: int
    figures_us: dict[str, float]


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs of runs: without metrics, with them; of ``seconds`` each."""

    machine: dict[str, str]
    seconds: float
    pairs: list[tuple[Lateness, Lateness]]

    def as_json(self) -> dict[str, Any]:
        """All that was measured."""
        pairs = [{"without": asdict(without), "with": asdict(having)} for without, having in self.pairs]
        return {"machine": self.machine, "seconds": self.seconds, "pairs": pairs}

    def added(self, more: "Found") -> "Found":
        """Both together, as of the later machine. Raises AtollError for runs of another length."""
        if more.seconds != self.seconds:
            raise AtollError(
                f"runs of {more.seconds:g} s cannot be added to those of {self.seconds:g} s; store them apart"
            )
        return Found(more.machine, self.seconds, [*self.pairs, *more.pairs])


def load(path: Path) -> Found:
    """Read the output of :meth:`Found.as_json`. Raises AtollError for any other file."""
    try:
        stored = json.loads(path.read_text())
        pairs = [(Lateness(**pair["without"]), Lateness(**pair["with"])) for pair in stored["pairs"]]
        return Found(stored["machine"], stored["seconds"], pairs)
    except (ValueError, KeyError, TypeError):
        raise AtollError(f"{path}: no results of this benchmark; name another file") from None


def measure(pairs: int, seconds: float, say: Callable[[str], None]) -> Found:
    """Make the runs. Raises AtollError when one fails."""
    machine = describe()
    with tempfile.TemporaryDirectory(prefix="bench-metrics-") as made:
        directory = Path(made)
        with Sandbox(directory) as sandbox, Influx2(directory / "influx") as influx:
            influx.start().wait().set_up()
            influx.kill()
            influx.start(sandbox.command)
            variables = [f"{name}={text}" for name, text in influx.variables().items()]
            up = sandbox.run("env", *variables, ATOLL, "up", DEMO)
            if up.returncode != 0:
                raise AtollError(_last(up.stderr))
            measured: list[tuple[Lateness, Lateness]] = []
            for number in range(pairs):
                order = (False, True) if number % 2 == 0 else (True, False)
                runs = {having: _run(sandbox, seconds, metrics=having) for having in order}
                measured.append((runs[False], runs[True]))
                say(f"pair {number + 1} of {pairs}: {_brief(runs[False])} without, {_brief(runs[True])} with")
            sandbox.run(ATOLL, "down", limit_s=30)
    return Found(machine, seconds, measured)


def _run(sandbox: Sandbox, seconds: float, *, metrics: bool) -> Lateness:
    options = ["--duration", f"{seconds:g} s", "--set", "transfer.start=1 s", "--no-analysis", "--json"]
    options += [] if metrics else ["--no-metrics"]
    done = sandbox.run(ATOLL, "run", DEMO, *options, limit_s=seconds + 100)
    if done.returncode != 0:
        raise AtollError(_last(done.stderr))
    return lateness_of(Path(json.loads(done.stdout)["run_dir"]))


def lateness_of(run: Path) -> Lateness:
    """The boxes' last report of a run. Raises AtollError if there is none."""
    counts: Counter[int] = Counter()
    latest_ns = 0
    for line in map(json.loads, (run / "link.jsonl").read_text().splitlines()):
        if line.get("mark") == "end":
            for part in (
                *line.get("classes", {}).values(),
                *(line[way] for way in ("to_island", "to_world") if way in line),
            ):
                latest_ns = max(latest_ns, part["lateness_max_ns"])
                for upper_ns, count in part["lateness_histogram"]:
                    counts[upper_ns] += count
    if not counts:
        raise AtollError(f"{run}: its boxes report no lateness; use the link engine")
    buckets = sorted(counts.items())
    quantiles = {name: _quantile(buckets, share) / 1e3 for name, share in (("p50", 0.5), ("p99", 0.99))}
    mean_us = sum((_lower(upper) + upper) / 2 * count for upper, count in buckets) / counts.total() / 1e3
    points = sum(1 for _ in read_spool(run / SPOOL)) if (run / SPOOL).exists() else 0
    return Lateness(counts.total(), points, {**quantiles, "mean": mean_us, "max": latest_ns / 1e3})


def _lower(upper_ns: int) -> float:
    return upper_ns * (1 - 1 / _BUCKETS)


def _quantile(buckets: Sequence[tuple[int, int]], share: float) -> float:
    """The share's quantile, ns: as if counts were spread evenly over their bucket."""
    left = share * sum(count for _, count in buckets)
    for upper_ns, count in buckets:
        if count >= left:
            return _lower(upper_ns) + (upper_ns - _lower(upper_ns)) * left / count
        left -= count
    return float(buckets[-1][0])


def interval(ratios: Sequence[float], confidence: float = _CONFIDENCE) -> tuple[float, float] | None:
    """Between which of them their median lies with that confidence, whatever their distribution; None: too few.

    By order statistics: that fewer than k of n lie below the median has the probability of fewer than k heads.
    """
    ordered, n = sorted(ratios), len(ratios)
    outside = 0.0
    best = None
    for k in range(n // 2):
        outside += 2 * comb(n, k) / 2**n
        if 1 - outside < confidence:
            break
        best = ordered[k], ordered[n - 1 - k]
    return best


def table(runs: Found) -> str:
    """The figures as Markdown."""
    facts = runs.machine
    departures = median(run.departures for pair in runs.pairs for run in pair)
    points = median(having.points for _, having in runs.pairs)
    what = (
        f"{len(runs.pairs)} pairs of runs of {runs.seconds:g} s, {departures:.0f} departures and, with metrics, "
        f"{points:.0f} points each; {facts['cpu']}, {facts['cores']} cores, {facts['date']}, "
        f"revision {facts['revision']}, load average {facts['load_average']}."
    )
    head = ("lateness", "without metrics, us", "with metrics, us", "with / without, median of pairs")
    lines = [what, "", f"| {' | '.join(head)} | {_CONFIDENCE:.0%} interval |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {name} | {' | '.join(_cells(name, runs.pairs))} |" for name in FIGURES]
    return "\n".join(lines)


def _cells(name: str, pairs: Sequence[tuple[Lateness, Lateness]]) -> Iterator[str]:
    for kind in (0, 1):
        figures = [pair[kind].figures_us[name] for pair in pairs]
        yield f"{median(figures):.1f} ({min(figures):.1f} to {max(figures):.1f})"
    ratios = [having.figures_us[name] / without.figures_us[name] for without, having in pairs]
    yield f"{median(ratios):.2f}"
    bounds = interval(ratios)
    yield f"{bounds[0]:.2f} to {bounds[1]:.2f}" if bounds else "too few pairs"


def _brief(run: Lateness) -> str:
    return f"p50 {run.figures_us['p50']:.1f} us, p99 {run.figures_us['p99']:.0f} us"


def _last(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "atoll failed without a word"
