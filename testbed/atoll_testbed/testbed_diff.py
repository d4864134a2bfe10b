# SPDX-License-Identifier: Apache-2.0
"""Differences between a testbed and a plan, in words for users."""

from collections.abc import Iterable
from dataclasses import dataclass

from atoll_controller.planner import entry_diff
from atoll_core.plan.flow_entry import FlowEntry, UnmanagedEntry, describe_actions


@dataclass(frozen=True, slots=True)
class TestbedChange:
    """One difference between a testbed and a plan."""

    kind: str  # "flow", "machine" or "box"
    action: str  # "add", "modify" or "delete"
    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.action:<6} {self.kind:<7} {self.subject}: {self.reason}"


def flow_changes(changes: Iterable[entry_diff.FlowChange]) -> tuple[TestbedChange, ...]:
    """Changes of flow entries."""
    return tuple(
        TestbedChange("flow", change.action, f"{change.entry.switch} {_in_words(change.entry)}", change.reason)
        for change in changes
    )


def _in_words(entry: FlowEntry | UnmanagedEntry) -> str:
    if isinstance(entry, UnmanagedEntry) or entry.why:
        return entry.why
    return f"{entry.match}: {describe_actions(entry.actions)}"  # read from a switch, so without a reason
