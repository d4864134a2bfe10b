# SPDX-License-Identifier: Apache-2.0
"""`hosts`: the machines of an inventory, all at once: enrol their keys, install, ping, look, run a command."""

from pathlib import Path
from typing import Annotated

import typer

from atoll_cli.terminal.options import PlainArguments

hosts = typer.Typer(name="hosts", no_args_is_help=True, help="The machines of an inventory, reached over SSH.")

InventoryFile = Annotated[
    Path,
    typer.Option("--inventory", help="inventory.yaml of the rack", metavar="FILE", envvar="ATOLL_INVENTORY"),
]
Names = Annotated[
    list[str] | None, typer.Argument(help="machines by their names; all if none is named", metavar="HOST...")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")]


@hosts.command(cls=PlainArguments, epilog="Example: atoll hosts enroll --inventory rack.yaml w1")
def enroll(
    inventory: InventoryFile,
    names: Names = None,
    yes: Annotated[bool, typer.Option("--yes", help="take the keys that are shown without asking")] = False,
    json: Json = False,
) -> None:
    """Show the host keys of machines and, if you say so, trust them from now on."""
    from atoll_cli.commands.hosts_work import enroll_keys

    raise typer.Exit(enroll_keys(inventory, names or [], yes=yes, as_json=json))


@hosts.command(cls=PlainArguments, epilog="Example: atoll hosts install --inventory rack.yaml")
def install(inventory: InventoryFile, names: Names = None, json: Json = False) -> None:
    """Bring atoll-host to machines, the one that fits each; what is there already stays."""
    from atoll_cli.commands.hosts_work import install_binaries

    raise typer.Exit(install_binaries(inventory, names or [], as_json=json))


@hosts.command(cls=PlainArguments, epilog="Example: atoll hosts ping --inventory rack.yaml w1 w2")
def ping(inventory: InventoryFile, names: Names = None, json: Json = False) -> None:
    """Ask every machine's agent: does it answer, how soon, and what does its clock say?"""
    from atoll_cli.commands.hosts_work import ping_agents

    raise typer.Exit(ping_agents(inventory, names or [], as_json=json))


@hosts.command(cls=PlainArguments, epilog="Example: atoll hosts status --inventory rack.yaml --json")
def status(inventory: InventoryFile, names: Names = None, json: Json = False) -> None:
    """Say of every machine what it is, what it lacks, and who is using it."""
    from atoll_cli.commands.hosts_work import show_status

    raise typer.Exit(show_status(inventory, names or [], as_json=json))


@hosts.command(
    "exec", cls=PlainArguments, epilog="Example: atoll hosts exec --inventory rack.yaml --host w1 --host w2 -- uname -a"
)
def execute(
    inventory: InventoryFile,
    command: Annotated[list[str], typer.Argument(help="program and arguments", metavar="COMMAND...")],
    names: Annotated[
        list[str] | None, typer.Option("--host", help="only on this machine; repeatable", metavar="HOST")
    ] = None,
    json: Json = False,
) -> None:
    """Run a command on every machine at once; its output, a machine a line."""
    from atoll_cli.commands.hosts_work import run_command

    raise typer.Exit(run_command(inventory, names or [], command, as_json=json))
