# SPDX-License-Identifier: Apache-2.0
"""Capability profiles: the hardware features of each kind of switch; checks of flow entries and MTUs against them.

Profiles are data: ``profiles/<driver>.toml`` of this package.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from atoll_core.errors import Diagnostic, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.path_mtu import PathMtus
from atoll_core.lab.network import Interface, Network
from atoll_core.lab.shortest_paths import Topology
from atoll_core.lab.twin import TwinBehaviour, TwinSettings
from atoll_core.plan.flow_entry import IPV4, FlowEntry, Match, Output, Vlan
from atoll_core.units import Duration

PROFILES = Path(__file__).parent / "profiles"
_FIELDS = ("in_port", "eth_type", "ipv4_src", "ipv4_dst", "ip_proto", "l4_src", "l4_dst")
_ONLY_IPV4 = "only-ipv4"
_WORDS = {  # the text for a need that is not a field
    "vlan": "match a VLAN id",
    "untagged": "match frames without a VLAN tag",
    "Output": "forward",
    "PushVlan": "push a VLAN tag",
    "PopVlan": "remove a VLAN tag",
    "several-outputs": "send a frame out of several ports",
    _ONLY_IPV4: "match frames that are not IPv4",
}


@dataclass(frozen=True, slots=True)
class TwinFact:
    """A behaviour of the hardware: a field of TwinBehaviour, its value, its source, and if it was seen on a switch."""

    name: str
    value: int | bool | Duration
    source: str
    verified: bool


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of switch: its capacity, and its matches and actions at line rate.

    ``table``: the table for entries if the switch does not report its tables (see ``entry_placement.choose_table``).
    ``software_table``: the table of entries that hardware cannot do; None without such a table. ``config``: the
    template of its configuration; ``chassis``: a command that a chassis for modules of several generations needs.
    ``lag_s``: the time for which its hardware may forward by entries from before a barrier.
    ``mtu``: IP bytes of the longest packet that it forwards, if its ports are configured for that.
    ``unverified``: facts without a reliable source. ``twin``: how the hardware behaves; empty for Open vSwitch.
    """

    driver: str
    title: str
    models: str
    config: str
    table: int
    max_entries: int
    mtu: int
    matches: frozenset[str]
    actions: frozenset[str]
    remedies: dict[str, str]
    only_ipv4: bool = False
    chassis: str = ""
    lag_s: float = 0.0
    unverified: tuple[str, ...] = ()
    twin: tuple[TwinFact, ...] = ()
    software_table: int | None = None

    @property
    def is_hardware(self) -> bool:
        """Whether it has a table in hardware, and another one in software."""
        return self.software_table is not None

    def does(self, need: str) -> bool:
        """Whether it matches or does something at line rate: a field, an action's class, or a word of ``_WORDS``."""
        if need == _ONLY_IPV4:
            return not self.only_ipv4
        return need in self.matches or need in self.actions


@cache
def profile(driver: str) -> Profile:
    """The profile of a driver.

    Raises PlanError, naming the known drivers, when there is none.
    """
    if driver in drivers():
        return _read(tomllib.loads((PROFILES / f"{driver}.toml").read_text(encoding="utf-8")))
    raise PlanError(f"no switch driver is called {driver!r}; known drivers: {', '.join(drivers())}")


def drivers() -> tuple[str, ...]:
    """The names of all drivers."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.toml")))


def refuse_unsupported(network: Network, entries: Iterable[FlowEntry]) -> None:
    """Check that each switch can process its entries in hardware.

    Raises PlanError with a line and a remedy for each missing feature.
    """
    profiles = {switch.name: profile(switch.driver) for switch in network.switches}
    count: Counter[str] = Counter()
    refused: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        count[entry.switch] += 1
        for need in missing_features(profiles[entry.switch], entry):
            refused.setdefault((entry.switch, need), []).append(entry.why)
    lines = [_refusal(profiles[switch], switch, need, whys) for (switch, need), whys in refused.items()]
    for switch, number in count.items():
        kind = profiles[switch]
        if number > kind.max_entries:
            lines.append(
                f"{switch} ({kind.title}) has room for {kind.max_entries} entries, but the plan has {number}; "
                "attach some of its machines to another switch"
            )
    if lines:
        raise PlanError("\n".join(lines))


def unverified(network: Network) -> Iterator[str]:
    """A line for every driver with unverified facts: the facts, and the switches."""
    for driver in dict.fromkeys(switch.driver for switch in network.switches):
        kind = profile(driver)
        if kind.unverified:
            names = ", ".join(switch.name for switch in network.switches if switch.driver == driver)
            yield f"Not verified of {kind.title} ({names}): {'; '.join(kind.unverified)}"


def behaviour(driver: str, settings: TwinSettings) -> TwinBehaviour:
    """How a twin of a driver's hardware behaves, with the settings of a lab. Raises PlanError for Open vSwitch."""
    facts: dict[str, Any] = {fact.name: fact.value for fact in profile(driver).twin}
    if not facts:
        raise PlanError(f"driver {driver!r} is no hardware, so it has no twin")
    return TwinBehaviour(**facts).with_settings(settings)


def missing_features(kind: Profile, entry: FlowEntry) -> Iterator[str]:
    """The features that an entry needs and the hardware does not have, by their names in profiles.

    Hardware that takes only IPv4 does not take an entry for other packets at all: nothing else is named then.
    """
    missing = [need for need in _needs(entry) if not kind.does(need)]
    return iter([_ONLY_IPV4] if _ONLY_IPV4 in missing else missing)


def feature_text(need: str) -> str:
    """A need as text: "push a VLAN tag"."""
    return _WORDS.get(need, f"match {need}")


def remedy_for(kind: Profile, need: str) -> str:
    """The remedy for a feature that the hardware does not have."""
    return kind.remedies.get(need, "choose another driver, or another port for the machine")


def _refusal(kind: Profile, switch: str, need: str, whys: list[str]) -> str:
    """One line: the switch, the missing feature, the first entry that needs it, the remedy."""
    others = f" and {len(whys) - 1} more" if len(whys) > 1 else ""
    what = f"{switch} ({kind.title}) cannot {feature_text(need)} in hardware"
    return f"{what}, needed for '{whys[0]}'{others}; {remedy_for(kind, need)}"


def _needs(entry: FlowEntry) -> Iterator[str]:
    match: Match = entry.match
    yield from (name for name in _FIELDS if getattr(match, name) is not None)
    if match.vlan is not None:
        yield "untagged" if match.vlan is Vlan.UNTAGGED else "vlan"
    if match.eth_type != IPV4:
        yield _ONLY_IPV4
    yield from dict.fromkeys(type(action).__name__ for action in entry.actions)
    if sum(isinstance(action, Output) for action in entry.actions) > 1:
        yield "several-outputs"


def _read(data: dict[str, Any]) -> Profile:
    fields: dict[str, Any] = data | {key: frozenset(data[key]) for key in ("matches", "actions")}
    fields["unverified"] = tuple(data.get("unverified", ()))
    fields["twin"] = tuple(_twin_fact(name, **fact) for name, fact in data.get("twin", {}).items())
    return Profile(**fields)


def _twin_fact(name: str, value: int | bool | str, source: str, verified: bool) -> TwinFact:
    return TwinFact(name, Duration.parse(value) if isinstance(value, str) else value, source, verified)


def too_long(network: Network, experiment: Experiment | None = None) -> Iterator[Diagnostic]:
    """MTUs of cables that a switch does not forward: the one that a cable ends at, or one between two legs of a chain.

    Without an experiment there are no chains.
    """
    drivers = {switch.name: profile(switch.driver) for switch in network.switches}

    def refused(interface: Interface, mtu: int, switch: str) -> Iterator[Diagnostic]:
        kind = drivers[switch]
        if mtu > kind.mtu:
            text = f"{interface.name}: {switch} ({kind.title}) forwards packets of at most {kind.mtu} bytes, not {mtu}"
            remedy = f"write an mtu of at most {kind.mtu}, or attach it to a switch with a larger limit"
            yield Diagnostic(network.file, interface.line, f"{text}; {remedy}")

    for interfaces in network.machines.values():
        for interface in interfaces:
            yield from refused(interface, interface.mtu, interface.attached.switch)
    topology = Topology.of(network)
    for near, far in _stretches(network, experiment) if experiment else ():
        for hop in topology.path(near.attached.switch, far.attached.switch)[:-1]:
            yield from refused(near, min(near.mtu, far.mtu), hop.arrival.switch)


def _stretches(network: Network, experiment: Experiment) -> Iterator[tuple[Interface, Interface]]:
    """Two interfaces with switches between them: the last before, and the first behind."""
    trunks = [interface for box in network.delay_boxes for interface in box.interfaces]
    worlds = [*(host.interface for host in network.world_hosts), *trunks]
    for legs in PathMtus(network, experiment).legs.values():
        first = [legs[0].interface] if legs else []
        last = [legs[-1].interface] if legs else worlds
        for world in worlds:
            yield from ((world, each) for each in (*first, *(t for t in trunks if t is not world)))
        yield from ((near.interface, far.interface) for near, far in pairwise(legs) if near.box != far.box)
        yield from ((each, host.interface) for each in last for host in network.island_hosts)


def refuse_long_packets(network: Network, experiment: Experiment) -> None:
    """Raise PlanError, with a line each, if a switch does not forward the packets of a cable."""
    if lines := [str(each) for each in dict.fromkeys(too_long(network, experiment))]:
        raise PlanError("\n".join(lines))
