# SPDX-License-Identifier: Apache-2.0
"""`switches`: the lab's switches as they are now, in a table, all of it with --json; and how each is configured."""

import asyncio
import json as json_format
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll_cli.terminal.options import PlainArguments, Rack
from atoll_core.errors import LabError, UsageError
from atoll_core.plan.switch_features import UnmanagedState

if TYPE_CHECKING:
    from atoll_switches.configuration import ControllerAddress

switches = typer.Typer(
    help="List the lab's switches: identity, connection state, installed and free flow entries.",
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="Example: atoll switches --json",
)

Json = Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")]
Names = Annotated[
    list[str] | None, typer.Argument(help="switches by their names; all if none is named", metavar="SWITCH...")
]

_NUMBERS = ("entries", "room", "table", "ports")
_WIDTH = 120  # of the widest table


@switches.callback()
def print_switches(
    context: typer.Context,
    json: Json = False,
    inventory: Rack = None,
) -> None:
    """List the lab's switches: identity, connection state, installed and free flow entries."""
    from atoll_cli.commands.selection import mean_rack

    mean_rack(inventory)
    if context.invoked_subcommand is not None:
        return
    found = asyncio.run(_asked())
    if json:
        print(json_format.dumps({"switches": found}))
        return
    from rich.console import Console
    from rich.table import Table

    from atoll_controller.fabric.unmanaged_state import unmanaged_state_text

    table = Table(box=None, pad_edge=False)
    for title in ("switch", "dpid", "", "make", "profile", "entries", "room", "table", "ports"):
        table.add_column(title, justify="right" if title in _NUMBERS else "left", no_wrap=True)
    for each in found:
        table.add_row(*_row(each))
    console = Console()
    console.width = max(console.width, _WIDTH)  # a terminal that is narrower wraps; nothing is cut off
    console.print(table)
    for each in found:
        if each["problem"]:
            print(each["problem"])
        left = UnmanagedState(tuple(each["groups"]), tuple(each["meters"]))
        if left:
            print(f"{each['name']}: {unmanaged_state_text(left)} are of no plan; the next `atoll apply` deletes them")


@switches.command(cls=PlainArguments, epilog="Example: atoll switches entries sw-c")
def entries(names: Names = None, inventory: Rack = None, json: Json = False) -> None:
    """List the flow entries that switches hold: match, actions, packets counted, and what each is for."""
    from atoll_cli.commands.selection import mean_rack
    from atoll_cli.commands.switch_tables import print_entries

    mean_rack(inventory)
    print_entries(names or [], as_json=json)


@switches.command(cls=PlainArguments, epilog="Example: atoll switches counters --json")
def counters(names: Names = None, inventory: Rack = None, json: Json = False) -> None:
    """List what the ports of switches have counted."""
    from atoll_cli.commands.selection import mean_rack
    from atoll_cli.commands.switch_tables import print_counters

    mean_rack(inventory)
    print_counters(names or [], as_json=json)


@switches.command(
    cls=PlainArguments, epilog="Example: atoll switches config sw-c examples/geo.yaml --controller 192.0.2.10"
)
def config(
    switch: Annotated[str, typer.Argument(help="the switch, by its name in the lab", metavar="SWITCH")],
    experiment: Annotated[
        Path,
        typer.Argument(
            help="experiment.yaml: its flow entries tell which VLAN tags cross which port", metavar="EXPERIMENT"
        ),
    ],
    controller: Annotated[
        str, typer.Option("--controller", help="where the controller listens", metavar="ADDRESS[:PORT]")
    ],
    out_of_band: Annotated[
        bool, typer.Option("--out-of-band", help="it is reached by the switch's management port")
    ] = False,
) -> None:
    """Print a switch's own configuration, ready to paste: OpenFlow, controller, VLANs, ports."""
    from atoll_apps.steering import flow_entries
    from atoll_cli.commands.selection import experiment_with
    from atoll_switches.configuration import configuration

    network, described = experiment_with(experiment, None, None, ())
    planned = flow_entries(network, described)
    print(configuration(network, switch, planned, _reached(controller, out_of_band=out_of_band)), end="")


def _reached(text: str, *, out_of_band: bool) -> "ControllerAddress":
    from atoll_switches.configuration import OPENFLOW_PORT, ControllerAddress

    address, colon, port = text.partition(":")
    number = int(port) if port.isdecimal() and port.isascii() else 0 if colon else OPENFLOW_PORT
    try:
        found = IPv4Address(address)
    except AddressValueError:
        found = None
    if found is not None and 1 <= number <= 65535:
        return ControllerAddress(found, number, out_of_band)
    raise UsageError(f"--controller {text!r:.60}: write an IPv4 address, with :PORT if it is not {OPENFLOW_PORT}")


async def _asked() -> list[dict[str, Any]]:
    from atoll_daemon.client import connected
    from atoll_daemon.http.http_errors import no_lab_is_up

    async with connected() as daemon:
        if daemon is None:
            raise LabError(no_lab_is_up())
        return await daemon.switches()


def _row(switch: dict[str, Any]) -> list[str]:
    made = " ".join(filter(None, (switch["hardware"] or switch["manufacturer"], switch["software"])))
    return [
        switch["name"],
        f"{switch['dpid']:#x}",
        "up" if switch["up"] else "down",
        made or "-",
        switch["driver"],
        _number(switch["entries"]),
        _number(switch["room"]),
        "-" if switch["table"] is None else f"{switch['table']} of {switch['tables']}",
        str(len(switch["ports"])) if switch["up"] else "-",
    ]


def _number(known: int | None) -> str:
    return "-" if known is None else str(known)
