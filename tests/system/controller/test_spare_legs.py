# SPDX-License-Identifier: Apache-2.0
"""A routed box with two pairs of legs: what comes in by one pair leaves by the same, whoever it is for."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_core.plan.plan import HostSettings, InterfaceSettings, RouteSettings
from tests.support.agent_lab import ISLAND, WORLD, Machines, machines

pytestmark = pytest.mark.lab

RULES = "ip rule list; ip route show table 2 || true"


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Machines]:
    """An agent in a sandbox of its own."""
    async with machines(tmp_path) as lab:
        yield lab


def leg(name: str, number: int, peer: InterfaceSettings, prefix: str, table: int | None) -> InterfaceSettings:
    """A leg of the box towards one end."""
    assert peer.address
    neighbours = ((peer.address.split("/")[0], peer.mac),)
    routes = (RouteSettings(prefix),)
    mac = f"02:00:00:00:03:{number:02x}"
    return InterfaceSettings(name, mac, None, routes, neighbours, promiscuous=True, accept_foreign=True, table=table)


BOX = HostSettings(
    host="box",
    interfaces=(
        leg("box-w", 1, WORLD, "10.10.0.0/16", None),
        leg("box-i", 2, ISLAND, "10.20.0.0/16", None),
        leg("box-w2", 3, WORLD, "10.10.0.0/16", 2),
        leg("box-i2", 4, ISLAND, "10.20.0.0/16", 2),
    ),
    sysctls=(("net.ipv4.ip_forward", "1"),),
)


async def ends(lab: Machines, box: str, legs: tuple[InterfaceSettings, ...], suffix: str) -> tuple[str, str]:
    """A world and an island host at a pair of legs; every pair has hosts of the same addresses."""
    found: list[str] = []
    for host, side in zip((WORLD, ISLAND), legs, strict=True):
        netns = await lab.add(f"{host.name}{suffix}")
        await lab.cable((netns, host), (box, side))
        await lab.agent.set_host(HostSettings(f"{host.name}{suffix}", (replace(host),), ()), netns)
        found.append(netns)
    return found[0], found[1]


async def test_what_comes_in_by_one_pair_leaves_by_the_same(lab: Machines) -> None:
    """In both directions, for the same addresses at the same time; undone, nothing of it is left."""
    box = await lab.add("box")
    first = await ends(lab, box, BOX.interfaces[:2], "-1")
    second = await ends(lab, box, BOX.interfaces[2:], "-2")
    rules = await lab.run(box, RULES)
    await lab.agent.set_host(BOX, box)
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
    """A rule of the same words is there already."""
    box = await lab.add("box")
    _, _ = await ends(lab, box, BOX.interfaces[:2], "-1")
    world, _ = await ends(lab, box, BOX.interfaces[2:], "-2")
    await lab.run(box, "ip rule add iif box-w2 lookup 2 && ip rule add iif box-i2 lookup 2")
    await lab.agent.set_host(BOX, box)
    assert "3 received" in await lab.run(world, "ping -c 3 -i 0.05 -W 10 10.20.0.1")
    await lab.agent.unset_host("box")
    assert "lookup 2" not in await lab.run(box, "ip rule list")
