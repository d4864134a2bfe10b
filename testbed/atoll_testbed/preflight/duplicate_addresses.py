# SPDX-License-Identifier: Apache-2.0
"""Find machines outside the laboratory that use an address of its hosts, before a run.

Each real machine probes for its own addresses by ARP (RFC 5227): forgotten management controllers and restored images
answer. Hosts of an emulated lab have cables of their own, to which nothing else can be connected.
"""

import asyncio

from atoll_core.errors import RunError
from atoll_core.plan.plan import InterfaceSettings, Plan
from atoll_hosts.machine import Machine
from atoll_testbed.testbed import Testbed


async def check_addresses(testbed: Testbed, plan: Plan) -> None:
    """Probe for the addresses of all real machines at once. Raises RunError with a line for each duplicate."""
    asked = [
        (machine, interface)
        for settings in plan.hosts
        if (machine := testbed.machine(settings.host)).netns is None
        for interface in settings.interfaces
        if interface.address is not None
    ]
    lines = await asyncio.gather(*(_duplicates(machine, interface) for machine, interface in asked))
    if found := [line for each in lines for line in each]:
        raise RunError("\n".join(found))


async def _duplicates(machine: Machine, interface: InterfaceSettings) -> list[str]:
    address = str(interface.address).partition("/")[0]
    return [
        f"DUPLICATE_ADDRESS: {address} has two MAC addresses on the network of {machine.name} ({interface.name}): its "
        f"own {interface.mac}, and {mac}: give the other machine another address, or disconnect it"
        for mac in await machine.agent.other_owners(interface.name, address, interface.mac)
    ]
