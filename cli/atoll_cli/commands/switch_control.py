# SPDX-License-Identifier: Apache-2.0
"""`atoll switches control`: the entries of in-band control, installed by a controller of its own."""

import asyncio
import sys
from pathlib import Path

from atoll_cli.commands.selection import lab_target
from atoll_core.description.loader import load_any
from atoll_core.description.resolve_inventory import load_inventory
from atoll_core.errors import UsageError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Progress
from atoll_core.lab.inventory import Inventory
from atoll_core.lab.network import Network
from atoll_core.plan.switch_features import Runtime
from atoll_core.plural import counted


def install_in_band_control(file: Path, inventory: Path | None) -> None:
    """Install the entries on the switches of an inventory. ``file``: lab.yaml or experiment.yaml.

    Raises UsageError for a lab without in-band control, and LabError.
    """
    network, _ = load_any(file)
    target = lab_target(inventory)
    if target.inventory is None:
        raise UsageError("name the inventory of the switches: --inventory FILE")
    if not network.in_band_hosts:
        raise UsageError(f"{network.file}: no host has in-band control ('control' of the lab and of hosts)")
    count = asyncio.run(_install(network, load_inventory(target.inventory, network)))
    changed = f"{counted(count, 'change')} of flow entries" if count else "all flow entries were there"
    print(f"in-band control of {counted(len(network.in_band_hosts), 'host')}: {changed}")


async def _install(network: Network, inventory: Inventory) -> int:
    from atoll_testbed.platforms.hardware import controller_with_control  # imports asyncssh

    events = EventBus()
    events.subscribe(lambda event: print(event.text, file=sys.stderr), Progress)
    controller, count = await controller_with_control(network, inventory, Runtime.OS_KEN, events)
    await controller.close()
    return count
