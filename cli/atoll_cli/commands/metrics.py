# SPDX-License-Identifier: Apache-2.0
"""`atoll metrics load|check|names`: metrics of runs and the database for them (docs/metrics.md)."""

import json as json_text
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll_cli.terminal.options import Json, PlainArguments
from atoll_core.errors import RunDirError, UsageError
from atoll_core.plural import counted

if TYPE_CHECKING:  # the database's client is loaded only where it is used
    from atoll_analysis.run_directory import RunDir
    from atoll_dashboards.grafana.grafana_links import RunInDatabase
    from atoll_dashboards.influx.influx_load import Times
    from atoll_dashboards.influx.influx_settings import InfluxSettings

metrics = typer.Typer(
    help="Load runs into InfluxDB; list metrics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@metrics.command(cls=PlainArguments, epilog="Example: atoll metrics load runs/geo/*")
def load(
    runs: Annotated[list[Path], typer.Argument(help="run directories", metavar="RUN...")],
    times: Annotated[
        str | None,
        typer.Option(
            help="times of the points: recorded (when the run was made), or aligned (the measurement starts at "
            "2026-01-01 00:00 UTC, to compare runs) [default: recorded; aligned for runs in virtual time]",
            metavar="recorded|aligned",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write all points of runs into the database; points that it already has are not changed.

    Runs without metrics are left out with a line each; so are aborted runs, if their points have no common start to be
    aligned to. A link to each run's points in Grafana is printed; ATOLL_GRAFANA_URL sets its address.

    Exit code 1: some points of the runs are not in the database. Exit code 2: there was no run to load.
    """
    from atoll_cli.terminal.progress import print_link
    from atoll_dashboards.grafana.grafana_links import RunInDatabase, comparison_link, grafana_address, run_link
    from atoll_dashboards.influx.influx_client import Database
    from atoll_dashboards.influx.influx_load import Times, load_run, loadable

    if times is not None and times not in tuple(Times):
        raise UsageError(f"--times: unknown {times!r}; known times: {', '.join(Times)}")
    found, left_out = loadable(runs, Times(times) if times else None)
    settings, address = database_settings(), grafana_address()
    for each in left_out:
        print(f"left out: {each}", file=sys.stderr)
    loaded: list[dict[str, object]] = []
    aligned: list[RunInDatabase] = []
    with Database(settings) as database:
        for run_dir, how in found:
            tally = load_run(run_dir, database, how, lambda line: print(line["message"], file=sys.stderr))
            located = _located(run_dir, how)
            link = located and address + run_link(located)
            if located and how is Times.ALIGNED:
                aligned.append(located)
            loaded.append(
                {
                    "run_dir": str(run_dir.path),
                    "points": tally.delivered,
                    "unfit": tally.unfit,
                    "times": str(how),
                    "grafana": link,
                }
            )
            if not json:
                refused = f"; {counted(tally.unfit, 'point')} refused" if tally.unfit else ""
                print(f"{run_dir.path}: {counted(tally.delivered, 'point')}, {how}, in {settings}{refused}")
                print_link(link, "  ")
    comparison = address + comparison_link(aligned) if len(aligned) > 1 else None
    if json:
        without = [{"run_dir": str(each.path), "reason": each.reason} for each in left_out]
        print(json_text.dumps({"loaded": loaded, "left_out": without, "comparison": comparison}))
    elif comparison:
        print("comparison of the runs:")
        print_link(comparison, "  ")
    if any(each["unfit"] for each in loaded) or any(each.points for each in left_out):
        raise typer.Exit(1)


def _located(run_dir: "RunDir", times: "Times") -> "RunInDatabase | None":
    """The run's tags and time range in the database; None if its directory does not have them."""
    from atoll_dashboards.grafana.grafana_links import RunInDatabase

    try:
        return RunInDatabase.of(run_dir, times)
    except RunDirError:
        return None


@metrics.command(epilog="Example: atoll metrics check")
def check(json: Json = False) -> None:
    """Check that the database accepts points; writes none."""
    from atoll_dashboards.influx.influx_client import Database

    settings = database_settings()
    with Database(settings) as database:
        database.check()
    if json:
        print(json_text.dumps({"url": settings.url, "org": settings.org, "bucket": settings.bucket}))
    else:
        print(f"{settings}: accepts points")


@metrics.command(epilog="Example: atoll metrics names")
def names() -> None:
    """Print all measurements with their tags, fields and units as Markdown."""
    from atoll_core.lab.network import measurements_of_kinds
    from atoll_core.metrics.metrics_schema import schema_markdown

    print(schema_markdown(measurements_of_kinds().values()), end="")


def database_settings() -> "InfluxSettings":
    """The settings of the user's database. Raises UsageError if there are none."""
    import os

    from atoll_dashboards.influx.influx_settings import influx_settings, settings_file

    settings = influx_settings()
    if settings is None:
        file = settings_file(os.environ)
        raise UsageError(
            f"no database is configured: write {file} or set ATOLL_INFLUX_URL, _TOKEN, _ORG and _BUCKET "
            "(docs/metrics.md)"
        )
    return settings
