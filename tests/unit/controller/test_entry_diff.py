# SPDX-License-Identifier: Apache-2.0
"""The difference between a plan's flow entries and those the switches hold."""

from dataclasses import replace
from ipaddress import IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from atoll_controller.planner.entry_diff import ChangeAction, diff
from atoll_core.plan.flow_entry import FlowEntry, Match, Output, PushVlan, UnmanagedEntry, Vlan

ENTRY = FlowEntry(
    "sw-c",
    1000,
    Match(3, Vlan.UNTAGGED, ipv4_src=IPv4Network("10.20.0.0/16")),
    (Output(22), Output(16)),
    7,
    "i1 -> sat",
)
FOREIGN = UnmanagedEntry("sw-c", 5, 0, "0001000400000000", "any frame: port NORMAL")

_entries = st.lists(
    st.builds(
        FlowEntry,
        switch=st.sampled_from(["sw-a", "sw-b"]),
        priority=st.sampled_from([1, 2]),
        match=st.builds(Match, in_port=st.integers(1, 3), vlan=st.sampled_from([None, Vlan.UNTAGGED, 5])),
        actions=st.lists(st.builds(Output, port=st.integers(1, 3)) | st.just(PushVlan(9)), max_size=2).map(tuple),
        cookie=st.integers(0, 1),
        why=st.sampled_from(["", "reason"]),
    ),
    unique_by=lambda entry: (entry.switch, entry.priority, entry.match),
)


def test_nothing_to_do_when_the_switch_holds_the_plan() -> None:
    """Reasons are the plan's own: a switch doesn't know them."""
    assert diff([ENTRY], [replace(ENTRY, why="")]) == ()


def test_each_kind_of_difference_has_its_reason() -> None:
    """Missing, unwanted, different actions, different cookie, and what no plan could ask for."""
    unwanted = replace(ENTRY, priority=9)
    (missing,) = diff([ENTRY], [])
    assert (missing.action, missing.entry, missing.reason) == (ChangeAction.ADD, ENTRY, "missing on sw-c")
    (extra,) = diff([], [unwanted])
    assert (extra.action, extra.entry, extra.reason) == (ChangeAction.DELETE, unwanted, "not in the plan")
    (other,) = diff([ENTRY], [replace(ENTRY, actions=(Output(16),))])
    assert (other.action, other.entry) == (ChangeAction.MODIFY, ENTRY)
    assert other.reason == "actions differ: on the switch 'port 16', in the plan 'port 22, port 16'"
    (cookie,) = diff([ENTRY], [replace(ENTRY, cookie=8)])
    assert cookie.reason == "cookie differs: on the switch 0x0000000000000008, in the plan 0x0000000000000007"
    (foreign,) = diff([ENTRY], [FOREIGN, ENTRY])
    assert (foreign.action, foreign.entry) == (ChangeAction.DELETE, FOREIGN)
    assert str(foreign) == (
        "delete sw-c: priority 5, any frame: port NORMAL (not in the plan, and atoll makes no entries of this form)"
    )


def test_an_entry_on_another_switch_is_another_entry() -> None:
    """Identity is switch, priority and match."""
    changes = diff([ENTRY], [replace(ENTRY, switch="sw-i")])
    assert [change.action for change in changes] == [ChangeAction.DELETE, ChangeAction.ADD]


@given(_entries, _entries)
def test_the_changes_lead_to_the_plan(wanted: list[FlowEntry], held: list[FlowEntry]) -> None:
    """Deleting, then adding what the changes say leaves exactly the plan; deletions come first."""
    changes = diff(wanted, held)
    table = {(entry.switch, entry.priority, entry.match): entry for entry in held}
    for change in changes:
        assert isinstance(change.entry, FlowEntry)
        key = (change.entry.switch, change.entry.priority, change.entry.match)
        if change.action is ChangeAction.DELETE:
            del table[key]
        else:
            assert (key in table) == (change.action is ChangeAction.MODIFY)
            table[key] = change.entry
    assert diff(wanted, table.values()) == ()
    assert len(table) == len(wanted)
    order = list(ChangeAction)
    assert [order.index(change.action) for change in changes] == sorted(order.index(c.action) for c in changes)
