# SPDX-License-Identifier: Apache-2.0
"""By which version the edge sends a host's packets on, from where its frames were seen."""

from collections.abc import Iterable

from atoll_controller.fabric.swap_probes import Probe
from atoll_core.plan.flow_entry import FlowEntry, Match
from atoll_testbed.verification.probe_receiver import Sighting, Watch
from atoll_testbed.verification.swap_verification import _CutoverProbe  # pyright: ignore[reportPrivateUsage]

THIRD = ("r3", "r3-w", None)  # a box that neither version has
SAT, TAGGED, TAP, END = (
    ("sat", "sat-w", None),
    ("sat", "sat-w", 4093),
    ("cap", "cap-tap", None),
    ("i1", "i1-eth0", None),
)


def turn(here: Iterable[Sighting], there: Iterable[Sighting]) -> _CutoverProbe:
    """A frame from w1 to i1."""
    entry = FlowEntry("sw-w", 1000, Match(in_port=1), (), 0, "w1 -> sat")
    return _CutoverProbe(7, Probe(entry, "w1", "i1", "main", 1), frozenset(here), frozenset(there), is_indistinct=False)


def seen(*ways: Iterable[Sighting]) -> Watch:
    """Where the attempts of that frame were seen."""
    watch = Watch([each[:2] for way in ways for each in way])
    for attempt, way in enumerate(ways):
        for machine, interface, vlan in way:
            line = {"number": 7, "attempt": attempt, "answer": False, "t_ns": 1, "interface": interface, "vlan": vlan}
            watch.take(machine, {"type": "seen", **line})
    return watch


def test_a_frame_has_turned_when_it_was_seen_where_the_version_leads_and_nowhere_else() -> None:
    """The tag at a box tells versions apart; a frame that is still under way proves nothing."""
    to_new = turn([TAGGED, END], [SAT, TAP, END])
    assert not to_new.has_taken_new_path(seen([SAT, TAP, END], [TAGGED]))
    assert to_new.has_taken_new_path(seen([SAT, TAP, END], [TAGGED, END]))
    assert not to_new.has_taken_new_path(seen([TAGGED, TAP, END]))
    assert not to_new.has_taken_new_path(seen([TAGGED, THIRD, END]))


def test_a_copy_for_a_tap_has_to_be_missing_twice() -> None:
    """Once it may have been lost."""
    without = turn([SAT, END], [SAT, TAP, END])
    assert not without.has_taken_new_path(seen([SAT, TAP, END], [SAT, END]))
    assert without.has_taken_new_path(seen([SAT, END], [SAT, END]))


def test_a_failure_says_whether_packets_still_take_the_other_version() -> None:
    """Or where the frame did not come."""
    to_new = turn([TAGGED, END], [SAT, TAP, END])
    words = "probe w1 -> i1 through chain main, expected at 'w1 -> sat' at sw-w/1: "
    late = "packets of w1 still take the old path 5 s after sw-w acknowledged the change; "
    assert to_new.failure(seen([SAT, TAP, END])) == words + late + "its data plane was not updated"
    assert to_new.failure(seen([TAGGED])) == words + "w1 sent it for 5 s, but it did not reach i1"
