# SPDX-License-Identifier: Apache-2.0
"""Ways over trunks: shortest, complete, and the same for frames that have met."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from atoll_core.lab.network import Trunk
from atoll_core.lab.port_ref import PortRef
from atoll_core.lab.shortest_paths import Topology
from atoll_core.units import Rate


@st.composite
def fabrics(draw: st.DrawFn) -> tuple[list[str], list[Trunk]]:
    """Up to seven switches with any trunks between them, parallel ones and rings included."""
    switches = [f"s{number}" for number in range(draw(st.integers(1, 7)))]
    pairs = list(combinations(switches, 2))
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=10)) if pairs else []
    ports = iter(range(1, 100))
    return switches, [Trunk(PortRef(a, next(ports)), PortRef(b, next(ports)), Rate(1)) for a, b in chosen]


def distances(switches: list[str], trunks: list[Trunk]) -> dict[tuple[str, str], float]:
    """Floyd and Warshall's, to compare with."""
    apart = {(a, b): 0.0 if a == b else float("inf") for a in switches for b in switches}
    for trunk in trunks:
        apart[trunk.a.switch, trunk.b.switch] = apart[trunk.b.switch, trunk.a.switch] = 1
    for via in switches:
        for a in switches:
            for b in switches:
                apart[a, b] = min(apart[a, b], apart[a, via] + apart[via, b])
    return apart


@given(fabrics())
def test_a_way_leads_where_it_should_and_none_is_shorter(fabric):
    switches, trunks = fabric
    ways = Topology(switches, trunks)
    for (start, end), apart in distances(switches, trunks).items():
        way = ways.path(start, end)
        assert (end in ways.reachable(start)) == (apart < float("inf"))
        assert len(way) == (apart if apart < float("inf") else 0)
        at = start
        for hop in way:
            assert hop.out.switch == at
            assert any({hop.out, hop.arrival} == {trunk.a, trunk.b} for trunk in trunks)
            at = hop.arrival.switch
        if way:
            assert at == end


@given(fabrics(), st.randoms())
def test_ways_depend_on_ports_and_not_on_the_order_of_the_description(fabric, random):
    switches, trunks = fabric
    shuffled = random.sample(trunks, len(trunks))
    one, other = Topology(switches, trunks), Topology(switches, shuffled)
    assert all(one.path(a, b) == other.path(a, b) for a in switches for b in switches)


@given(fabrics())
def test_ways_to_one_switch_never_part_after_they_have_met(fabric):
    switches, trunks = fabric
    ways = Topology(switches, trunks)
    for end in switches:
        for start in switches:
            way = ways.path(start, end)
            for index, hop in enumerate(way):
                assert ways.path(hop.arrival.switch, end) == way[index + 1 :]
