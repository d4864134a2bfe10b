# SPDX-License-Identifier: Apache-2.0
"""Options and arguments in plain words, where the library that reads the command line has only its own."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperArgument, TyperCommand
from typer.main import get_command

from atoll_core.errors import UsageError

Rack = Annotated[
    Path | None,
    typer.Option("--inventory", help="of hardware: inventory.yaml of the rack; else ATOLL_INVENTORY", metavar="FILE"),
]
"""Of every verb that means the lab of this machine or that of a rack."""


def whole(name: str, text: str, low: int, high: int) -> Any:
    """An option that holds a whole number; out of bounds it raises UsageError with its name and bounds."""

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


def number(name: str, text: str, low: float, high: float) -> Any:
    """An option that holds a number; out of bounds it raises UsageError with its name and bounds."""

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


def misuse(error: typer.TyperException, app: typer.Typer, words: Sequence[str]) -> str:
    """What the library says of a wrong command line, in one line with the verb; of a verb left out, its help.

    ``words``: the command line; where the error does not know its verb, these do.
    """
    context: Any = getattr(error, "ctx", None)
    said = str(cast(Any, error).format_message())
    if said.startswith("Usage: "):
        return said
    verb = context.command_path if context else _verb(get_command(app), words)
    what = " ".join(said.replace("Value error, ", "").split()).removesuffix(".")
    end = "" if what.endswith("?") else ";"
    return f"{verb}: {what[0].lower()}{what[1:]}{end} `{verb} --help` tells more"


def _verb(command: Any, words: Sequence[str]) -> str:
    """``atoll link calibrate`` of a command line that begins with these words."""
    verb = "atoll"
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        verb += f" {word}"
    return verb


class PlainArguments(TyperCommand):
    """A command whose help names an argument without the Python type it becomes, and says once that it repeats."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """``[OPTIONS] EXPERIMENT``, ``[OPTIONS] RUN...``, ``[OPTIONS] [HOST...]``."""
        named = [each for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        words = [(each.metavar or str(each.name), each.required) for each in named]
        return [self.options_metavar or "[OPTIONS]", *(word if must else f"[{word}]" for word, must in words)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments by their names, then the options as always."""
        named = [each for each in self.get_params(ctx) if isinstance(each, TyperArgument)]
        with formatter.section("Arguments"):
            formatter.write_dl([(each.metavar or str(each.name), each.help or "") for each in named])
        options = [each for each in self.get_params(ctx) if not isinstance(each, TyperArgument)]
        with formatter.section("Options"):
            formatter.write_dl([record for each in options if (record := each.get_help_record(ctx))])
