# SPDX-License-Identifier: Apache-2.0
"""Finding entries that one frame could match, held against comparing each with each; plans and networks as JSON."""

import json
from dataclasses import replace
from ipaddress import IPv4Network
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll_apps.compiler.flow_compiler import CompiledEntry
from atoll_apps.compiler.tag_allocation import overlapping_pairs, shadowed_pairs
from atoll_apps.segments.segment import Segment
from atoll_core.codec import from_json, to_json
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.plan.flow_entry import FlowEntry, Match, Output, Vlan
from tests.support.labs import experiments, laboratories


@st.composite
def prefixes(draw: st.DrawFn) -> IPv4Network | None:
    """Prefixes that often lie within each other, or none."""
    bits = draw(st.sampled_from([None, 8, 24, 30, 31, 32]))
    if bits is None:
        return None
    return IPv4Network((int(IPv4Network("10.0.0.0/8").network_address) + draw(st.integers(0, 7)), bits), strict=False)


entries = st.builds(
    lambda src, dst, protocol, port: FlowEntry(
        "sw", 1000, Match(1, Vlan.UNTAGGED, ipv4_src=src, ipv4_dst=dst, ip_proto=protocol), (Output(port),), 0, ""
    ),
    src=prefixes(),
    dst=prefixes(),
    protocol=st.sampled_from([None, 6, 17]),
    port=st.integers(2, 4),
)


def compiled(flow_entries: list[FlowEntry]) -> list[CompiledEntry]:
    return [CompiledEntry(entry, cast("Segment", None), at_start=False) for entry in flow_entries]


def meet(one: IPv4Network | None, other: IPv4Network | None) -> bool:
    return one is None or other is None or one.overlaps(other)


def ambiguous(one: FlowEntry, other: FlowEntry) -> bool:
    a, b = one.match, other.match
    protocols = a.ip_proto is None or b.ip_proto is None or a.ip_proto == b.ip_proto
    return one.actions != other.actions and protocols and meet(a.ipv4_src, b.ipv4_src) and meet(a.ipv4_dst, b.ipv4_dst)


@given(st.lists(entries, max_size=8), st.lists(entries, max_size=8))
def test_every_pair_found_is_one_and_none_is_missed(mine: list[FlowEntry], others: list[FlowEntry]) -> None:
    """Of pairs that differ in nothing but addresses one stands for all, but every entry of mine with any is named."""
    found = [(one.entry, other.entry) for one, other in overlapping_pairs(compiled(mine), compiled(others))]
    assert all(ambiguous(one, other) for one, other in found)
    assert {one for one, _ in found} == {one for one in mine if any(ambiguous(one, other) for other in others)}


def covers(one: FlowEntry, other: FlowEntry) -> bool:
    """Whether one matches every frame that the other does."""
    ends = ((one.match.ipv4_src, other.match.ipv4_src), (one.match.ipv4_dst, other.match.ipv4_dst))
    within = all(outer is None or (inner is not None and inner.subnet_of(outer)) for outer, inner in ends)
    return within and one.match.ip_proto in (None, other.match.ip_proto)


@given(
    st.lists(
        st.builds(lambda entry, priority: replace(entry, priority=priority), entries, st.integers(1, 4)), max_size=8
    )
)
def test_every_entry_that_is_never_reached_is_found(placed: list[FlowEntry]) -> None:
    """Each with one that takes all its frames before it."""
    found = [(low.entry, high.entry) for low, high in shadowed_pairs(compiled(placed))]
    assert all(covers(high, low) and high.priority > low.priority for low, high in found)
    assert {low for low, _ in found} == {
        low for low in placed if any(covers(high, low) and high.priority > low.priority for high in placed)
    }


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_networks_and_experiments_survive_json(data: st.DataObject) -> None:
    """Boxes of every kind, spare legs, branches and what they carry: a manifest holds them all."""
    network = data.draw(laboratories())
    experiment = data.draw(experiments(network))
    assert from_json(Network, json.loads(json.dumps(to_json(network)))) == network
    assert from_json(Experiment, json.loads(json.dumps(to_json(experiment)))) == experiment
