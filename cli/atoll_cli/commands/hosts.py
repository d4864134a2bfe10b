# SPDX-License-Identifier: Apache-2.0
"""`atoll hosts`: options of its commands, which work on all machines of an inventory in parallel."""

from pathlib import Path
from typing import Annotated

import typer

from atoll_cli.terminal.options import INVENTORY_VARIABLE, CommandGroup, Json

hosts = CommandGroup(name="hosts", help="Manage the machines of an inventory over SSH.")

InventoryFile = Annotated[
    Path,
    typer.Option("--inventory", help="inventory.yaml of the machines", metavar="FILE", envvar=INVENTORY_VARIABLE),
]
MachineNames = Annotated[list[str] | None, typer.Argument(help="names of machines [default: all]", metavar="HOST...")]


@hosts.command(epilog="Example: atoll hosts enroll --inventory rack.yaml w1")
def enroll(
    inventory: InventoryFile,
    names: MachineNames = None,
    yes: Annotated[bool, typer.Option("--yes", help="trust the keys without asking")] = False,
    json: Json = False,
) -> None:
    """Trust the host keys of machines, after confirmation."""
    from atoll_cli.commands.ssh_machines import enroll_keys

    raise typer.Exit(enroll_keys(inventory, names or [], yes=yes, as_json=json))


@hosts.command(epilog="Example: atoll hosts install --inventory rack.yaml")
def install(inventory: InventoryFile, names: MachineNames = None, json: Json = False) -> None:
    """Install atoll-host on each machine; machines that have it are skipped."""
    from atoll_cli.commands.ssh_machines import install_binaries

    raise typer.Exit(install_binaries(inventory, names or [], as_json=json))


@hosts.command(epilog="Example: atoll hosts ping --inventory rack.yaml w1 w2")
def ping(inventory: InventoryFile, names: MachineNames = None, json: Json = False) -> None:
    """Start every machine's agent and measure its response time and clock offset."""
    from atoll_cli.commands.ssh_machines import ping_agents

    raise typer.Exit(ping_agents(inventory, names or [], as_json=json))


@hosts.command(epilog="Example: atoll hosts status --inventory rack.yaml --json")
def status(inventory: InventoryFile, names: MachineNames = None, json: Json = False) -> None:
    """Show every machine's system, missing prerequisites, and the lab that uses it."""
    from atoll_cli.commands.ssh_machines import show_status

    raise typer.Exit(show_status(inventory, names or [], as_json=json))


@hosts.command("exec", epilog="Example: atoll hosts exec --inventory rack.yaml --host w1 --host w2 -- uname -a")
def execute(
    inventory: InventoryFile,
    command: Annotated[list[str], typer.Argument(help="program and arguments", metavar="COMMAND...")],
    names: Annotated[
        list[str] | None, typer.Option("--host", help="only on this machine; repeatable", metavar="HOST")
    ] = None,
    json: Json = False,
) -> None:
    """Run a command on all machines in parallel and print each one's output."""
    from atoll_cli.commands.ssh_machines import run_command

    raise typer.Exit(run_command(inventory, names or [], command, as_json=json))
