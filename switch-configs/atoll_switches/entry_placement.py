# SPDX-License-Identifier: Apache-2.0
"""The placement of flow entries: table, hardware or software, reason and cost; the budget of a switch. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from atoll_core.errors import LabError
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import MTU, Network
from atoll_core.lab.twin import TwinSettings
from atoll_core.plan.flow_entry import ARP, FlowEntry
from atoll_core.plan.switch_features import SwitchFeatures, TableFeatures
from atoll_switches.capability_profile import (
    Profile,
    behaviour,
    feature_text,
    missing_features,
    profile,
    remedy_for,
)

_CABLE_BIT_S = 10**9  # of a cable where no link limits the traffic
_PACKETS_PER_ACK = 2  # RFC 5681, 4.2
_CONTROL_PACKETS_S = 1  # of in-band control while measuring: some packets in ten seconds for each host


class TableKind(StrEnum):
    """The part of a switch that has a table and forwards by its entries."""

    DATAPATH = "datapath"  # of Open vSwitch, which makes no difference between entries
    HARDWARE = "hardware"
    SOFTWARE = "software"


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """An entry with its table.

    ``carries_packets_s``: the packets/s of all entries of its switch in software together; None at line rate.
    ``expects_packets_s``: the most that the experiment sends through it, in packets of full size. ``remedy``: how it
    comes to hardware; empty if it is there.
    """

    entry: FlowEntry
    table: int
    table_kind: TableKind
    reason: str
    carries_packets_s: int | None
    expects_packets_s: int
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class SwitchBudget:
    """Entries of a switch's hardware table, of ``capacity``.

    ``most``: at any time, as a swap adds entries before it deletes others; ``when``: then.
    """

    switch: str
    driver: str
    title: str
    entries: int
    most: int
    when: str
    capacity: int

    @property
    def fits(self) -> bool:
        """Whether there is room for them at any time."""
        return self.most <= self.capacity


def place_entries(network: Network, experiment: Experiment, entries: Iterable[FlowEntry]) -> tuple[PlacedEntry, ...]:
    """Place each entry on its switch, by the profile of the switch's driver."""
    profiles = {switch.name: profile(switch.driver) for switch in network.switches}
    software_packets_s = {
        name: behaviour(kind.driver, TwinSettings()).software_packets_per_s
        for name, kind in profiles.items()
        if kind.is_hardware
    }
    rates = packet_rates(experiment)
    return tuple(
        _place(
            profiles[entry.switch],
            entry,
            software_packets_s.get(entry.switch),
            _expected_packets_s(network, entry, rates),
        )
        for entry in entries
    )


def packet_rates(experiment: Experiment) -> tuple[int, int]:
    """Packets/s that an experiment sends at most to the island and to the world, of full size; ACKs are counted."""
    to_island = max((link.to_island.rate.bit_s for link in experiment.links), default=_CABLE_BIT_S) // (8 * MTU)
    to_world = max((link.to_world.rate.bit_s for link in experiment.links), default=_CABLE_BIT_S) // (8 * MTU)
    return max(to_island, to_world // _PACKETS_PER_ACK), max(to_world, to_island // _PACKETS_PER_ACK)


def switch_budgets(
    network: Network, states: Sequence[tuple[str, Iterable[FlowEntry]]], first_name: str = "the experiment"
) -> tuple[SwitchBudget, ...]:
    """The budget of each switch over states of its tables, each with its name; the first is that of the plan."""
    counts = [(when or first_name, Counter(entry.switch for entry in entries)) for when, entries in states]
    budgets: list[SwitchBudget] = []
    for switch in network.switches:
        kind = profile(switch.driver)
        when, most = max(((when, count[switch.name]) for when, count in counts), key=lambda each: each[1])
        planned = counts[0][1][switch.name]
        budgets.append(SwitchBudget(switch.name, kind.driver, kind.title, planned, most, when, kind.max_entries))
    return tuple(budgets)


def _place(kind: Profile, entry: FlowEntry, software_packets_s: int | None, expected: int) -> PlacedEntry:
    if kind.software_table is None:
        return PlacedEntry(entry, kind.table, TableKind.DATAPATH, "forwards all entries alike", None, expected)
    missing = list(missing_features(kind, entry))
    if not missing:
        reason = "its hardware matches and does all of it"
        return PlacedEntry(entry, kind.table, TableKind.HARDWARE, reason, None, expected)
    reason = f"its hardware cannot {' or '.join(map(feature_text, missing))}"
    remedy = "; ".join(dict.fromkeys(remedy_for(kind, need) for need in missing))
    return PlacedEntry(entry, kind.software_table, TableKind.SOFTWARE, reason, software_packets_s, expected, remedy)


def _expected_packets_s(network: Network, entry: FlowEntry, rates: tuple[int, int]) -> int:
    """The packets/s through an entry: those to the end that it leads to, or both where its match does not tell."""
    to_island, to_world = rates
    if not entry.actions:
        return 0
    src, dst = entry.match.ipv4_src, entry.match.ipv4_dst
    if network.control is not None and (entry.match.eth_type == ARP or src == network.control.network):
        return _CONTROL_PACKETS_S
    if (dst and dst.subnet_of(network.island)) or (src and src.subnet_of(network.world)):
        return to_island
    if (dst and dst.subnet_of(network.world)) or (src and src.subnet_of(network.island)):
        return to_world
    return to_island + to_world


_NOT_IN_TABLE_FEATURES = {"several-outputs"}  # in profiles, but not in table features


def choose_table(kind: Profile, features: SwitchFeatures, switch: str) -> int:
    """The number of the first table with all features of the profile and no further required match fields.

    The profile's for a switch without table features. Raises LabError with the missing features of each table when
    there is none: the driver in lab.yaml is wrong.
    """
    if not features.tables:
        return kind.table
    for table in features.tables:
        if not any(_missing_texts(kind, table)):
            return table.first
    missing = "; ".join(
        f"{_table_numbers(table)} {', '.join(_missing_texts(kind, table))}" for table in features.tables
    )
    model = (
        " ".join(filter(None, (features.description.manufacturer, features.description.hardware))) or "unknown model"
    )
    raise LabError(
        f"{switch} ({model}): no table of this switch has the features of driver {kind.driver!r}: {missing}; "
        "correct the driver in lab.yaml"
    )


def table_capacity(features: SwitchFeatures, table: int) -> int | None:
    """The capacity of the table in entries; None if it is not reported."""
    capacities = (each.max_entries for each in features.tables if each.first <= table <= each.last)
    return next(capacities, None) or None


def _missing_texts(kind: Profile, table: TableFeatures) -> Iterator[str]:
    missing = sorted(kind.matches - set(table.matches))
    if missing:
        yield f"does not match {', '.join(missing)}"
    actions = sorted(kind.actions - _NOT_IN_TABLE_FEATURES - set(table.actions))
    if actions:
        yield f"does not do {', '.join(actions)}"
    if table.required and set(table.required) != {"in_port"}:  # every entry matches its ingress port
        yield f"requires that every entry matches {', '.join(table.required)}"


def _table_numbers(table: TableFeatures) -> str:
    return f"table {table.first}" if table.first == table.last else f"tables {table.first} to {table.last}"
