# SPDX-License-Identifier: Apache-2.0
"""A routed box with two pairs of legs: what comes in by one pair leaves by the same, whoever it is for."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.agent_lab import TWO_PAIRS, Machines, ends, machines

pytestmark = pytest.mark.lab

RULES = "ip rule list; ip route show table 2 || true"


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Machines]:
    """An agent in a sandbox of its own."""
    async with machines(tmp_path) as lab:
        yield lab


async def test_what_comes_in_by_one_pair_leaves_by_the_same(lab: Machines) -> None:
    """In both directions, for the same addresses at the same time; undone, nothing of it is left."""
    box = await lab.add("box")
    first = await ends(lab, box, TWO_PAIRS.interfaces[:2], "-1")
    second = await ends(lab, box, TWO_PAIRS.interfaces[2:], "-2")
    rules = await lab.run(box, RULES)
    await lab.agent.set_host(TWO_PAIRS, box)
    counted = "cat /proc/net/dev | grep -o 'i-eth0: *[0-9]* *[0-9]*' | awk '{print $NF}'"
    for world, island, other in ((*first, second[1]), (*second, first[1])):
        before = [int(await lab.run(netns, counted)) for netns in (island, other)]
        assert "5 received" in await lab.run(world, "ping -c 5 -i 0.05 -W 10 10.20.0.1")
        assert "5 received" in await lab.run(island, "ping -c 5 -i 0.05 -W 10 10.10.0.1")
        after = [int(await lab.run(netns, counted)) for netns in (island, other)]
        assert after[0] - before[0] == 10, "five requests, five replies"
        assert after[1] == before[1], "nothing reaches the other pair's host"
    await lab.agent.unset_host("box")
    assert await lab.run(box, RULES) == rules


async def test_rules_of_an_agent_that_was_killed_are_no_hindrance(lab: Machines) -> None:
    """Rules of the same words are there already; that of somebody else stays."""
    box = await lab.add("box")
    _, _ = await ends(lab, box, TWO_PAIRS.interfaces[:2], "-1")
    world, _ = await ends(lab, box, TWO_PAIRS.interfaces[2:], "-2")
    left = [f"ip rule add priority 12 iif {leg} lookup 2 protocol 97" for leg in ("box-w2", "box-i2")]
    await lab.run(box, " && ".join([*left, "ip rule add iif box-w2 lookup 2"]))
    await lab.agent.set_host(TWO_PAIRS, box)
    assert "3 received" in await lab.run(world, "ping -c 3 -i 0.05 -W 10 10.20.0.1")
    await lab.agent.unset_host("box")
    rules = await lab.run(box, "ip rule list")
    assert [line.split("from")[1] for line in rules.splitlines() if "lookup 2" in line] == [" all iif box-w2 lookup 2"]
