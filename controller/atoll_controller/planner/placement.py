# SPDX-License-Identifier: Apache-2.0
"""The placement of a plan's entries, and the budget of its switches with those of changes: values and text. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from atoll_apps.steering import steer
from atoll_controller.fabric.swap_plan import Swap
from atoll_controller.planner.change_schedule import Scheduled, entries_by_stage
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import EntryId, FlowEntry
from atoll_core.plan.plan import Plan
from atoll_core.plural import columns, counted
from atoll_switches.capability_profile import profile
from atoll_switches.entry_placement import PlacedEntry, SwitchBudget, TableKind, place_entries, switch_budgets


@dataclass(frozen=True, slots=True)
class Placement:
    """Every entry of a plan with its table, and the budget of each switch with those of scheduled changes."""

    entries: tuple[PlacedEntry, ...]
    budgets: tuple[SwitchBudget, ...]

    @property
    def in_software(self) -> tuple[PlacedEntry, ...]:
        """The entries that hardware cannot do."""
        return tuple(placed for placed in self.entries if placed.table_kind is TableKind.SOFTWARE)

    def labels(self) -> dict[EntryId, str]:
        """Place and table of each entry of a switch that has several: ``hardware 100``."""
        several = (placed for placed in self.entries if placed.table_kind is not TableKind.DATAPATH)
        return {placed.entry.identity: f"{placed.table_kind} {placed.table}" for placed in several}

    def notes(self) -> dict[str, tuple[str, ...]]:
        """The lines of a drawing for each switch with several tables: its budget, and its entries in software."""
        notes: dict[str, tuple[str, ...]] = {}
        for budget in _hardware(self.budgets):
            entries = [placed for placed in self.in_software if placed.entry.switch == budget.switch]
            max_rate = max((placed.expects_packets_s for placed in entries), default=0)
            software = f"{len(entries)} in software, for up to {max_rate} packets/s" if entries else "all in hardware"
            notes[budget.switch] = _budget_text(budget), software
        return notes

    def to_json(self) -> dict[str, Any]:
        """The placement as ``atoll plan --json`` has it."""
        return {
            "entries": [
                {
                    "switch": placed.entry.switch,
                    "priority": placed.entry.priority,
                    "match": str(placed.entry.match),
                    "why": placed.entry.why,
                    "table": placed.table,
                    "place": placed.table_kind.value,
                    "reason": placed.reason,
                    "carries_packets_s": placed.carries_packets_s,
                    "expects_packets_s": placed.expects_packets_s,
                    "remedy": placed.remedy or None,
                }
                for placed in self.entries
            ],
            "switches": budgets_json(self.budgets),
        }


def budgets_json(budgets: Sequence[SwitchBudget]) -> list[dict[str, Any]]:
    """The budgets of switches as JSON objects."""
    return [
        {
            "switch": budget.switch,
            "driver": budget.driver,
            "entries": budget.entries,
            "most_entries": budget.most,
            "when": budget.when,
            "capacity": budget.capacity,
            "fits": budget.fits,
        }
        for budget in budgets
    ]


def swap_budgets(network: Network, entries: tuple[FlowEntry, ...], swap: Swap) -> tuple[SwitchBudget, ...]:
    """The budget of each switch that has ``entries``, over all stages of a swap."""
    tables = [("", entries)]
    for stage, stage_entries in zip(swap.stages, entries_by_stage(entries, swap), strict=True):
        part = f"part {stage.part + 1}, " if len(swap.parts) > 1 else ""
        tables.append((f"{part}{stage.subject}: {stage.kind}", stage_entries))
    return switch_budgets(network, tables, first_name="the active experiment")


def budget_lines(budgets: Sequence[SwitchBudget]) -> Iterator[str]:
    """A line for each hardware switch."""
    return (f"{budget.switch}: {_budget_text(budget)}" for budget in _hardware(budgets))


def _hardware(budgets: Sequence[SwitchBudget]) -> list[SwitchBudget]:
    return [budget for budget in budgets if profile(budget.driver).is_hardware]


def place_plan(network: Network, experiment: Experiment, plan: Plan, schedule: Sequence[Scheduled] = ()) -> Placement:
    """Place the entries of a plan, and count those that switches have while scheduled changes are carried out."""
    budgets = switch_budgets(network, [*_states(network, plan, schedule)])
    return Placement(place_entries(network, experiment, plan.flows), budgets)


def placement_text(placement: Placement) -> str:
    """The placement for a terminal: a line for each switch, then each entry in software with its cost and remedy."""
    lines = [f"Placement: {len(placement.entries)} flow entries on {counted(len(placement.budgets), 'switch')}"]
    rows: list[tuple[str, ...]] = []
    for budget in placement.budgets:
        tables = Counter((p.table, p.table_kind) for p in placement.entries if p.entry.switch == budget.switch)
        counts = ", ".join(f"{count} in table {table} ({kind})" for (table, kind), count in sorted(tables.items()))
        rows.append((budget.switch, budget.title, counts or "none", _budget_text(budget)))
    lines += columns(rows, indent="  ")
    for switch, entries in groupby(placement.in_software, key=lambda placed: placed.entry.switch):
        lines += _software_text(switch, list(entries))
    return "\n".join(lines)


def _budget_text(budget: SwitchBudget) -> str:
    text = f"{budget.entries} of {budget.capacity} entries"
    if budget.most > budget.entries:
        text += f", at most {budget.most} during {budget.when}"
    return text if budget.fits else f"{text}: too many by {budget.most - budget.capacity}"


def _software_text(switch: str, placed_entries: list[PlacedEntry]) -> Iterator[str]:
    carries = placed_entries[0].carries_packets_s or 0
    max_rate = max(placed.expects_packets_s for placed in placed_entries)
    share = f"; the experiment sends up to {max_rate}" if max_rate > carries else ""
    limit = f"carry {carries} packets/s together{share}" if carries else "carry what the processor can"
    yield f"  In software on {switch}, which {limit}:"
    groups: dict[tuple[str, str], list[PlacedEntry]] = {}
    for placed in placed_entries:
        groups.setdefault((placed.reason, placed.remedy), []).append(placed)
    for (reason, remedy), entries in groups.items():
        yield f"    {reason}; {remedy}"
        rows = [(p.entry.why, f"{p.expects_packets_s} packets/s", str(p.entry.match)) for p in entries]
        yield from columns(rows, indent="      ")


def _states(network: Network, plan: Plan, schedule: Sequence[Scheduled]) -> Iterator[tuple[str, tuple[FlowEntry, ...]]]:
    """The entries on the switches, with the name of the time."""
    entries = plan.flows
    yield "", entries
    for change in schedule:
        for stage, stage_entries in zip(change.swap.stages, entries_by_stage(entries, change.swap), strict=True):
            yield f"change {change.number} ({stage.subject}: {stage.kind})", stage_entries
        entries = steer(network, change.experiment, change.swap.layout).entries
