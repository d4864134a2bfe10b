# SPDX-License-Identifier: Apache-2.0
"""`atoll switches`: state, flow entries, counters and configuration of the lab's switches."""

import asyncio
import sys
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll_cli.terminal.options import CommandGroup, InventoryOption, Json
from atoll_core.errors import PlanError, UsageError
from atoll_core.plan.switch_features import Runtime
from atoll_core.plural import counted

if TYPE_CHECKING:
    from atoll_core.lab.inventory import Inventory
    from atoll_core.lab.network import Network

switches = CommandGroup(
    help="List switches, their flow entries and counters.",
    no_args_is_help=False,
    invoke_without_command=True,
    epilog="Example: atoll switches --json",
)

SwitchNames = Annotated[list[str] | None, typer.Argument(help="names of switches [default: all]", metavar="SWITCH...")]
SwitchName = Annotated[str, typer.Argument(help="name of the switch in the lab", metavar="SWITCH")]
DescribedLab = Annotated[Path, typer.Argument(help="lab.yaml or experiment.yaml", metavar="FILE")]
ControllerOption = Annotated[
    str, typer.Option("--controller", help="address on which the controller listens", metavar="ADDRESS[:PORT]")
]
OutOfBand = Annotated[
    bool, typer.Option("--out-of-band", help="the controller is reached by the switch's management port")
]


@switches.callback()
def print_switches(
    context: typer.Context,
    json: Json = False,
    inventory: InventoryOption = None,
) -> None:
    """List the lab's switches: identity, connection state, installed and free flow entries."""
    from atoll_cli.commands.selection import lab_target

    target = lab_target(inventory)
    if context.invoked_subcommand is None:
        from atoll_cli.commands.switch_tables import print_states

        print_states(target, as_json=json)


@switches.command(epilog="Example: atoll switches entries sw-c")
def entries(names: SwitchNames = None, inventory: InventoryOption = None, json: Json = False) -> None:
    """List the flow entries of switches: match, actions, packets counted, and purpose."""
    from atoll_cli.commands.selection import lab_target
    from atoll_cli.commands.switch_tables import print_entries

    print_entries(lab_target(inventory), names or [], as_json=json)


@switches.command(epilog="Example: atoll switches counters --json")
def counters(names: SwitchNames = None, inventory: InventoryOption = None, json: Json = False) -> None:
    """List the counters of switch ports."""
    from atoll_cli.commands.selection import lab_target
    from atoll_cli.commands.switch_tables import print_counters

    print_counters(lab_target(inventory), names or [], as_json=json)


@switches.command(epilog="Example: atoll switches config sw-c examples/geo.yaml --controller 192.0.2.10")
def config(
    switch: SwitchName,
    experiment: Annotated[
        Path,
        typer.Argument(
            help="experiment.yaml; its flow entries determine the VLAN tags of each port", metavar="EXPERIMENT"
        ),
    ],
    controller: ControllerOption,
    out_of_band: OutOfBand = False,
) -> None:
    """Print a switch's own configuration, ready to paste: OpenFlow, controller, VLANs, ports."""
    from atoll_apps.steering import flow_entries
    from atoll_core.description.loader import load_experiment
    from atoll_switches.configuration import configuration

    network, described = load_experiment(experiment)
    planned, address = flow_entries(network, described), _controller_address(controller)
    print(configuration(network, switch, planned, address, out_of_band=out_of_band), end="")


@switches.command(
    epilog="Example: atoll switches diff sw-c running.txt examples/geo.yaml --controller 192.0.2.10",
)
def diff(
    switch: SwitchName,
    running: Annotated[
        Path, typer.Argument(help="file with the output of `show running-config`", metavar="RUNNING-CONFIG")
    ],
    experiment: Annotated[Path, typer.Argument(help="experiment.yaml, as for `config`", metavar="EXPERIMENT")],
    controller: ControllerOption,
    out_of_band: OutOfBand = False,
) -> None:
    """Compare the configuration that a ProCurve runs with the one that it needs; exit code 1 if they differ.

    Lines with + are commands to enter, lines with - are settings of the switch that disturb the lab.
    """
    from atoll_apps.steering import flow_entries
    from atoll_core.description.loader import load_experiment
    from atoll_switches.capability_profile import profile
    from atoll_switches.configuration import configuration
    from atoll_switches.running_config import config_differences

    network, described = load_experiment(experiment)
    planned, address = flow_entries(network, described), _controller_address(controller)
    required = configuration(network, switch, planned, address, out_of_band=out_of_band)
    driver = network.switch(switch).driver
    if not profile(driver).is_hardware:
        raise UsageError(f"{switch} has driver {driver}: only configurations of ProCurve switches can be compared")
    try:
        text = running.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{running}: {error.strerror}") from None
    try:
        differences = config_differences(required, text)
    except PlanError as error:
        raise PlanError(f"{running}: {error}") from None
    for line in differences:
        print(line)
    if differences:
        raise typer.Exit(1)
    print(f"{switch} has the configuration that it needs")


@switches.command(epilog="Example: atoll switches control lab.yaml --inventory rack.yaml")
def control(
    file: DescribedLab,
    inventory: InventoryOption = None,
) -> None:
    """Install the flow entries of in-band control, so that hosts with one interface can be reached.

    It is for the first contact with them, while no lab is up; `atoll up` does the same. All other entries stay.
    """
    from atoll_cli.commands.selection import lab_target
    from atoll_core.description.loader import load_lab_or_experiment
    from atoll_core.description.resolve_inventory import load_inventory

    network, _ = load_lab_or_experiment(file)
    target = lab_target(inventory)
    if target.inventory is None:
        raise UsageError("name the inventory of the switches: --inventory FILE")
    if not network.in_band_hosts:
        raise UsageError(
            f"{network.file}: no host has in-band control; set control: for the lab and for each such host"
        )
    count = asyncio.run(_install_control(network, load_inventory(target.inventory, network)))
    changes_text = f"{counted(count, 'change')} of flow entries" if count else "all flow entries were there"
    print(f"in-band control of {counted(len(network.in_band_hosts), 'host')}: {changes_text}")


@switches.command(epilog="Example: atoll switches probe sw-c lab.yaml --inventory rack.yaml")
def probe(
    switch: SwitchName,
    file: DescribedLab,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            help="where the switch connects [default: of the inventory, else 127.0.0.1:6653]",
            metavar="ADDRESS[:PORT]",
        ),
    ] = None,
    inventory: InventoryOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="the switch carries nothing else; do not ask")] = False,
    json: Json = False,
) -> None:
    """Measure how a hardware switch behaves, and compare it with its driver's profile; exit code 1 if they differ.

    Only for a switch that carries nothing else: its flow table is filled, and cleared at the end. It takes minutes.
    """
    from atoll_cli.commands.switch_probe import probe_switch

    raise typer.Exit(probe_switch(switch, file, inventory, listen, yes=yes, as_json=json))


def _controller_address(text: str) -> tuple[IPv4Address, int]:
    from atoll_switches.configuration import OPENFLOW_PORT

    address, colon, port = text.partition(":")
    port_number = int(port) if port.isdecimal() and port.isascii() else 0 if colon else OPENFLOW_PORT
    try:
        parsed = IPv4Address(address)
    except AddressValueError:
        parsed = None
    if parsed is not None and 1 <= port_number <= 65535:
        return parsed, port_number
    raise UsageError(f"--controller {text!r:.60}: write an IPv4 address, with :PORT if the port is not {OPENFLOW_PORT}")


async def _install_control(network: "Network", inventory: "Inventory") -> int:
    from atoll_core.events.event_bus import EventBus
    from atoll_core.events.events import Progress
    from atoll_testbed.platforms.hardware import controller_with_control  # imports asyncssh

    events = EventBus()
    events.subscribe(lambda event: print(event.text, file=sys.stderr), Progress)
    controller, count = await controller_with_control(network, inventory, Runtime.OS_KEN, events)
    await controller.close()
    return count
