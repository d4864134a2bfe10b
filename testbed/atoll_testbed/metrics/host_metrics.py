# SPDX-License-Identifier: Apache-2.0
"""What the agents tell of machines, hosts and jobs while a run lasts, as metric points.

Agents tell it of their own accord, once a period: nobody is asked in turn. An emulated lab's one agent tells of the
machine once and of every host; a rack's agents tell of one machine and one host each.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from atoll_core.errors import LabError
from atoll_core.metrics.line_protocol import Point
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_hosts.agent import Agent
from atoll_hosts.clock_offset import clock_offset
from atoll_hosts.machine import Machine
from atoll_testbed.metrics.metric_points import clock_point, metrics_points
from atoll_testbed.testbed import Testbed

Write = Callable[[Iterable[Point]], None]
Unread = Callable[[int], None]

# Eight questions over each stream; clocks that nobody disciplines drift apart by some microseconds a second.
_COMPARE_EVERY_S = 10.0

# An agent that does not answer is ended by its heartbeat; a run that is over does not wait for that.
_LAST_WORDS_S = 2.0


@contextlib.asynccontextmanager
async def told_by_agents(testbed: Testbed, every_s: float, write: Write, unread: Unread) -> AsyncGenerator[None]:
    """While the block lasts, ``write`` gets points every so often, and once more at its end.

    ``unread`` gets how many hosts an agent could not read. An agent that tells nothing - it is an older one, or has
    ended - is noted, and does not keep the others.
    """
    agents = machines_by_agent(testbed)
    comparing = [
        asyncio.create_task(_compare(agent, name, max(every_s, _COMPARE_EVERY_S), write))
        for agent, (name, _) in agents.items()
    ]
    try:
        await asyncio.gather(
            *(_begin(testbed, agent, name, of, every_s, write, unread) for agent, (name, of) in agents.items())
        )
        yield
    finally:
        for task in comparing:
            task.cancel()
        await asyncio.gather(*comparing, *(_end(agent) for agent in agents), return_exceptions=True)


def machines_by_agent(testbed: Testbed) -> dict[Agent, tuple[str, list[Machine]]]:
    """Each agent, what its machine is called, and the machines of the lab that it serves."""
    found: dict[Agent, tuple[str, list[Machine]]] = {}
    for name in testbed.network.machines:
        machine = testbed.machine(name)
        called = name if machine.netns is None else EMULATION
        found.setdefault(machine.agent, (called, []))[1].append(machine)
    return found


async def _begin(
    testbed: Testbed, agent: Agent, name: str, machines: list[Machine], every_s: float, write: Write, unread: Unread
) -> None:
    served = [machine.name for machine in machines]

    def take(told: dict[str, Any]) -> None:
        # Looked up anew: clocks are compared again before clients start.
        write(metrics_points(name, told, testbed.machine(served[0]).clock_offset_ns))
        unread(len(told["unread"]))

    interfaces = testbed.network.machines
    hosts = [(one.name, one.netns, [each.name for each in interfaces[one.name]]) for one in machines]
    try:
        await agent.measure(every_s, hosts, take)
    except LabError as error:
        testbed.on_note(f"no metrics of {', '.join(served)}: {error}")
        unread(len(served))


async def _end(agent: Agent) -> None:
    with contextlib.suppress(LabError, TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            await agent.measure_no_more()


async def _compare(agent: Agent, name: str, every_s: float, write: Write) -> None:
    with contextlib.suppress(LabError):  # that it has ended is the place's to say
        while True:
            write([clock_point(name, await clock_offset(agent), time.time_ns())])
            await asyncio.sleep(every_s)
