# SPDX-License-Identifier: Apache-2.0
"""``atoll link calibrate``: hold the links of an experiment against their settings (docs/calibration.md)."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from atoll_cli.terminal.options import InventoryOption, PlainArguments, number_option
from atoll_core.plan.plan import Backend

link = typer.Typer(help="Test satellite links.", no_args_is_help=True, rich_markup_mode=None)


class Which(StrEnum):
    """Directions to test."""

    BOTH = "both"
    TO_ISLAND = "to_island"
    TO_WORLD = "to_world"


@link.callback()
def links() -> None:
    """Test satellite links."""


@link.command(cls=PlainArguments, epilog="Example: atoll link calibrate examples/geo.yaml")
def calibrate(
    experiment: Annotated[Path, typer.Argument(help="experiment.yaml", metavar="EXPERIMENT")],
    direction: Annotated[Which, typer.Option(help="direction of the links")] = Which.BOTH,
    seconds: Annotated[float, number_option("--seconds", "for each part of the test", 0.5, 600)] = 3.0,
    backend: Annotated[
        Backend, typer.Option("--backend", help="what plays the links: our engine, or the kernel's tc")
    ] = Backend.ENGINE,
    inventory: InventoryOption = None,
    json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Test delay alone, rate alone and both together on every link; exit code 1 when a figure is off.

    Uses the lab that is up, or brings one up for the test. The experiment is applied to it.
    """
    from atoll_cli.commands.calibrate import calibrate_links
    from atoll_cli.commands.selection import use_inventory

    use_inventory(inventory)
    directions = ["to_island", "to_world"] if direction is Which.BOTH else [direction.value]
    raise typer.Exit(calibrate_links(experiment, directions, seconds, backend, as_json=json))
