# SPDX-License-Identifier: Apache-2.0
"""Results of any runs: a study whose factors are found, the properties and settings in which the runs differ.

Runs that differ in nothing but their seed are one configuration. Reads summaries and manifests only; the runs need not
be of one experiment, lab, platform or backend.
"""

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from atoll_analysis.figures.run_figures import (
    LOSS_FIGURES,
    figure_limits,
    figure_names,
    general_figure,
    measured_figures,
)
from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.directory import COMPLETED, RUNNING
from atoll_analysis.summary import Summary
from atoll_analysis.verdict.findings import Verdict
from atoll_core.codec import from_json
from atoll_core.errors import RunError, UsageError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_studies.results.results import (
    USUAL_FIGURES,
    Results,
    StudyRun,
    baselines,
    estimate,
    regime_of,
    require_baseline,
    require_figures,
)
from atoll_studies.results.similarity import SEED, similarity
from atoll_studies.study_directory import Provenance, StudyDirectory, is_study


def comparable(paths: Iterable[Path]) -> tuple[list[RunDir], dict[Path, str]]:
    """Return the runs that can be compared, and why others cannot. Of a study its runs are compared.

    A run that was completed but not analysed is returned, and refused by :func:`compare`. Raises RunError when fewer
    than two runs remain because others are left out, UsageError for a single one, RunDirError for a path of no run.
    """
    runs: list[RunDir] = []
    skipped: dict[Path, str] = {}
    for path in itertools.chain.from_iterable(_runs_of_study(path) if is_study(path) else [path] for path in paths):
        run = RunDir.open(path, allow_damaged=True)
        if reason := _skip_reason(run):
            skipped[path] = reason
        else:
            runs.append(run)
    if skipped and len(runs) < 2:
        lines = [f"{path}: {reason}" for path, reason in skipped.items()]
        lines.append("fewer than two runs are left to compare" if runs else "no run is left to show")
        raise RunError("\n".join(lines))
    if len(runs) < 2:
        raise UsageError(f"report: --compare needs two or more runs, not {len(runs)}; `atoll report RUN` reports one")
    return runs, skipped


def _runs_of_study(path: Path) -> list[Path]:
    study = StudyDirectory(path)
    return [attempt.path for point in study.study()["points"] for attempt in study.attempts(point["id"])]


def _skip_reason(run: RunDir) -> str | None:
    if damages := run.damages():
        return "; ".join(damages.values())
    if (run.path / "summary.json").exists():
        return None
    manifest = run.manifest()
    outcome = manifest.get("outcome")
    if outcome == RUNNING:
        return f"is in progress; if it was killed, `atoll report {run.path}` analyses the recorded part"
    if "plan" not in manifest:
        return f"nothing to analyse: the run ended before its plan was computed ({outcome})"
    if outcome != COMPLETED:
        ending = str(outcome).partition("\n")[0]
        return f"{ending}; `atoll report {run.path}` analyses the recorded part"
    return None


def compare(
    runs: Sequence[RunDir],
    figures: Sequence[str] = (),
    baseline: Mapping[str, str] | None = None,
    *,
    mixed_kernels: bool = False,
) -> Results:
    """Compare runs. ``figures``: their names; if empty, all that any run measured. ``baseline``: levels by factor.

    Without a baseline, configurations are compared with the first one. Those without a run that counts come last.

    Raises RunError when a run was not analysed, UsageError when there is no such figure or level, or when runs in
    virtual time had different kernels and ``mixed_kernels`` does not allow it.
    """
    require_figures(figures)
    summaries = [cast("Summary", run.summary()) for run in runs]
    values = [measured_figures(run.path, summary) for run, summary in zip(runs, summaries, strict=True)]
    manifests = [run.manifest() for run in runs]
    if not mixed_kernels:
        _refuse_mixed_kernels(runs, manifests)
    properties = similarity(manifests)
    valid = [summary["verdict"] != Verdict.INVALID for summary in summaries]
    seeds = [int(manifest["experiment"]["seed"]) for manifest in manifests]
    configuration_of, repeats = arrange(
        properties.kinds, valid, [(seed, *each.values()) for seed, each in zip(seeds, values, strict=True)]
    )
    factors = (*properties.settings, *(row for row in properties.unlike if row[0] != SEED))
    first_runs = [configuration_of.index(configuration) for configuration in range(max(configuration_of) + 1)]
    configurations = [{name: texts[run] for name, texts in factors} for run in first_runs]
    if baseline is None:
        baseline_of = [None, *(0 for _ in configurations[1:])]
    else:
        require_baseline(baseline, {name: list(dict.fromkeys(texts)) for name, texts in factors})
        baseline_of = baselines(configurations, baseline)
    all_runs = [
        StudyRun(
            number=number + 1,
            path=run.path,
            configuration=configuration_of[number],
            seed=seeds[number],
            verdict=summary["verdict"],
            remarks=tuple(summary["reasons"] or summary.get("caveats", ())),
            figures=values[number],
            provenance=Provenance.of_run(manifest),
            regime=regime_of(summary),
            limits=figure_limits(summary),
            repeats=None if (earlier := repeats[number]) is None else earlier + 1,
            wall_s=manifest.get("host", {}).get("wall_s"),
        )
        for number, (run, summary, manifest) in enumerate(zip(runs, summaries, manifests, strict=True))
    ]
    counted_runs = [run for run, is_valid in zip(all_runs, valid, strict=True) if is_valid and run.repeats is None]
    uncounted = [run for run in all_runs if run not in counted_runs]
    names = figure_names(run.figures for run in all_runs)
    measured_by_any = [name for name in names if any(_worth_showing(name, run) for run in all_runs)]
    shown = [name for name in names if name in (figures or measured_by_any)]
    return Results(
        name="comparison",
        factors=tuple(name for name, _ in factors),
        configurations=tuple(configurations),
        seeds=tuple(dict.fromkeys(seeds)),
        shown=tuple(shown),
        plotted=tuple(name for name in shown if figures or general_figure(name) in USUAL_FIGURES),
        runs=tuple(counted_runs),
        uncounted=tuple(uncounted),
        figures=tuple(estimate(counted_runs, baseline_of, uncounted)),
        described={configuration_of[run]: _descriptions(manifests[run]) for run in first_runs},
        baseline_asked=baseline is not None,
        similarity=properties,
    )


def _descriptions(manifest: Mapping[str, Any]) -> tuple[Network, Experiment]:
    return from_json(Network, manifest["network"]), from_json(Experiment, manifest["experiment"])


def arrange(
    kinds: Sequence[Hashable], valid: Sequence[bool], measured: Sequence[Hashable]
) -> tuple[list[int], list[int | None]]:
    """Return the configuration of each run, one for each kind, and the earlier run, if any, that it repeats.

    Configurations are in the order of their first runs; those without a valid run come last. A valid run that measured
    the same as an earlier one of its configuration is a repetition, as a seed run twice in virtual time is. All
    sequences have an entry a run.
    """
    with_samples = {kind for kind, is_valid in zip(kinds, valid, strict=True) if is_valid}
    ordered = sorted(dict.fromkeys(kinds), key=lambda kind: kind not in with_samples)
    first_runs: dict[tuple[object, object], int] = {}
    repeats: list[int | None] = []
    for run, (kind, is_valid, figures) in enumerate(zip(kinds, valid, measured, strict=True)):
        repeats.append(first_runs.get((kind, figures)) if is_valid else None)
        if is_valid:
            first_runs.setdefault((kind, figures), run)
    return [ordered.index(kind) for kind in kinds], repeats


def _worth_showing(name: str, run: StudyRun) -> bool:
    """Whether a run measured the figure or its limits; of losses by a cause: whether it had such a loss."""
    return bool(run.figures[name]) if name in LOSS_FIGURES else run.limits_of(name) is not None


def _refuse_mixed_kernels(runs: Sequence[RunDir], manifests: Sequence[Mapping[str, Any]]) -> None:
    """Refuse different kernels: differences of their TCP would look like an effect of settings."""
    run_by_kernel: dict[str, Path] = {}
    for run, manifest in zip(runs, manifests, strict=True):
        if "kernel" in (virtual := manifest.get("virtual", {})):
            # Runs made before the mode was recorded had ptrace.
            run_by_kernel.setdefault(f"Linux {virtual['kernel']} ({virtual.get('mode', 'ptrace')})", run.path)
    if len(run_by_kernel) > 1:
        kernels = ", ".join(f"{kernel} in {path}" for kernel, path in run_by_kernel.items())
        raise UsageError(f"runs in virtual time on different kernels: {kernels}; --mixed-kernels compares them anyway")
