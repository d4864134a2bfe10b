# SPDX-License-Identifier: Apache-2.0
"""Hosts of both ends in groups: any chain carries for all of a group or for none."""

from ipaddress import IPv4Network
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll_core.experiment.experiment import Protocol
from atoll_core.experiment.host_groups import Sides
from tests.support.labs import experiments, laboratories


@settings(max_examples=50)
@given(st.data())
def test_a_block_stands_for_all_its_pairs(data: st.DataObject) -> None:
    """Every pair of hosts is in one block, and all pairs of a block have one carrier for each protocol."""
    network = data.draw(laboratories())
    asked = data.draw(experiments(network))
    blocks = list(Sides(network, asked).blocks())
    pairs = [(world.name, island.name) for block in blocks for world, island in product(*block)]
    assert sorted(pairs) == sorted((w.name, i.name) for w, i in product(network.world_hosts, network.island_hosts))
    for block, kind in product(blocks, (*Protocol, None)):
        assert len({asked.carrier(world.address, island.address, kind) for world, island in product(*block)}) == 1


@given(st.data())
def test_hosts_within_a_prefix(data: st.DataObject) -> None:
    """As each host's own address says, in the order of the description."""
    network = data.draw(laboratories())
    end = Sides(network).world
    hosts = [IPv4Network(host.address) for host in network.hosts]
    prefix = data.draw(st.sampled_from([None, network.world, IPv4Network("10.10.0.0/30"), *hosts]))
    assert end.hosts_in(prefix) == tuple(h for h in network.world_hosts if prefix is None or h.address in prefix)
