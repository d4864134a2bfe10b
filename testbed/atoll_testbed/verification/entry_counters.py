# SPDX-License-Identifier: Apache-2.0
"""Packet counters of flow entries as evidence of the path of packets."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from atoll_controller.fabric.flow_installer import table_of
from atoll_controller.openflow.controller_client import Controller
from atoll_controller.tracing.table_model import Delivery, Lookup, Step
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry

# Open vSwitch adds up what its datapath has counted twice a second; only what was new to the datapath counts at once.
_COUNT_TIMEOUT_S = 1.5
_POLL_S = 0.1

_SLOW_DRIVERS = ("procurve",)  # drivers whose hardware updates its counters every 20 s

Counts = Mapping[FlowEntry, int]


def prompt_switches(network: Network) -> frozenset[str]:
    """The switches whose counters show a packet soon; for others only sightings are evidence."""
    return frozenset(switch.name for switch in network.switches if not switch.driver.startswith(_SLOW_DRIVERS))


def are_counters_prompt(network: Network, steps: Iterable[Step]) -> bool:
    """Whether all switches on a path have prompt counters, which then show where packets were lost."""
    return prompt_switches(network) >= {step.at.switch for step in steps if isinstance(step, Lookup)}


async def read_counts(controller: Controller, network: Network, entries: Iterable[FlowEntry]) -> dict[FlowEntry, int]:
    """The packet counters of these entries; entries that no switch has are left out. Raises LabError."""
    entries_by_switch: defaultdict[str, list[FlowEntry]] = defaultdict(list)
    for entry in dict.fromkeys(entries):
        entries_by_switch[entry.switch].append(entry)

    async def read(name: str) -> tuple[int | None, ...]:
        switch = network.switch(name)
        return await controller.packets(switch.dpid, entries_by_switch[name], await table_of(controller, switch))

    counters = itertools.chain.from_iterable(await asyncio.gather(*map(read, entries_by_switch)))
    counted_entries = itertools.chain.from_iterable(entries_by_switch.values())
    return {entry: packets for entry, packets in zip(counted_entries, counters, strict=True) if packets is not None}


async def count_increase(
    controller: Controller, network: Network, before: Counts, expected: Collection[FlowEntry], needed: int = 1
) -> dict[FlowEntry, int]:
    """The increase of each counter since ``before``; waits until all ``expected`` increase by ``needed``, or 1.5 s."""
    deadline = asyncio.get_running_loop().time() + _COUNT_TIMEOUT_S
    while True:
        current = await read_counts(controller, network, before)
        increases = {entry: current.get(entry, 0) - packets for entry, packets in before.items()}
        if all(increases.get(entry, 0) >= needed for entry in expected) or asyncio.get_running_loop().time() > deadline:
            return increases
        await asyncio.sleep(_POLL_S)


def counted_path(steps: Iterable[Step], increases: Counts, taps: Collection[str]) -> str:
    """How far packets came on a path, by the last entry that counted them, in words."""
    last_count, sent_to = "", ""
    for step in steps:
        if isinstance(step, Delivery):
            sent_to = sent_to if step.name in taps else f"sent on to {step.name}"
            continue
        progress = "; ".join(filter(None, (last_count, sent_to))) or "no entry counted it"
        if step.entry is None:
            return f"{progress}; at {step.at} no entry matches it"
        if increases.get(step.entry, 0) <= 0:
            return f"{progress}; {entry_label(step.entry)} at {step.at} did not count it"
        last_count, sent_to = f"last counted by {entry_label(step.entry)} at {step.at}", ""
    return "; ".join(filter(None, (last_count, sent_to)))


def entry_label(entry: FlowEntry) -> str:
    """An entry in words: its purpose in the plan, else its match and actions."""
    return f"'{entry.why or str(entry).removeprefix(f'{entry.switch}: ')}'"
