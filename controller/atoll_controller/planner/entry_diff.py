# SPDX-License-Identifier: Apache-2.0
"""The differences between the plan's entries and those on the switches, with reasons. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry, describe_actions, sort_key


class ChangeAction(StrEnum):
    """The action that removes a difference."""

    DELETE = "delete"
    MODIFY = "modify"
    ADD = "add"


@dataclass(frozen=True, slots=True)
class FlowChange:
    """One difference of a switch's table. ``entry``: the plan's to add or modify, the switch's to delete."""

    action: ChangeAction
    entry: FlowEntry | UnmanagedEntry
    reason: str

    def __str__(self) -> str:
        return f"{self.action:<6} {self.entry} ({self.reason})"


def diff(planned: Iterable[FlowEntry], installed: Iterable[FlowEntry | UnmanagedEntry]) -> tuple[FlowChange, ...]:
    """The changes that lead to exactly the planned entries: deletions first, each group in the entries' order.

    Entries are compared by switch, priority and match, then by actions and cookie; ``why`` is not on the switch.
    """
    installed = tuple(installed)
    unmanaged = sorted((entry for entry in installed if isinstance(entry, UnmanagedEntry)), key=str)
    managed = {entry.identity: entry for entry in installed if isinstance(entry, FlowEntry)}
    plan = {entry.identity: entry for entry in planned}
    unmanaged_changes = [
        FlowChange(ChangeAction.DELETE, entry, "not in the plan, and atoll makes no entries of this form")
        for entry in unmanaged
    ]
    deleted = [
        FlowChange(ChangeAction.DELETE, entry, "not in the plan") for key, entry in managed.items() if key not in plan
    ]
    changed = [
        FlowChange(ChangeAction.MODIFY, entry, reason)
        for key, entry in plan.items()
        if key in managed and (reason := _difference(entry, managed[key]))
    ]
    added = [
        FlowChange(ChangeAction.ADD, entry, f"missing on {entry.switch}")
        for key, entry in plan.items()
        if key not in managed
    ]
    return (*unmanaged_changes, *_in_order(deleted), *_in_order(changed), *_in_order(added))


def with_reasons(
    installed: Iterable[FlowEntry | UnmanagedEntry], plan: Iterable[FlowEntry]
) -> list[FlowEntry | UnmanagedEntry]:
    """Entries on switches with their reasons from a plan: a switch does not store reasons."""
    reasons = {e.identity: e.why for e in plan}
    return [replace(e, why=reasons.get(e.identity, "")) if isinstance(e, FlowEntry) else e for e in installed]


def _difference(planned: FlowEntry, installed: FlowEntry) -> str | None:
    if planned.actions != installed.actions:
        on_switch, in_plan = describe_actions(installed.actions), describe_actions(planned.actions)
        return f"actions differ: on the switch '{on_switch}', in the plan '{in_plan}'"
    if planned.cookie != installed.cookie:
        return f"cookie differs: on the switch {installed.cookie:#018x}, in the plan {planned.cookie:#018x}"
    return None


def _in_order(changes: list[FlowChange]) -> list[FlowChange]:
    return sorted(
        changes, key=lambda change: sort_key(change.entry) if isinstance(change.entry, FlowEntry) else ("", 0, ())
    )
