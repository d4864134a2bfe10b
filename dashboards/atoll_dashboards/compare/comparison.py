# SPDX-License-Identifier: Apache-2.0
"""Compare runs: equal settings, different settings, measured figures.

Reads summaries and manifests only; the runs need not be of one experiment, laboratory, place or backend.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from atoll_analysis.figures.losses import CAUSES
from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.directory import COMPLETED, RUNNING
from atoll_analysis.summary import Summary
from atoll_analysis.verdict.findings import Verdict
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import RunError, UsageError
from atoll_dashboards.compare.seed_groups import LEAST_SAMPLES, Group, group, pairs
from atoll_dashboards.compare.similarity import Likeness, likeness
from atoll_dashboards.compare.traffic_figures import TRAFFIC_FIGURES
from atoll_dashboards.report.number_format import decimals, figure

RATE = "Mbit/s"
_MOST_PERCENT = 1000  # beyond it a share says no more than the two figures do


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure of every run; None: not measured in that run."""

    name: str
    unit: str
    digits: int  # after the point; a rate has more where it is small
    values: tuple[float | None, ...]

    @property
    def heading(self) -> str:
        """Name and unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def shown(self) -> tuple[float | None, ...]:
        """The values, rounded as they are shown."""
        return tuple(None if found is None else self._rounded(found) for found in self.values)

    def text(self, found: float | None) -> str:
        """Format a number without its unit."""
        return figure(found, "", self._decimals(found))

    def _rounded(self, found: float) -> float:
        return round(found, self._decimals(found))

    def _decimals(self, found: float | None) -> int:
        return decimals(found, self.digits) if self.unit == RATE else self.digits

    def difference(self, first: float | None, then: float | None) -> str:
        """Return the difference of the rounded values, so that it agrees with the values shown."""
        if first is None or then is None:
            return ""
        first, then = self._rounded(first), self._rounded(then)
        if not first:
            return ""
        if first == then:
            return "="
        share = 100 * (then - first) / abs(first)
        if abs(share) >= _MOST_PERCENT:
            return ""
        if abs(share) < 0.05:
            return f"{share:+.1g}%"
        return f"{share:+.{1 if abs(share) < 100 else 0}f}%"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs, all tuples in the same order."""

    runs: tuple[str, ...]  # paths
    seeds: tuple[str, ...]
    verdicts: tuple[str, ...]
    reasons: tuple[tuple[str, ...], ...]  # why a run is invalid
    caveats: tuple[tuple[str, ...], ...]  # what a run's figures must be read with
    likeness: Likeness
    figures: tuple[ComparedFigure, ...]
    groups: tuple[Group, ...]  # every run is in one of them

    @property
    def sampled(self) -> bool:
        """Whether a group has enough samples for statements about their distribution."""
        return any(len(each.samples) >= LEAST_SAMPLES for each in self.groups)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``--json``. ``origins`` also has equal properties; ``unlike`` names different ones."""
        runs = zip(self.runs, self.seeds, self.verdicts, self.reasons, self.caveats, strict=True)
        return {
            "runs": [
                {
                    "number": number,
                    "run_dir": run,
                    "seed": int(seed),
                    "verdict": verdict,
                    "reasons": list(reasons),
                    "caveats": list(caveats),
                }
                for number, (run, seed, verdict, reasons, caveats) in enumerate(runs, start=1)
            ],
            "unlike": [name for name, _ in self.likeness.unlike],
            "origins": {name: list(texts) for name, texts in self.likeness.origins},
            "settings": {each.key: list(each.texts) for each in self.likeness.described if not each.alike},
            "channels": {host: list(texts) for host, texts in self.likeness.dealt},
            "alike": {each.key: each.texts[0] for each in self.likeness.described if each.alike},
            "figures": [{"name": f.name, "unit": f.unit, "values": list(f.values)} for f in self.figures],
            "groups": [self._group_json(each) for each in self.groups],
        }

    def _group_json(self, group: Group) -> dict[str, Any]:
        """Runs by their numbers."""
        return {
            "name": group.name,
            "runs": [run + 1 for run in group.runs],
            "samples": [run + 1 for run in group.samples],
            "again": {str(run + 1): earlier + 1 for run, earlier in group.again},
            "figures": {each.name: self._spread_json(group, each) for each in self.figures},
        }

    def _spread_json(self, group: Group, figure: ComparedFigure) -> dict[str, Any] | None:
        """``against_first``: of the seeds that the first group has, too, with how many the figure is higher, lower."""
        spread = group.spread(figure.values)
        if spread is None:
            return None
        return {
            "samples": spread.samples,
            "median": spread.median,
            "min": spread.least,
            "max": spread.greatest,
            "against_first": asdict(pairs(self.groups[0], group, figure.shown, self.seeds)),
        }


def comparable(paths: Iterable[Path]) -> tuple[list[RunDir], dict[Path, str]]:
    """Return the runs that can be compared, and why others cannot.

    A run that was completed but not analysed is returned, and refused by :func:`compare`. Raises RunError when fewer
    than two runs remain because others are left out, RunDirError for a path that is no run.
    """
    runs: list[RunDir] = []
    left_out: dict[Path, str] = {}
    for path in paths:
        run = RunDir.open(path)
        if reason := _nothing_to_compare(run):
            left_out[path] = reason
        else:
            runs.append(run)
    if left_out and len(runs) < 2:
        lines = [f"{path}: {reason}" for path, reason in left_out.items()]
        lines.append("fewer than two runs are left to compare" if runs else "no run is left to show")
        raise RunError("\n".join(lines))
    return runs, left_out


def _nothing_to_compare(run: RunDir) -> str | None:
    if (run.path / "summary.json").exists():
        return None
    manifest = run.manifest()
    if manifest.get("outcome") == RUNNING:
        return f"is being made; if it was killed, `atoll report {run.path}` analyses what there is of it"
    if "plan" not in manifest:
        return f"nothing to analyse: it ended before it was planned ({manifest.get('outcome')})"
    if manifest.get("outcome") != COMPLETED:
        how = str(manifest["outcome"]).partition("\n")[0]
        return f"{how}; `atoll report {run.path}` analyses what there is of it"
    return None


def compare(runs: Sequence[RunDir], wanted: Sequence[str] = (), *, mixed_kernels: bool = False) -> Comparison:
    """Compare runs. ``wanted``: names of the figures; if empty, all that any run measured.

    Raises RunError when a run was not analysed, UsageError when there is no such figure, or when runs in virtual time
    had different kernels and ``mixed_kernels`` does not allow it.
    """
    for name in wanted:
        if name not in FIGURES:
            msg = f"--figure: unknown figure {name!r}; {suggest(name, FIGURES, 'figures')}"
            raise UsageError(msg)
    summaries = [cast("Summary", run.summary()) for run in runs]
    figures = [
        ComparedFigure(name, unit, digits, tuple(_measured(read, *each) for each in zip(runs, summaries, strict=True)))
        for name, (unit, digits, read) in FIGURES.items()
    ]
    asked = [each for each in figures if each.name in (wanted or FIGURES)]
    manifests = [run.manifest() for run in runs]
    if not mixed_kernels:
        _refuse_mixed_kernels(runs, manifests)
    alike = likeness(manifests)
    return Comparison(
        runs=tuple(str(run.path) for run in runs),
        seeds=tuple(str(each["experiment"]["seed"]) for each in manifests),
        verdicts=tuple(summary["verdict"] for summary in summaries),
        reasons=tuple(tuple(summary["reasons"]) for summary in summaries),
        caveats=tuple(tuple(summary.get("caveats", ())) for summary in summaries),
        likeness=alike,
        figures=tuple(each for each in asked if wanted or _worth_showing(each)),
        groups=group(
            alike.kinds,
            [summary["verdict"] != Verdict.INVALID for summary in summaries],
            list(zip((summary["seed"] for summary in summaries), *(each.values for each in figures), strict=True)),
        ),
    )


def _refuse_mixed_kernels(runs: Sequence[RunDir], manifests: Sequence[Mapping[str, Any]]) -> None:
    """Refuse different kernels: differences of their TCP would look like an effect of settings."""
    first: dict[str, Path] = {}
    for run, manifest in zip(runs, manifests, strict=True):
        if "kernel" in (virtual := manifest.get("virtual", {})):
            # Runs made before the mode was recorded had ptrace.
            first.setdefault(f"Linux {virtual['kernel']} ({virtual.get('mode', 'ptrace')})", run.path)
    if len(first) > 1:
        kernels = ", ".join(f"{kernel} in {path}" for kernel, path in first.items())
        raise UsageError(f"runs in virtual time on different kernels: {kernels}; --mixed-kernels compares them anyway")


def _worth_showing(each: ComparedFigure) -> bool:
    """Return whether any run measured the figure; of losses by cause: whether any run had such a loss."""
    return any(each.values) if each.name in LOSSES else any(found is not None for found in each.values)


def _measured(read: "_Read", run: RunDir, summary: Summary) -> float | None:
    try:
        return _number(read(summary))
    except KeyError as missing:
        msg = (
            f"{run.path}: analysed by an older version that did not compute {missing}; "
            f"run `atoll report {run.path}` to analyse it again"
        )
        raise RunError(msg) from None


def _number(found: float | None) -> float | None:
    return None if found is None else round(float(found), 9)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _scaled(number: float | None, factor: float) -> float | None:
    return None if number is None else number / factor


def _terrestrial_error_ms(summary: Summary) -> float | None:
    return max(
        (abs(rtt["measured"] - rtt["configured"]) for rtt in summary["terrestrial_rtt_ms"].values()), default=None
    )


def _beyond_drain_ms(summary: Summary) -> float | None:
    """Return the time that the slowest scheduled change took beyond the drain of the previous version."""
    return max((c["beyond_drain_ms"] for c in summary["changes"] if c["beyond_drain_ms"] is not None), default=None)


_Read = Callable[[Summary], float | None]


def _udp(figure: str) -> _Read:
    """Return a figure of the UDP traffic; None without such traffic, or if an older version analysed the run."""
    return lambda summary: cast("dict[str, float | None]", summary.get("udp") or {}).get(figure)


def _longest_wait_ms(summary: Summary) -> float | None:
    return summary.get("longest_wait_ms")


def _of_slowest(summary: Summary, name: str) -> dict[str, Any]:
    """Return figures of the slowest link by the name of their part; empty if not measured."""
    link = cast("dict[str, Any]", summary["links"].get(summary["bottleneck"] or "") or {})
    return cast("dict[str, Any]", link.get(name) or {})


def _queue_sojourn(figure: str) -> _Read:
    """Return the sojourn time in the queue of the slowest link; None if the backend does not measure it."""
    return lambda summary: _of_slowest(summary, "sojourn").get(figure)


_UNKNOWN = {"packets": None}


def _lost(cause: str, direction: str) -> _Read:
    """Return the packets that the slowest link lost by a cause; None if the backend does not count it."""
    return lambda summary: _of_slowest(summary, direction).get(cause, _UNKNOWN)["packets"]


LOSSES: dict[str, tuple[str, int, _Read]] = {
    f"{where}, {words}": ("packets", 0, _lost(cause, direction))
    for direction, where in (("losses", "lost"), ("losses_to_world", "lost to the world"))
    for cause, words in CAUSES.items()
}
"""Of these, causes for which no run lost anything are left out."""

FIGURES: dict[str, tuple[str, int, _Read]] = {
    "base RTT": ("ms", 3, lambda s: s["base_rtt_ms"]),
    "terrestrial RTT off by": ("ms", 3, _terrestrial_error_ms),
    "queue sojourn mean": ("ms", 2, _queue_sojourn("mean_ms")),
    **{f"queue sojourn p{percent}": ("ms", 2, _queue_sojourn(f"p{percent}_ms")) for percent in (50, 95, 99)},
    "queue sojourn at most": ("ms", 2, _queue_sojourn("max_ms")),
    "largest ping sojourn": ("ms", 2, lambda s: s["sojourn_max_ms"]),
    "sojourn bound": ("ms", 2, lambda s: s["sojourn_bound_ms"]),
    "queue at most": ("kB", 2, lambda s: _scaled(s["queue_max_bytes"], 1e3)),
    "queue full": ("s", 1, lambda s: s["queue_full_s"]),
    "goodput": (RATE, 3, lambda s: s["goodput_mbit_s"]),
    "throughput": (RATE, 3, lambda s: s["throughput_mbit_s"]),
    "utilisation": ("%", 2, lambda s: _percent(s["utilisation"])),
    "loss": ("%", 3, lambda s: _percent(s["loss_fraction"])),
    **LOSSES,
    "bytes lost": ("kB", 1, lambda s: _scaled(s["loss_bytes_link"], 1e3)),
    "pings lost": ("", 0, lambda s: s["ping_lost"] if s["ping_sent"] else None),
    "flows completed": ("", 0, lambda s: s["flows_completed"] if s["channels"] else None),
    "mean flow": ("kB", 1, lambda s: _scaled(s["mean_flow_bytes"], 1e3)),
    # An index without a longest wait is of an older version, and could only be 1.
    "fairness": ("", 3, lambda s: s["fairness"] if _longest_wait_ms(s) is not None else None),
    "longest wait of a channel": ("ms", 2, _longest_wait_ms),
    "transfer received": ("MB", 2, lambda s: _scaled(s["transfer_received_bytes"], 1e6)),
    "transfer time": ("s", 2, lambda s: s["transfer_s"]),
    "transfer rate": (RATE, 3, lambda s: s["transfer_mbit_s"]),
    "UDP sent": (RATE, 3, _udp("sent_mbit_s")),
    "UDP received": (RATE, 3, _udp("received_mbit_s")),
    "UDP lost": ("%", 3, lambda s: _percent(_udp("loss_fraction")(s))),
    "UDP out of order": ("", 0, _udp("reordered_packets")),
    "UDP jitter": ("ms", 3, _udp("jitter_ms")),
    "UDP jitter at most": ("ms", 3, _udp("jitter_max_ms")),
    **TRAFFIC_FIGURES,
    "changes beyond the drain": ("ms", 2, _beyond_drain_ms),
    "lateness at most": ("ms", 3, lambda s: s["lateness_max_ms"]),
}
"""By name: unit, digits after the point, and where it stands in the summary."""
