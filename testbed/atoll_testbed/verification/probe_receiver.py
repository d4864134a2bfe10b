# SPDX-License-Identifier: Apache-2.0
"""Receive probes: an ``atoll-host probe`` job on each machine that sends or receives some of them."""

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from atoll_controller.planner.job_limits import privileges_of_subcommand
from atoll_controller.tracing.table_model import Delivery, Step
from atoll_core.errors import LabError
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_hosts.job import Job
from atoll_hosts.machine import Machine

_STOP_GRACE_S = 1.0

_sessions = itertools.count(1)  # unique in the lab: only this process has its agents send probes


Station = tuple[str, str]
"""A machine and its interface on which frames arrive."""

Sighting = tuple[str, str, int | None]
"""A frame at a station: machine, interface, and VLAN id of its tag there."""


@dataclass(frozen=True, slots=True)
class SentProbe:
    """A probe that a host sends: destination address, and protocol number of the IPv4 header."""

    number: int
    address: IPv4Address
    protocol: int


@dataclass(frozen=True, slots=True)
class SeenProbe:
    """A probe or an answer that a machine has received. ``t_ns``: CLOCK_REALTIME of that machine's kernel."""

    machine: str
    interface: str
    vlan: int | None
    number: int
    attempt: int
    answer: bool
    t_ns: int


def station(network: Network, name: str, port: PortRef) -> Station | None:
    """The station for frames that a switch sends to a host, box or tap; None for an external device.

    None, too, for a learning switch, which floods frames for addresses of no host behind it.
    """
    if any(box.name == name and not box.is_managed for box in network.boxes):
        return None
    machine = next((tap.host for tap in network.taps if tap.name == name), name)
    if machine not in network.machines:
        return None
    return machine, next(interface.name for interface in network.machines[machine] if interface.attached == port)


def stations(network: Network) -> frozenset[Station]:
    """All stations of the lab."""
    unmanaged = {box.name for box in network.boxes if not box.is_managed}
    return frozenset(
        (name, interface.name)
        for name, interfaces in network.machines.items()
        if name not in unmanaged
        for interface in interfaces
    )


def sightings(network: Network, steps: Iterable[Step]) -> frozenset[Sighting]:
    """The sightings of a frame on a path."""
    deliveries = (step for step in steps if isinstance(step, Delivery))
    return frozenset(
        (*at, step.frame.vlan) for step in deliveries if (at := station(network, step.name, step.port)) is not None
    )


def boxes_and_taps(network: Network) -> dict[str, list[str]]:
    """The machines of boxes and taps, with the interfaces that receive frames for other machines."""
    hosts = {host.name for host in network.hosts}
    interfaces: dict[str, list[str]] = {}
    for machine, interface in sorted(stations(network)):
        if machine not in hosts:
            interfaces.setdefault(machine, []).append(interface)
    return interfaces


class Watch:
    """The probes seen so far in a session. ``sent_ns``: when hosts sent them, by number and attempt.

    ``path_stations``: the stations whose sightings are the path of an attempt.
    """

    def __init__(self, path_stations: Collection[Station] = ()) -> None:
        self._path_stations = path_stations
        self.session = next(_sessions)
        self.seen: list[SeenProbe] = []
        self.sent_ns: dict[tuple[int, int], int] = {}
        self._seen_by_machine: defaultdict[tuple[str, bool], set[int]] = defaultdict(set)
        self._seen_at_station: defaultdict[Station, set[int]] = defaultdict(set)
        self._attempts: defaultdict[int, defaultdict[int, set[Sighting]]] = defaultdict(lambda: defaultdict(set))
        self._change = asyncio.Event()

    def take(self, machine: str, line: dict[str, Any]) -> None:
        """Take a line of the job on a machine."""
        if line.get("type") == "sent":
            self.sent_ns[line["number"], line["attempt"]] = line["t_ns"]
        if line.get("type") == "seen":
            fields = (line[key] for key in ("number", "attempt", "answer", "t_ns"))
            probe = SeenProbe(machine, line["interface"], line.get("vlan"), *fields)
            self.seen.append(probe)
            self._seen_by_machine[machine, probe.answer].add(probe.number)
            if not probe.answer:
                self._seen_at_station[machine, probe.interface].add(probe.number)
                if (machine, probe.interface) in self._path_stations:
                    self._attempts[probe.number][probe.attempt].add((machine, probe.interface, probe.vlan))
            self._change.set()

    def seen_by_machine(self, number: int, machine: str, *, answer: bool) -> bool:
        """Whether a machine has received any attempt of a probe, or an answer to one."""
        return number in self._seen_by_machine[machine, answer]

    def seen_at_station(self, number: int, at: Station) -> bool:
        """Whether any attempt of a probe was seen at a station."""
        return number in self._seen_at_station[at]

    def attempts_of(self, number: int) -> Collection[AbstractSet[Sighting]]:
        """The sightings of each attempt of a probe so far."""
        return self._attempts[number].values()

    def attempts_on_path(self, number: int, path: AbstractSet[Sighting], *, exact: bool) -> int:
        """The number of attempts that were seen at all sightings of a path; with ``exact``, and nowhere else."""
        return sum(seen == path if exact else seen >= path for seen in self.attempts_of(number))

    async def wait_until(self, is_enough: Callable[[], bool], limit_s: float) -> bool:
        """Wait until ``is_enough`` returns true, at most for the limit; returns its last result."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not is_enough():
                    self._change.clear()
                    await self._change.wait()
        return is_enough()


@contextlib.asynccontextmanager
async def receiving_probes(
    machine_named: Callable[[str], Machine],
    watch: Watch,
    machines: Mapping[str, IPv4Address | None],
    promiscuous: Mapping[str, Sequence[str]] | None = None,
) -> AsyncGenerator[None]:
    """Receive probes on these machines during the block; machines with an address answer probes to it.

    ``promiscuous``: the interfaces of each machine that also receive frames for other machines.
    """
    extra = promiscuous or {}
    configs = {name: job_config(watch, address, promiscuous=extra.get(name, ())) for name, address in machines.items()}
    async with _jobs(machine_named, watch, configs, "watch"):
        yield


@contextlib.asynccontextmanager
async def sending(
    machine_named: Callable[[str], Machine],
    watch: Watch,
    hosts: Mapping[str, tuple[IPv4Address, Sequence[SentProbe]]],
    attempts: int,
    interval_ns: int,
    *,
    until_answered: bool = False,
) -> AsyncGenerator[None]:
    """Have hosts send probes, each from its address, and receive answers there, during the block.

    ``until_answered``: stop sending a probe when it has been answered.
    """
    configs = {
        name: job_config(watch, address, probes, attempts, interval_ns, until_answered=until_answered)
        for name, (address, probes) in hosts.items()
    }
    async with _jobs(machine_named, watch, configs, "send"):
        yield


def job_config(
    watch: Watch,
    address: IPv4Address | None,
    probes: Collection[SentProbe] = (),
    attempts: int = 0,
    interval_ns: int = 1,
    *,
    until_answered: bool = True,
    promiscuous: Sequence[str] = (),
) -> dict[str, Any]:
    """The configuration of a job (docs/contracts.md); ``address`` None: it only receives."""
    return {
        "session": watch.session,
        "address": None if address is None else str(address),
        "send": [{"number": p.number, "address": str(p.address), "protocol": p.protocol} for p in probes],
        "attempts": attempts,
        "interval_ns": interval_ns,
        "until_answered": until_answered,
        "start_at_ns": 0,
        **({"promiscuous": list(promiscuous)} if promiscuous else {}),
    }


@contextlib.asynccontextmanager
async def _jobs(
    machine_named: Callable[[str], Machine], watch: Watch, configs: Mapping[str, dict[str, Any]], task: str
) -> AsyncGenerator[None]:
    jobs: list[Job] = []

    async def start(name: str, config: dict[str, Any]) -> None:
        job = await machine_named(name).start_job(
            f"probe-{task}-{name}-{watch.session}",
            ["atoll-host", "probe"],
            config=config,
            on_line=lambda line: watch.take(name, line),
            privileges=privileges_of_subcommand("probe"),
        )
        jobs.append(job)
        await job.ready()

    try:
        # Wait for each start, so that none starts after the failure of another has ended all of them.
        for outcome in await asyncio.gather(*itertools.starmap(start, configs.items()), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        yield
    finally:
        with contextlib.suppress(LabError):  # the agent is gone, and its jobs with it
            await asyncio.gather(*(job.stop(_STOP_GRACE_S) for job in jobs))
            await asyncio.gather(*(job.wait() for job in jobs))
