# SPDX-License-Identifier: Apache-2.0
"""Data of a run except captures: manifest, events and logs, read and typed."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from atoll_analysis.run_directory.directory import COMPLETED, COUNTERS_FILE, RUNNING, RunDir, read_json_lines
from atoll_analysis.tables.box_counters import BoxMeasurement, Part, Stalls, measurements, stalls
from atoll_analysis.tables.change_timeline import (
    ScheduledChange,
    SteeringPeriod,
    changes,
    standing,
    to_island_over_time,
)
from atoll_core.codec import from_json
from atoll_core.errors import RunDirError
from atoll_core.experiment.channel_allocation import allocate_channels
from atoll_core.experiment.experiment import Chain, Experiment, Link, Protocol
from atoll_core.experiment.link_over_time import LinkOverTime
from atoll_core.lab.network import HostRole, Network
from atoll_core.plan.plan import JobSpec, Phase, Plan


@dataclass(frozen=True, slots=True)
class Window:
    """The measurement window: from the clients' start to their end."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class RunData:
    """Description, events and logs of one run."""

    run_dir: str
    manifest: Mapping[str, Any]
    experiment: Experiment
    network: Network
    plan: Plan
    events: tuple[Mapping[str, Any], ...]
    window: Window | None  # None: nothing was measured
    measurements: tuple[BoxMeasurement, ...]  # of link and delay boxes, from mark "begin" to mark "end"
    stalls: Stalls | None  # of these boxes; None: they measured no lateness
    changes: tuple[ScheduledChange, ...] = ()  # what became of the scheduled ones

    @property
    def placement(self) -> dict[str, int]:
        """How many channels each client has at first, or none; of older runs by the jobs they had."""
        clients = dict.fromkeys((host.name for host in self.network.with_role(HostRole.ISLAND_CLIENT)), 0)
        placed = {each.host: each.channels for each in self.plan.placement}
        had = {job.host: len((job.config or {}).get("channels", ())) for job in self.plan.jobs if is_load(job)}
        return clients | (placed or had)

    @property
    def base_rtt_ns(self) -> int | None:
        """The round-trip time between the special hosts while every queue was empty; None: not measured."""
        return next((int(event["rtt_ns"]) for event in self.of_type("base_rtt")), None)

    @property
    def lasting_placement(self) -> dict[str, int]:
        """How many channels each client has throughout, in every version of the load."""
        least = min(load.channels for load in self.experiment.loads)
        if least == self.experiment.traffic.channels:
            return self.placement
        clients = self.network.with_role(HostRole.ISLAND_CLIENT)
        allocated = allocate_channels(least, [host.capacity for host in clients])
        return {host.name: len(channels) for host, channels in zip(clients, allocated, strict=True)}

    @property
    def in_virtual_time(self) -> bool:
        """Whether the run was made in virtual time."""
        return "virtual" in self.manifest

    @property
    def standing(self) -> tuple[SteeringPeriod, ...]:
        """The steering versions that were active, with their start times."""
        return standing(self.experiment, self.changes)

    @property
    def chains(self) -> tuple[Chain, ...]:
        """Every chain that was ever active, equal ones once, the main one of each version first."""
        states = [each.experiment for each in self.standing]
        return tuple(dict.fromkeys(chain for state in states for chain in (state.chain, *state.branches)))

    @property
    def has_branches(self) -> bool:
        """Whether some of the traffic ever had a chain of its own."""
        return any(each.experiment.branches for each in self.standing)

    def links_of(self, chain: Chain) -> tuple[Link, ...]:
        """The satellite links of a chain, from world to island."""
        links = {box.name for box in self.network.boxes if box.is_link}
        return tuple(self.experiment.link(hop) for hop in chain.hops if hop in links)

    @property
    def links(self) -> tuple[Link, ...]:
        """The satellite links that any chain ever passes; those of the chain that the run begins with first."""
        return tuple(dict.fromkeys(link for chain in self.experiment.all_chains for link in self.links_of(chain)))

    @property
    def ping_links(self) -> tuple[tuple[Link, ...], ...]:
        """The links that the ping series passed: a tuple for each of its paths, the first one first."""
        ends = [self.network.with_role(role) for role in (HostRole.WORLD_SPECIAL, HostRole.ISLAND_SPECIAL)]
        if not all(ends):
            return ()
        world, island = (hosts[0].address for hosts in ends)
        carriers = [each.experiment.carrier(world, island, Protocol.ICMP) for each in self.standing]
        return tuple(dict.fromkeys(self.links_of(chain) for chain in carriers))

    @property
    def tap_captures(self) -> dict[str, str]:
        """The captures of the taps, by their names in the laboratory; those that are not captured are left out."""
        points = {(point.host, point.interface): point.name for point in self.plan.captures}
        found = {tap.name: points.get((tap.host, tap.interface.name)) for tap in self.network.taps}
        return {tap: name for tap, name in found.items() if name is not None}

    @property
    def one_way_captures(self) -> frozenset[str]:
        """The captures of taps that see packets to the island only."""
        one_way = {tap.name for tap in self.network.taps if tap.to_island_only}
        return frozenset(name for tap, name in self.tap_captures.items() if tap in one_way)

    def arrival(self, chain: Chain, captures: Collection[str]) -> str | None:
        """The capture that shows which packets reached the island through a chain.

        The last tap behind its last link; without one, what leaves the link. Of a chain without a link its last tap,
        if another is before it.
        """
        taps = self.tap_captures
        links = [link.box for link in self.links_of(chain)]
        passed = [hop for hop in chain.hops if hop in taps]
        behind = chain.hops[chain.hops.index(links[-1]) :] if links else passed[1:]
        found = [taps[hop] for hop in reversed(behind) if hop in taps] + [f"link-{box}" for box in reversed(links)]
        return next((name for name in found if name in captures), None)

    @property
    def bottleneck(self) -> Link | None:
        """The slowest link towards the island of the chain that the run begins with; if it has none, of all chains.

        It has the least capacity over the run.
        """
        own = self.links_of(self.experiment.versions[0].chain)
        span = self.window or Window(0, self.experiment.duration.ns)
        return min(
            own or self.links,
            key=lambda link: self.over_time(link).capacity_bytes(span.start_ns, span.end_ns),
            default=None,
        )

    def over_time(self, link: Link) -> LinkOverTime:
        """A link's direction to the island over CLOCK_REALTIME; without a measurement, since the load began."""
        origin_ns = self.window.start_ns if self.window else 0
        return to_island_over_time(self.experiment, self.events, origin_ns, link.box)

    @property
    def tapped_links(self) -> tuple[Link, ...]:
        """Links between the world and the island capture: what is lost between the captures is lost there.

        None if packets pass only one of the two taps, or a link between them on one chain and outside them on another,
        or a box between them that does not conserve packets.
        """
        if self._end_taps is None or self.not_conserving:
            return ()
        first, last = self._end_taps
        inside: dict[Link, None] = {}
        outside: set[Link] = set()
        for chain in self.chains:
            links, hops = self.links_of(chain), chain.hops
            if (first in hops) != (last in hops) or (first in hops and hops.index(first) > hops.index(last)):
                return ()
            between = hops[hops.index(first) : hops.index(last)] if first in hops else ()
            inside |= dict.fromkeys(link for link in links if link.box in between)
            outside |= {link for link in links if link.box not in between}
        return () if outside & inside.keys() else tuple(inside)

    @property
    def not_conserving(self) -> tuple[str, ...]:
        """The boxes between the world and the island capture, on any chain, that do not conserve packets."""
        between = dict.fromkeys(hop for chain in self.chains for hop in self._between_end_taps(chain))
        own = {box.name for box in self.network.boxes if not box.conserves}
        return tuple(hop for hop in between if hop in own)

    def always_passes(self, chain: str, box: str) -> bool:
        """Whether a chain passes a box in all versions of the run that have a chain of this name."""
        return all(box in each.hops for each in self.chains if each.name == chain)

    def passes_both(self, chain: Chain) -> bool:
        """Whether the chain has the taps of the captures world and island, in this order."""
        if self._end_taps is None:
            return False
        first, last = self._end_taps
        return first in chain.hops and last in chain.hops[chain.hops.index(first) :]

    def conserves(self, chain: Chain) -> bool:
        """Whether packets stay as they are between these taps, but for those that links lose."""
        return self.passes_both(chain) and not set(self._between_end_taps(chain)) & set(self.not_conserving)

    def is_coded(self, chain: Chain) -> bool:
        """Whether boxes that carry packets in tunnels are between these taps, and no others that change packets."""
        kinds = {box.name: box.kind for box in self.network.boxes}
        own = [kinds[hop] for hop in self._between_end_taps(chain) if hop in self.not_conserving]
        return bool(own) and all(kind.encapsulates for kind in own)

    def _between_end_taps(self, chain: Chain) -> tuple[str, ...]:
        """The hops of a chain between these taps; none if it does not pass both."""
        if self._end_taps is None or not self.passes_both(chain):
            return ()
        first, last = self._end_taps
        return chain.hops[chain.hops.index(first) + 1 : chain.hops.index(last)]

    @property
    def between_captures(self) -> frozenset[str]:
        """Machines and switch ports that can lose packets between the captures world and island.

        The machines of these two captures, the boxes between them on any chain that stood, and the switch ports
        (``sw-c/16``) at which the boxes' frames come in on their way to the island; emulated trunks are patch ports,
        which lose nothing. What is lost elsewhere is missing from both captures or from none.
        """
        if self._end_taps is None:
            return frozenset()
        first, last = self._end_taps
        passed = [chain.hops for chain in self.chains if first in chain.hops and last in chain.hops]
        hops = {hop for each in passed for hop in each[each.index(first) : each.index(last)]}
        boxes = [box for box in self.network.boxes if box.name in hops]
        ports = {str(legs.island.attached) for box in boxes for legs in box.pairs}
        captures = {self.network.tap(tap).host for tap in (first, last)}
        return frozenset({*captures, *(box.name for box in boxes), *ports})

    @property
    def _end_taps(self) -> tuple[str, str] | None:
        """The taps of the captures world and island, where both are taps of the chain that the run begins with."""
        taps = {tap.name for tap in self.network.taps}
        passed = [hop for hop in self.experiment.versions[0].chain.hops if hop in taps]
        return (passed[0], passed[-1]) if len(passed) > 1 else None

    def of_type(self, kind: str) -> tuple[Mapping[str, Any], ...]:
        """Events of one type, in order."""
        return tuple(event for event in self.events if event.get("type") == kind)

    def direction(self, link: Link, name: str) -> Part | None:
        """A link's measurement of a direction, ``to_island`` or ``to_world``, between the marks."""
        parts = (part for m in self.measurements if m.box == link.box for part in m.parts)
        return next((part for part in parts if part.name == name), None)

    @property
    def lateness_max_ns(self) -> int | None:
        """The largest lateness of any departure between the marks; None: not measured."""
        every = [part.lateness_max_ns for m in self.measurements for part in m.parts]
        return max((lateness for lateness in every if lateness is not None), default=None)


def read_run_data(run: RunDir) -> RunData:
    """Read everything of a run but its captures. Raises RunDirError when the manifest holds no request."""
    manifest = run.manifest()
    try:
        experiment = from_json(Experiment, manifest["experiment"])
        network = from_json(Network, manifest["network"])
        plan = from_json(Plan, manifest["plan"])
    except KeyError as missing:
        msg = (
            f"{run.path}: nothing to analyse: the run ended before its plan was computed "
            f"(manifest.json has no {missing})"
        )
        raise RunDirError(msg) from missing
    except (TypeError, ValueError) as error:
        msg = f"{run.path}: manifest.json does not conform to its format {manifest['format']}: {error}"
        raise RunDirError(msg) from error
    events = tuple(run.events())
    window = _window(events, run)
    marks: list[Mapping[str, Any]] = []
    span_ns = (window.start_ns, window.end_ns) if window else None
    stalled = stalls(
        _noting_marks(read_json_lines(run.path / COUNTERS_FILE), marks), experiment.limits.stall.ns, span_ns
    )
    return RunData(
        run_dir=str(run.path),
        manifest=manifest,
        experiment=experiment,
        network=experiment.as_used(network),
        plan=plan,
        events=events,
        window=window,
        measurements=measurements(marks),
        stalls=stalled,
        changes=changes(experiment, events),
    )


def _noting_marks(lines: Iterable[Mapping[str, Any]], marks: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The same lines; on their way the few of them that are marks are noted: all lines of a long run are gigabytes."""
    for line in lines:
        if line.get("type") == "mark":
            marks.append(line)
        yield line


def _window(events: tuple[dict[str, Any], ...], run: RunDir) -> Window | None:
    # A run that was cut short has no window event: it measured from the first client's start to the last word of a box.
    for event in events:
        if event.get("type") == "window":
            return Window(int(event["start_ns"]), int(event["end_ns"]))
    started = [
        int(line["t_ns"])
        for log in sorted(run.logs.glob("load-*.out"))
        for line in read_json_lines(log)
        if line.get("type") == "started"
    ]
    box_lines = read_json_lines(run.path / COUNTERS_FILE)
    last = max((int(line["t_ns"]) for line in box_lines if "t_ns" in line), default=0)
    return Window(min(started), last) if started and min(started) < last else None


def is_load(job: JobSpec) -> bool:
    """Whether a job is an island client's channels (names: atoll_controller.planner.job_plan)."""
    return job.phase is Phase.CLIENT and job.name.startswith("load-")


def cut_short(facts: RunData) -> str | None:
    """How a run that did not complete ended, in one line ("cancelled at step measure"); None: it completed."""
    outcome = str(facts.manifest.get("outcome", RUNNING))
    if outcome == COMPLETED:
        return None
    if outcome != RUNNING:
        return "; ".join(outcome.splitlines())
    begun = [str(event.get("step")) for event in facts.of_type("step") if event.get("state") == "begin"]
    return f"killed at step {begun[-1]}" if begun else "killed before its first step"
