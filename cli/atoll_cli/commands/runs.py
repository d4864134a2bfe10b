# SPDX-License-Identifier: Apache-2.0
"""`atoll runs list|verify|import|drop-captures`: the runs on the disk."""

import itertools
import json as json_text
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from atoll_cli.terminal.options import CommandGroup, Json, require_one_of
from atoll_core.errors import AtollError
from atoll_core.platforms import CAPTURES, PLATFORMS
from atoll_core.plural import counted

runs = CommandGroup(help="List, verify or import runs; delete their captures.")

DEFAULT_FOLDER = Path("runs")

Folders = Annotated[
    list[Path] | None,
    typer.Argument(help="directories to search [default: runs]", metavar="DIR...", show_default=False),
]
RunPaths = Annotated[list[Path], typer.Argument(help="run directories, or directories with runs", metavar="RUN...")]


@runs.command("list", epilog="Example: atoll runs list --experiment geo --verdict invalid")
def list_(
    folders: Folders = None,
    experiment: Annotated[
        str | None, typer.Option(help="only runs of this experiment", metavar="NAME", show_default=False)
    ] = None,
    verdict: Annotated[
        str | None,
        typer.Option(
            help="only runs with this verdict: valid, invalid, 'valid with caveats', 'not analysed' or damaged",
            metavar="VERDICT",
            show_default=False,
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            help="only runs on this platform: virtual, mininet, hardware, or imported ones: captures",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List runs with experiment, study, platform, seed, verdict and size."""
    from atoll_analysis.stored_runs import DAMAGED, NOT_ANALYSED, StoredRun, find_runs, stored_run
    from atoll_analysis.verdict.findings import Verdict
    from atoll_core.plural import columns
    from atoll_studies.study_directory import point_of

    require_one_of("--verdict", verdict, "verdicts", [*map(str, Verdict), NOT_ANALYSED, DAMAGED])
    require_one_of("--platform", platform, "platforms", [*PLATFORMS, CAPTURES])
    if not folders and not DEFAULT_FOLDER.exists():
        empty = f"no runs yet: directory {DEFAULT_FOLDER} does not exist; `atoll run EXPERIMENT` makes it"
        print(json_text.dumps({"runs": []}) if json else empty)
        return
    listed: list[StoredRun] = []
    for path in find_runs(folders or [DEFAULT_FOLDER]):
        try:
            run = stored_run(path)
        except AtollError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        filters = ((experiment, run.experiment), (verdict, run.verdict), (platform, run.platform))
        if all(filter_value in (None, value) for filter_value, value in filters):
            listed.append(run)
    points = [point_of(run.path) for run in listed]
    if json:
        studies = [dict(zip(("study", "configuration"), point or (None, None), strict=True)) for point in points]
        listed_json = [run.to_json() | study for run, study in zip(listed, studies, strict=True)]
        print(json_text.dumps({"runs": listed_json}))
        return
    study_column = ("STUDY",) if any(points) else ()
    rows = [("RUN", "EXPERIMENT", *study_column, "PLATFORM", "SEED", "DURATION", "VERDICT", "SIZE")]
    for run, point in zip(listed, points, strict=True):
        study = (": ".join(filter(None, point or ())),) if study_column else ()
        duration = "" if run.duration_s is None else f"{run.duration_s:g} s"
        seed = "" if run.seed is None else str(run.seed)
        outcome = run.verdict if run.outcome == "completed" else f"{run.verdict}; {run.outcome}"
        size = _megabytes(run.size_bytes)
        rows.append((str(run.path), run.experiment, *study, run.platform, seed, duration, outcome, size))
    for line in columns(rows, ""):
        print(line)
    print(f"{counted(len(listed), 'run')}, {_megabytes(sum(run.size_bytes for run in listed))}")


@runs.command(epilog="Example: atoll runs verify runs/geo/*")
def verify(paths: RunPaths, json: Json = False) -> None:
    """Read every capture and table of runs and report damaged files.

    Exit code 1: a file is damaged.
    """
    from atoll_analysis.stored_runs import find_runs, verify_run
    from atoll_hosts.binary import find_binary

    binary = find_binary()
    damages = {str(path): verify_run(path, binary) for path in find_runs(paths)}
    if json:
        print(json_text.dumps({"runs": damages}))
    else:
        for damage in itertools.chain.from_iterable(damages.values()):
            print(damage)
        damaged = sum(map(bool, damages.values()))
        print(f"{counted(len(damages), 'run')}: {len(damages) - damaged} whole, {damaged} damaged")
    if any(damages.values()):
        raise typer.Exit(1)


@runs.command(
    "import",
    epilog="Example: atoll runs import geo.yaml world.pcapng island.pcap.gz --set traffic.channels=60",
)
def import_(
    experiment: Annotated[Path, typer.Argument(help="experiment.yaml that was measured", metavar="EXPERIMENT")],
    world: Annotated[Path, typer.Argument(help="capture of the world's end of the chain", metavar="WORLD")],
    island: Annotated[Path, typer.Argument(help="capture of the island's end of the chain", metavar="ISLAND")],
    folder: Annotated[Path, typer.Option("--runs", help="parent of the run directories", metavar="DIR")] = (
        DEFAULT_FOLDER
    ),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="override a setting of EXPERIMENT; repeatable", metavar="KEY=VALUE"),
    ] = None,
    json: Json = False,
) -> None:
    """Make a run directory of two captures, analyse it and write its report.

    Captures are pcap or pcapng files, also compressed by gzip or zstd, or pipes. The packets in both captures give
    the offset and drift of the clock of ISLAND. Its instants are corrected. EXPERIMENT names its lab.
    """
    from atoll_cli.terminal.progress import print_result
    from atoll_core.description.loader import DescriptionFile
    from atoll_dashboards.report.report import analyse_again
    from atoll_hosts.binary import find_binary
    from atoll_testbed.run.imported_run import import_run

    described, binary = DescriptionFile.read(experiment, settings or ()).network_and_experiment(), find_binary()
    run = import_run(world, island, described, folder, binary)
    summary, _ = analyse_again(run, binary)
    raise typer.Exit(print_result(summary, run.path, as_json=json))


@runs.command("drop-captures", epilog="Example: atoll runs drop-captures runs/geo/*")
def drop_captures(paths: RunPaths, json: Json = False) -> None:
    """Delete the captures of runs; tables, summary and report stay.

    The runs cannot be analysed again. Runs that were not analysed and runs in progress keep their captures.
    Exit code 1: the captures of a run were kept.
    """
    from atoll_analysis.stored_runs import drop_captures as drop
    from atoll_analysis.stored_runs import find_runs

    freed: dict[str, int] = {}
    refused: list[dict[str, Any]] = []
    for path in find_runs(paths):
        try:
            freed[str(path)] = drop(path)
        except AtollError as error:
            refused.append({"run_dir": str(path), "reason": str(error)})
            print(f"kept: {error}", file=sys.stderr)
    if json:
        print(json_text.dumps({"freed_bytes": freed, "kept": refused}))
    else:
        print(f"{counted(len(freed), 'run')}: {_megabytes(sum(freed.values()))} freed")
    if refused:
        raise typer.Exit(1)


def _megabytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB"
