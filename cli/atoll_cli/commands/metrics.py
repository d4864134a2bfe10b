# SPDX-License-Identifier: Apache-2.0
"""``atoll metrics load|check|names``: a run's metrics and the database they go into (docs/metrics.md)."""

import json as json_text
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll_cli.terminal.options import PlainArguments
from atoll_core.errors import RunDirError, UsageError
from atoll_core.plural import counted

if TYPE_CHECKING:  # the database's client is loaded when it is asked
    from atoll_analysis.run_directory import RunDir
    from atoll_dashboards.grafana.grafana_links import RunInDatabase
    from atoll_dashboards.influx.influx_load import Times
    from atoll_dashboards.influx.influx_settings import InfluxSettings

metrics = typer.Typer(
    help="Runs' metrics, and the InfluxDB they go into.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")]


@metrics.command(cls=PlainArguments, epilog="Example: atoll metrics load runs/geo/*")
def load(
    runs: Annotated[list[Path], typer.Argument(help="run directories", metavar="RUN...")],
    times: Annotated[
        str | None,
        typer.Option(
            help="where points lie: recorded (when the run was made), or aligned (its measurement begins at "
            "2026-01-01 00:00 UTC, to compare runs) [default: recorded; aligned for runs in virtual time]",
            metavar="recorded|aligned",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write all points of runs into the database; what is there already stays as it is.

    Runs without metrics are left out with a line each, as are those that broke off before their points could be
    aligned. A link opens Grafana where a run's points lie; it begins with what ATOLL_GRAFANA_URL says. The exit code is
    1 if points of the runs are not in the database in the end, and 2 if there was no run to load at all.
    """
    from atoll_cli.terminal.progress import tell_link
    from atoll_dashboards.grafana.grafana_links import RunInDatabase, comparison_link, grafana_address, run_link
    from atoll_dashboards.influx.influx_client import Database
    from atoll_dashboards.influx.influx_load import Times, load_run, loadable

    if times is not None and times not in tuple(Times):
        raise UsageError(f"--times {times}: there are {', '.join(Times)}")
    found, left_out = loadable(runs, Times(times) if times else None)
    settings, address = database_settings(), grafana_address()
    for each in left_out:
        print(f"left out: {each}", file=sys.stderr)
    told: list[dict[str, object]] = []
    aligned: list[RunInDatabase] = []
    with Database(settings) as database:
        for run_dir, how in found:
            tally = load_run(run_dir, database, how, lambda line: print(line["message"], file=sys.stderr))
            laid = _laid(run_dir, how)
            link = laid and address + run_link(laid)
            if laid and how is Times.ALIGNED:
                aligned.append(laid)
            told.append(
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
                tell_link(link, "  ")
    comparison = address + comparison_link(aligned) if len(aligned) > 1 else None
    if json:
        without = [{"run_dir": str(each.path), "reason": each.reason} for each in left_out]
        print(json_text.dumps({"loaded": told, "left_out": without, "comparison": comparison}))
    elif comparison:
        print("beside each other:")
        tell_link(comparison, "  ")
    if any(each["unfit"] for each in told) or any(each.points for each in left_out):
        raise typer.Exit(1)


def _laid(run_dir: "RunDir", times: "Times") -> "RunInDatabase | None":
    """Where a run's points lie; None of one that does not say: it is loaded all the same."""
    from atoll_dashboards.grafana.grafana_links import RunInDatabase

    try:
        return RunInDatabase.of(run_dir, times)
    except RunDirError:
        return None


@metrics.command(epilog="Example: atoll metrics check")
def check(json: Json = False) -> None:
    """Say whether the database takes points; nothing is written."""
    from atoll_dashboards.influx.influx_client import Database

    settings = database_settings()
    with Database(settings) as database:
        database.check()
    if json:
        print(json_text.dumps({"url": settings.url, "org": settings.org, "bucket": settings.bucket}))
    else:
        print(f"{settings}: takes points")


@metrics.command(epilog="Example: atoll metrics names")
def names() -> None:
    """Print what is measured: measurements, tags, fields, units, as Markdown."""
    from atoll_core.metrics.metrics_schema import schema_markdown

    print(schema_markdown(), end="")


def database_settings() -> "InfluxSettings":
    """The user's database. Raises UsageError when there is none."""
    import os

    from atoll_dashboards.influx.influx_settings import influx_settings, settings_file

    settings = influx_settings()
    if settings is None:
        file = settings_file(os.environ)
        raise UsageError(f"no database is set: {file} or ATOLL_INFLUX_URL, _TOKEN, _ORG and _BUCKET (docs/metrics.md)")
    return settings
