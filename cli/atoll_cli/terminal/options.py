# SPDX-License-Identifier: Apache-2.0
"""Options, arguments and usage errors in plain words instead of those of the library that parses the command line."""

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperArgument, TyperCommand
from typer.main import get_command
from typer.models import CommandFunctionType

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


def number_option(name: str, text: str, low: float, high: float, *, kind: type[int] | type[float] = float) -> Any:
    """Define an option for a number. Out of bounds it raises UsageError with its name and bounds."""
    noun = "a whole number" if kind is int else "a number"

    def read(value: object) -> float:
        try:
            number = kind(str(value))
        except ValueError:
            number = math.nan
        if low <= number <= high:
            return number
        remedy = "; decimals follow a point" if kind is float and "," in str(value) else ""
        raise UsageError(f"{name}: {value!s:.40} is not {noun} from {low} to {high}{remedy}")

    return typer.Option(name, help=text, parser=read, metavar="NUMBER")


def require_one_of(option: str, value: str | None, plural: str, choices: Collection[str]) -> None:
    """Raise UsageError for an option's word that is not among the known ones, such as ``plural`` "platforms"."""
    if value is not None and value not in choices:
        from atoll_core.description.validation_messages import suggest

        raise UsageError(f"{option} {value}: unknown {plural.removesuffix('s')}; {suggest(value, choices, plural)}")


def usage_error_text(error: typer.TyperException, app: typer.Typer, arguments: Sequence[str]) -> str:
    """The error of a wrong command line in one line, with the command; for a missing command, the help.

    ``arguments``: the command line, from which the command is taken if the error does not have it.
    """
    context: Any = getattr(error, "ctx", None)
    message = str(cast(Any, error).format_message())
    if message.startswith("Usage: "):
        return message
    command = context.command_path if context else _command_path(get_command(app), arguments)
    reason = " ".join(message.replace("Value error, ", "").split()).removesuffix(".")
    separator = "" if reason.endswith("?") else ";"
    return f"{command}: {reason[0].lower()}{reason[1:]}{separator} see `{command} --help`"


def _command_path(command: Any, arguments: Sequence[str]) -> str:
    """The command that a command line begins with, such as ``atoll link calibrate``."""
    path = "atoll"
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument)
        if command is None:
            break
        path += f" {argument}"
    return path


class CommandGroup(typer.Typer):
    """A group of commands whose help is plain text."""

    def __init__(self, **settings: Any) -> None:
        defaults: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}
        super().__init__(**defaults | settings)

    def command(self, *name: Any, **settings: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Decorate a function: it is a command of the group."""
        return super().command(*name, **{"cls": PlainArguments} | settings)


class PlainArguments(TyperCommand):
    """A command whose help names arguments without Python types, and marks repeatable ones once."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """``[OPTIONS] EXPERIMENT``, ``[OPTIONS] RUN...``, ``[OPTIONS] [HOST...]``."""
        arguments = [argument for argument in self.get_params(ctx) if isinstance(argument, TyperArgument)]
        return ["[OPTIONS]", *(f"{item.metavar}" if item.required else f"[{item.metavar}]" for item in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments by their names, then the options."""
        parameters = self.get_params(ctx)
        arguments = [(item.metavar, item.help) for item in parameters if isinstance(item, TyperArgument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        options = [option for option in parameters if not isinstance(option, TyperArgument)]
        with formatter.section("Options"):
            formatter.write_dl([record for option in options if (record := option.get_help_record(ctx))])
