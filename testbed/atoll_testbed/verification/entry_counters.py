# SPDX-License-Identifier: Apache-2.0
"""Entries' counters as proof: which of them have counted a packet since."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from atoll_controller.fabric.flow_installer import table_of
from atoll_controller.openflow.client import Controller
from atoll_controller.tracing.table_model import Delivery, Lookup, Step
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry

# Open vSwitch adds up what its datapath has counted twice a second; only what was new to the datapath counts at once.
_WITHIN_S = 1.5
_LOOK_EVERY_S = 0.1

_SLOW = ("procurve",)  # drivers whose hardware tells its counts every 20 s

Counts = Mapping[FlowEntry, int]


def prompt_switches(network: Network) -> frozenset[str]:
    """The switches whose counters show a packet soon; of others only arrival is a proof."""
    return frozenset(switch.name for switch in network.switches if not switch.driver.startswith(_SLOW))


def tell_in_time(network: Network, steps: Iterable[Step]) -> bool:
    """Whether counters say where packets ended that should have taken these steps: those of all switches on the way."""
    return prompt_switches(network) >= {step.at.switch for step in steps if isinstance(step, Lookup)}


async def counts(controller: Controller, network: Network, entries: Iterable[FlowEntry]) -> dict[FlowEntry, int]:
    """How many packets each of these entries has counted; those that no switch holds are left out. Raises LabError."""
    asked: defaultdict[str, list[FlowEntry]] = defaultdict(list)
    for entry in dict.fromkeys(entries):
        asked[entry.switch].append(entry)

    async def ask(name: str) -> list[tuple[FlowEntry, int]]:
        switch = network.switch(name)
        table = await table_of(controller, switch)
        told = await controller.packets(switch.dpid, asked[name], table)
        return [(entry, packets) for entry, packets in zip(asked[name], told, strict=True) if packets is not None]

    return {entry: packets for each in await asyncio.gather(*map(ask, asked)) for entry, packets in each}


async def count_increase(
    controller: Controller, network: Network, before: Counts, wanted: Collection[FlowEntry], least: int = 1
) -> dict[FlowEntry, int]:
    """By how much each entry's count has risen since, when all those wanted have by ``least`` or had the time to."""
    deadline = asyncio.get_running_loop().time() + _WITHIN_S
    while True:
        now = await counts(controller, network, before)
        rises = {entry: now.get(entry, 0) - packets for entry, packets in before.items()}
        if all(rises.get(entry, 0) >= least for entry in wanted) or asyncio.get_running_loop().time() > deadline:
            return rises
        await asyncio.sleep(_LOOK_EVERY_S)


def how_far(steps: Iterable[Step], rises: Counts, taps: Collection[str]) -> str:
    """How far packets came, by the steps they should have taken and the entries that counted: the last one that did."""
    last, to = "", ""
    for step in steps:
        if isinstance(step, Delivery):
            to = to if step.name in taps else f"sent on to {step.name}"
            continue
        came = "; ".join(filter(None, (last, to))) or "no entry counted it"
        if step.entry is None:
            return f"{came}; at {step.at} no entry takes it"
        if rises.get(step.entry, 0) <= 0:
            return f"{came}; {named(step.entry)} at {step.at} did not count it"
        last, to = f"last counted by {named(step.entry)} at {step.at}", ""
    return "; ".join(filter(None, (last, to)))


def named(entry: FlowEntry) -> str:
    """An entry in words: the reason it was asked for; of one read from a switch, which knows none, what it says."""
    return f"'{entry.why or str(entry).removeprefix(f'{entry.switch}: ')}'"
