# SPDX-License-Identifier: Apache-2.0
"""Options, arguments and usage errors in plain words instead of those of the library that parses the command line."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperArgument, TyperCommand
from typer.main import get_command

from atoll_core.errors import UsageError

INVENTORY_VARIABLE = "ATOLL_INVENTORY"
"""The environment variable with the inventory of commands without ``--inventory``."""

InventoryOption = Annotated[
    Path | None,
    typer.Option(
        "--inventory",
        help=f"inventory.yaml of a lab of real machines [default: {INVENTORY_VARIABLE}]",
        metavar="FILE",
    ),
]
"""Option of every command that works on the emulated lab of this machine or on a lab of real machines."""

Json = Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")]
PlotFile = Annotated[Path | None, typer.Option("--plot", help="also plot it to this file", metavar="FILE.png")]


def integer_option(name: str, text: str, low: int, high: int) -> Any:
    """Define an option for a whole number. Out of bounds it raises UsageError with its name and bounds."""

    def read(given: object) -> int:
        try:
            found = int(str(given))
        except ValueError:
            found = low - 1
        if low <= found <= high:
            return found
        msg = f"{name}: {given!s:.40} is not a whole number from {low} to {high}"
        raise UsageError(msg)

    return typer.Option(name, help=text, parser=read, metavar="NUMBER")


def number_option(name: str, text: str, low: float, high: float) -> Any:
    """Define an option for a number. Out of bounds it raises UsageError with its name and bounds."""

    def read(given: object) -> float:
        try:
            found = float(str(given))
        except ValueError:
            found = math.nan
        if low <= found <= high:
            return found
        remedy = "; decimals follow a point" if "," in str(given) else ""
        msg = f"{name}: {given!s:.40} is not a number from {low:g} to {high:g}{remedy}"
        raise UsageError(msg)

    return typer.Option(name, help=text, parser=read, metavar="NUMBER")


def usage_error_text(error: typer.TyperException, app: typer.Typer, words: Sequence[str]) -> str:
    """The error of a wrong command line in one line, with the command; for a missing command, the help.

    ``words``: the command line, from which the command is taken if the error does not have it.
    """
    context: Any = getattr(error, "ctx", None)
    said = str(cast(Any, error).format_message())
    if said.startswith("Usage: "):
        return said
    command = context.command_path if context else _command_path(get_command(app), words)
    reason = " ".join(said.replace("Value error, ", "").split()).removesuffix(".")
    end = "" if reason.endswith("?") else ";"
    return f"{command}: {reason[0].lower()}{reason[1:]}{end} see `{command} --help`"


def _command_path(command: Any, words: Sequence[str]) -> str:
    """The command that a command line begins with, such as ``atoll link calibrate``."""
    path = "atoll"
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        path += f" {word}"
    return path


class PlainArguments(TyperCommand):
    """A command whose help names arguments without Python types, and marks repeatable ones once."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """``[OPTIONS] EXPERIMENT``, ``[OPTIONS] RUN...``, ``[OPTIONS] [HOST...]``."""
        named = [each for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        words = [(each.metavar or str(each.name), each.required) for each in named]
        return [self.options_metavar or "[OPTIONS]", *(word if must else f"[{word}]" for word, must in words)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments by their names, then the options."""
        named = [each for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        with formatter.section("Arguments"):
            formatter.write_dl([(each.metavar or str(each.name), each.help or "") for each in named])
        options = [each for each in self.get_params(ctx) if not isinstance(each, TyperArgument)]
        with formatter.section("Options"):
            formatter.write_dl([record for each in options if (record := each.get_help_record(ctx))])
