# SPDX-License-Identifier: Apache-2.0
"""`atoll metrics load|check|names`, `atoll dashboards install`: metrics and their database (docs/metrics.md)."""

import json as json_text
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll_cli.terminal.options import CommandGroup, Json, require_one_of
from atoll_core.errors import RunDirError, UsageError
from atoll_core.plural import counted
from atoll_core.secret_variables import GRAFANA_TOKEN_VARIABLE, header_safe

if TYPE_CHECKING:  # the database's client is loaded only where it is used
    from atoll_analysis.run_directory import RunDir
    from atoll_dashboards.grafana.grafana_links import RunInDatabase
    from atoll_dashboards.influx.influx_load import Times
    from atoll_dashboards.influx.influx_settings import InfluxSettings

metrics = CommandGroup(help="Load runs into InfluxDB; list metrics.")
dashboards = CommandGroup(help="Install the Grafana dashboards of runs' metrics.")


@metrics.command(epilog="Example: atoll metrics load runs/geo/*")
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
    from atoll_dashboards.grafana.grafana_links import RunInDatabase, comparison_link, grafana_address, run_link
    from atoll_dashboards.influx.influx_client import Database
    from atoll_dashboards.influx.influx_load import Times, load_run, loadable

    require_one_of("--times", times, "times", list(Times))
    readable, skipped = loadable(runs, Times(times) if times else None)
    settings, address = database_settings(), grafana_address()
    for path, reason, _ in skipped:
        print(f"left out: {path}: {reason}", file=sys.stderr)
    loaded: list[dict[str, object]] = []
    aligned: list[RunInDatabase] = []
    with Database(settings) as database:
        for run_dir, mode in readable:
            counts = load_run(run_dir, database.write, mode, lambda line: print(line["message"], file=sys.stderr))
            in_database = _run_in_database(run_dir, mode)
            link = in_database and address + run_link(in_database)
            if in_database and mode is Times.ALIGNED:
                aligned.append(in_database)
            answer = {"run_dir": str(run_dir.path), "points": counts.delivered, "unfit": counts.rejected}
            loaded.append({**answer, "times": str(mode), "grafana": link})
            if not json:
                refused = f"; {counted(counts.rejected, 'point')} refused" if counts.rejected else ""
                print(f"{run_dir.path}: {counted(counts.delivered, 'point')}, {mode}, in {settings}{refused}")
                if link:
                    print(f"  in Grafana: {link}")
    comparison = address + comparison_link(aligned) if len(aligned) > 1 else None
    if json:
        skipped_json = [{"run_dir": str(path), "reason": reason} for path, reason, _ in skipped]
        print(json_text.dumps({"loaded": loaded, "left_out": skipped_json, "comparison": comparison}))
    elif comparison:
        print(f"comparison of the runs:\n  in Grafana: {comparison}")
    if any(run["unfit"] for run in loaded) or any(points for _, _, points in skipped):
        raise typer.Exit(1)


def _run_in_database(run_dir: "RunDir", times: "Times") -> "RunInDatabase | None":
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
    from atoll_dashboards.influx.influx_settings import influx_settings, settings_file

    settings = influx_settings()
    if settings is None:
        file = settings_file(os.environ)
        raise UsageError(
            f"no database is configured: write {file} or set ATOLL_INFLUX_URL, _TOKEN, _ORG and _BUCKET "
            "(docs/metrics.md)"
        )
    return settings


@dashboards.command(epilog="Example: atoll dashboards install --url http://127.0.0.1:3000 --token glsa_...")
def install(
    url: Annotated[str, typer.Option(help="Grafana's URL", metavar="URL")] = "http://127.0.0.1:3000",
    token: Annotated[
        str,
        typer.Option(
            help=f"token of a service account, or user:password; setting {GRAFANA_TOKEN_VARIABLE} is safer",
            show_default=False,
            metavar="TOKEN",
        ),
    ] = "",
    influx: Annotated[
        str | None,
        typer.Option(
            help="URL of the database as seen from Grafana, if it differs from the configured one", metavar="URL"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create or replace the data source and all dashboards in an existing Grafana."""
    from atoll_dashboards.grafana.grafana_client import Grafana
    from atoll_dashboards.influx.influx_settings import require_url

    if influx is not None:
        require_url(influx, "--influx", "the database's", "http://influxdb:8086")
    secret = header_safe(token, "--token") or header_safe(
        os.environ.get(GRAFANA_TOKEN_VARIABLE, ""), GRAFANA_TOKEN_VARIABLE
    )
    if not secret:
        raise UsageError(f"set --token or {GRAFANA_TOKEN_VARIABLE}: a service account's token, or user:password")
    settings = database_settings()
    if influx:
        settings = replace(settings, url=influx)
    urls = Grafana(url, secret).install(settings)
    if json:
        print(json_text.dumps({"dashboards": urls}))
        return
    print("\n".join(urls))
