# SPDX-License-Identifier: Apache-2.0
"""`atoll dashboards install`: install the dashboards in a Grafana (docs/metrics.md)."""

import json as json_text
import os
from typing import Annotated

import typer

from atoll_core.errors import UsageError
from atoll_core.secret_variables import GRAFANA_TOKEN_VARIABLE, header_safe

dashboards = typer.Typer(
    help="Install the Grafana dashboards of runs' metrics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dashboards.command(epilog="Example: atoll dashboards install --url http://127.0.0.1:3000 --token glsa_...")
def install(
    url: Annotated[str, typer.Option(help="Grafana's URL", metavar="URL")] = "http://127.0.0.1:3000",
    token: Annotated[
        str,
        typer.Option(
            help=(
                f"token of a service account, or user:password; setting the variable is safer: {GRAFANA_TOKEN_VARIABLE}"
            ),
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
    json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Create or replace the data source and all dashboards in an existing Grafana."""
    from dataclasses import replace

    from atoll_cli.commands.metrics import database_settings
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
    for each in urls:
        print(each)
