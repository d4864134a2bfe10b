# SPDX-License-Identifier: Apache-2.0
"""Guards: a frame that leaves a branch for an address nobody has must not fall into the chain below.

Where a chain's frames are sent on host by host, those for other addresses match nothing of that chain. The entries of
a chain of lower priority at the same port would take them, and might lead them round for ever. A guard drops them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.compiler.tag_allocation import Place, place_of
from atoll_core.plan.flow_entry import FlowEntry


def guards(laid: Iterable[CompiledEntry]) -> Iterator[CompiledEntry]:
    """An entry that drops, just below those of its chain, wherever another chain is lower at the same place."""
    lowest: dict[Place, int] = {}
    wanted: dict[Place, dict[FlowEntry, CompiledEntry]] = defaultdict(dict)
    for each in laid:
        entry, stream, place = each.entry, each.leg.stream, place_of(each.entry)
        lowest[place] = min(entry.priority, lowest.get(place, entry.priority))
        if entry.match.ipv4_dst != stream.dst:
            match = replace(entry.match, ipv4_dst=stream.dst)
            why = f"{each.leg.origin}: chain {each.leg.stretch.chain}, to no host of it"
            drop = replace(entry, match=match, actions=(), priority=entry.priority - 1, why=why)
            wanted[place][drop] = replace(each, entry=drop)
    for place, found in wanted.items():
        yield from (each for each in found.values() if each.entry.priority > lowest[place])
