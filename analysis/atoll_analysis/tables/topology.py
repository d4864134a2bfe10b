# SPDX-License-Identifier: Apache-2.0
"""The chains of a run, and the links, boxes and captures on them."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from atoll_analysis.tables.change_timeline import NEVER_NS
from atoll_analysis.tables.directions import TO_ISLAND, TO_WORLD, Direction
from atoll_core.experiment.experiment import Chain, Experiment, Link, Protocol
from atoll_core.lab.network import Host, Network
from atoll_core.plan.plan import CapturePoint


class CapturePair(NamedTuple):
    """Two captures, and the boxes that packets pass between them, in the order in which packets pass them."""

    first: str
    last: str
    boxes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunTopology:
    """The lab of a run with all chains that were active. ``periods``: the experiment from each instant (ns) on."""

    experiment: Experiment
    network: Network
    captures: tuple[CapturePoint, ...]
    periods: tuple[tuple[int, Experiment], ...]

    @property
    def chains(self) -> tuple[Chain, ...]:
        """Every chain that was ever active, equal ones once, the main one of each version first."""
        return tuple(dict.fromkeys(chain for _, state in self.periods for chain in (state.chain, *state.branches)))

    @property
    def has_branches(self) -> bool:
        """Whether some of the traffic ever had a chain of its own."""
        return any(experiment.branches for _, experiment in self.periods)

    def links_of(self, chain: Chain) -> tuple[Link, ...]:
        """The satellite links of a chain, from world to island."""
        links = {box.name for box in self.network.boxes if box.is_link}
        return tuple(self.experiment.link(hop) for hop in chain.hops if hop in links)

    @property
    def links(self) -> tuple[Link, ...]:
        """The satellite links that any chain ever passes; those of the chain that the run begins with first."""
        return tuple(dict.fromkeys(link for chain in self.experiment.all_chains for link in self.links_of(chain)))

    def slowest_link(self, capacity_bytes: Callable[[Link], float]) -> Link | None:
        """The slowest link of the chain that the run begins with; if it has none, of all chains.

        It has the least capacity over the run, ``capacity_bytes`` of a link.
        """
        links = self.links_of(self.experiment.versions[0].chain) or self.links
        return min(links, key=capacity_bytes, default=None)

    @property
    def ping_links(self) -> tuple[tuple[Link, ...], ...]:
        """The links that the ping series passed: a tuple for each of its paths, the first one first."""
        return tuple(dict.fromkeys(map(self.links_of, self.special_chains(Protocol.ICMP))))

    def special_chains(self, protocol: Protocol) -> tuple[Chain, ...]:
        """The chains that carried a protocol between the special hosts, in order of time; none without both hosts."""
        if self.network.specials is None:
            return ()
        return self.chains_between(*self.network.specials, protocol)

    def chains_between(
        self, world: Host, island: Host, protocol: Protocol, since_ns: int = 0, until_ns: int = NEVER_NS
    ) -> tuple[Chain, ...]:
        """The chains that carried a protocol between two hosts within a time, in order of time, equal ones once."""
        ends_ns = [*(begin_ns for begin_ns, _ in self.periods[1:]), NEVER_NS]
        states = (
            state
            for (begin_ns, state), end_ns in zip(self.periods, ends_ns, strict=True)
            if begin_ns < until_ns and end_ns > since_ns
        )
        return tuple(dict.fromkeys(state.carrier(world.address, island.address, protocol) for state in states))

    @property
    def tap_captures(self) -> dict[str, str]:
        """The captures of the taps, by their names in the laboratory; those that are not captured are left out."""
        points = {(point.host, point.interface): point.name for point in self.captures}
        taps = {tap.name: (tap.host, tap.interface.name) for tap in self.network.taps}
        return {tap: points[interface] for tap, interface in taps.items() if interface in points}

    @property
    def one_way_captures(self) -> frozenset[str]:
        """The captures of taps that see packets to the island only."""
        one_way = {tap.name for tap in self.network.taps if tap.to_island_only}
        return frozenset(name for tap, name in self.tap_captures.items() if tap in one_way)

    def arrival_capture(self, chain: Chain, captures: Collection[str], direction: Direction = TO_ISLAND) -> str | None:
        """The capture that shows which packets reached the end of a chain in a direction.

        The last tap behind its last link; without one, what leaves the link. Of a chain without a link its last tap,
        if another is before it.
        """
        taps, hops, behind = self.tap_captures, chain.hops, "link"
        links = [link.box for link in self.links_of(chain)]
        if direction is TO_WORLD:
            taps = {tap: name for tap, name in taps.items() if name not in self.one_way_captures}
            hops, links, behind = hops[::-1], links[::-1], "into"
        passed_taps = [hop for hop in hops if hop in taps]
        hops_behind = hops[hops.index(links[-1]) :] if links else passed_taps[1:]
        names = [taps[hop] for hop in reversed(hops_behind) if hop in taps]
        names += [f"{behind}-{box}" for box in reversed(links)]
        return next((name for name in names if name in captures), None)

    def ends(self, captures: Collection[str], direction: Direction = TO_ISLAND) -> tuple[str, str] | None:
        """The captures world and island, in the order in which packets pass them; None: one has no such packets."""
        if not {"world", "island"} <= set(self.captures_of(captures, direction)):
            return None
        return ("world", "island") if direction is TO_ISLAND else ("island", "world")

    def captures_of(self, captures: Collection[str], direction: Direction) -> tuple[str, ...]:
        """Those of ``captures`` that have packets of a direction."""
        return tuple(name for name in captures if direction is TO_ISLAND or name not in self.one_way_captures)

    def capture_pairs(self, captures: Collection[str], direction: Direction = TO_ISLAND) -> Iterator[CapturePair]:
        """Return pairs of ``captures`` with the boxes between them, all of which conserve packets.

        They are neighbours on every chain that passes one of them, so both see the packets of the same chains.
        """
        for pair in self._pairs_to_island(self.captures_of(captures, direction)):
            yield pair if direction is TO_ISLAND else CapturePair(pair.last, pair.first, pair.boxes[::-1])

    def _pairs_to_island(self, captures: Collection[str]) -> Iterator[CapturePair]:
        end = ("", ())
        boxes_between: dict[tuple[str, str], dict[str, None]] = {}
        for chain in self.chains:
            for (first, _), (last, boxes) in pairwise((end, *self._captures_of(chain, captures), end)):
                boxes_between.setdefault((first, last), {}).update(dict.fromkeys(boxes))
        firsts, lasts = (Counter(names) for names in zip(*boxes_between, strict=True))
        conserving = {box.name for box in self.network.boxes if box.conserves}
        for (first, last), boxes in boxes_between.items():
            if first and last and firsts[first] == lasts[last] == 1 and conserving.issuperset(boxes):
                yield CapturePair(first, last, tuple(boxes))

    def links_between_captures(
        self, captures: Collection[str], direction: Direction = TO_ISLAND
    ) -> Iterator[tuple[Link, CapturePair]]:
        """Return the links that are the only one between two such captures, each with its pair."""
        links = {link.box: link for link in self.links}
        for pair in self.capture_pairs(captures, direction):
            passed_links = [links[box] for box in pair.boxes if box in links]
            if len(passed_links) == 1:
                yield passed_links[0], pair

    def _captures_of(self, chain: Chain, captures: Collection[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The captures on a chain, from world to island, each with the boxes since the one before."""
        boxes, links, taps = {box.name for box in self.network.boxes}, self.links_of(chain), self.tap_captures
        link_stations = {link.box: (f"into-{link.box}", link.box, f"link-{link.box}") for link in links}
        boxes_since: list[str] = []
        for station in (name for hop in chain.hops for name in link_stations.get(hop, (taps.get(hop, hop),))):
            if station in boxes:
                boxes_since.append(station)
            elif station in captures:
                yield station, tuple(boxes_since)
                boxes_since = []

    @property
    def tapped_links(self) -> tuple[Link, ...]:
        """Links between the world and the island capture: what is lost between the captures is lost there.

        Empty if packets pass only one of the two taps, or a link between them on one chain and outside them on another,
        or a box between them that does not conserve packets.
        """
        if self._end_taps is None or self.not_conserving:
            return ()
        inside: dict[Link, None] = {}
        outside: set[Link] = set()
        for chain in self.chains:
            if {*self._end_taps} & {*chain.hops} and not self.passes_both_end_taps(chain):
                return ()
            links, between = self.links_of(chain), self._between_end_taps(chain)
            inside |= dict.fromkeys(link for link in links if link.box in between)
            outside |= {link for link in links if link.box not in between}
        return () if outside & inside.keys() else tuple(inside)

    @property
    def not_conserving(self) -> tuple[str, ...]:
        """The boxes between the world and the island capture, on any chain, that do not conserve packets."""
        between = dict.fromkeys(hop for chain in self.chains for hop in self._between_end_taps(chain))
        changing = {box.name for box in self.network.boxes if not box.conserves}
        return tuple(hop for hop in between if hop in changing)

    def always_passes(self, chain: str, box: str) -> bool:
        """Whether a chain passes a box in all versions of the run that have a chain of this name."""
        return all(box in version.hops for version in self.chains if version.name == chain)

    def passes_both_end_taps(self, chain: Chain) -> bool:
        """Whether the chain has the taps of the captures world and island, in this order."""
        if self._end_taps is None:
            return False
        first, last = self._end_taps
        return first in chain.hops and last in chain.hops[chain.hops.index(first) :]

    def conserves(self, chain: Chain) -> bool:
        """Whether packets stay as they are between these taps, but for those that links lose."""
        return self.passes_both_end_taps(chain) and not set(self._between_end_taps(chain)) & set(self.not_conserving)

    def is_coded(self, chain: Chain) -> bool:
        """Whether boxes that carry packets in tunnels are between these taps, and no others that change packets."""
        kinds = {box.name: box.kind for box in self.network.boxes}
        changing = [kinds[hop] for hop in self._between_end_taps(chain) if hop in self.not_conserving]
        return bool(changing) and all(kind.encapsulates for kind in changing)

    def _between_end_taps(self, chain: Chain) -> tuple[str, ...]:
        """The hops of a chain between these taps; none if it does not pass both."""
        if not self.passes_both_end_taps(chain):
            return ()
        first, last = self._end_taps or ("", "")
        return chain.hops[chain.hops.index(first) + 1 : chain.hops.index(last)]

    @property
    def places_between_captures(self) -> frozenset[str]:
        """Machines and switch ports that can lose packets between the captures world and island.

        The machines of these two captures, the boxes between them on any chain in use, and the switch ports
        (``sw-c/16``) at which the boxes' frames come in on their way to the island; emulated trunks are patch ports,
        which lose nothing. What is lost elsewhere is missing from both captures or from none.
        """
        if self._end_taps is None:
            return frozenset()
        hops = {hop for chain in self.chains for hop in self._between_end_taps(chain)}
        boxes = [box for box in self.network.boxes if box.name in hops]
        ports = {str(legs.island.attached) for box in boxes for legs in box.pairs}
        captures = {self.network.tap(tap).host for tap in self._end_taps}
        return frozenset({*captures, *(box.name for box in boxes), *ports})

    @property
    def _end_taps(self) -> tuple[str, str] | None:
        """The taps of the captures world and island, where both are taps of the chain that the run begins with."""
        taps = {tap.name for tap in self.network.taps}
        passed_taps = [hop for hop in self.experiment.versions[0].chain.hops if hop in taps]
        return (passed_taps[0], passed_taps[-1]) if len(passed_taps) > 1 else None
