# SPDX-License-Identifier: Apache-2.0
"""Metric points of machines, hosts and jobs, which agents report during a run.

Agents send reports periodically, without being polled. The agent of an emulated lab reports on its machine and on all
hosts; each agent of a lab of real machines reports on one machine and one host.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from atoll_core.errors import LabError
from atoll_core.events.events import Note
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_core.metrics.metrics_schema import EMULATION
from atoll_hosts.agent import Agent
from atoll_hosts.machine import Machine, clock_offset
from atoll_testbed.metrics.metric_points import clock_point, metrics_points
from atoll_testbed.testbed import Testbed

Write = Callable[[Iterable[MetricPoint]], None]
Unread = Callable[[int], None]

# Eight requests to each agent; clocks without NTP drift apart by some microseconds a second.
_COMPARE_EVERY_S = 10.0

# Of hosts with in-band control: metrics at the start and at the end only, as they would pass the measured network.
_QUIET_S = 86_400.0

# An agent that does not answer is ended by its heartbeat timeout; the end of a run does not wait for that.
_LAST_WORDS_S = 2.0


@contextlib.asynccontextmanager
async def agent_metrics(testbed: Testbed, every_s: float, write: Write, unread: Unread) -> AsyncGenerator[None]:
    """Call ``write`` with points of all agents every ``every_s`` while the block lasts, and once more at its end.

    ``unread`` takes the number of hosts that an agent could not read. An agent without metrics, because it has ended,
    is noted and does not affect the others. Hosts with in-band control report at the start and at the end only, and
    their clocks are not compared meanwhile.
    """
    agents = machines_by_agent(testbed)
    quiet = {host.name for host in testbed.network.in_band_hosts}  # an emulated lab's machine is none of them
    comparing = [
        asyncio.create_task(_compare(agent, name, max(every_s, _COMPARE_EVERY_S), write))
        for agent, (name, _) in agents.items()
        if name not in quiet
    ]
    try:
        await asyncio.gather(
            *(
                _begin(testbed, agent, name, of, _QUIET_S if name in quiet else every_s, write, unread)
                for agent, (name, of) in agents.items()
            )
        )
        yield
    finally:
        for task in comparing:
            task.cancel()
        await asyncio.gather(*comparing, *(_end(agent) for agent in agents), return_exceptions=True)


def machines_by_agent(testbed: Testbed) -> dict[Agent, tuple[str, list[Machine]]]:
    """Each agent with the name of its machine, and the machines of the lab that it serves."""
    found: dict[Agent, tuple[str, list[Machine]]] = {}
    for name in testbed.network.machines:
        machine = testbed.machine(name)
        agent_machine = name if machine.netns is None else EMULATION
        found.setdefault(machine.agent, (agent_machine, []))[1].append(machine)
    return found


async def _begin(
    testbed: Testbed, agent: Agent, name: str, machines: list[Machine], every_s: float, write: Write, unread: Unread
) -> None:
    served = [machine.name for machine in machines]

    def take(report: dict[str, Any]) -> None:
        # Not cached: clocks are compared again before clients start.
        write(metrics_points(name, report, testbed.machine(served[0]).clock_offset_ns))
        unread(len(report["unread"]))

    interfaces = testbed.network.machines
    hosts = [(one.name, one.netns, [each.name for each in interfaces[one.name]]) for one in machines]
    try:
        await agent.measure(every_s, hosts, take)
    except LabError as error:
        testbed.events.publish(Note(f"no metrics of {', '.join(served)}: {error}"))
        unread(len(served))


async def _end(agent: Agent) -> None:
    with contextlib.suppress(LabError, TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            await agent.stop_measuring()


async def _compare(agent: Agent, name: str, every_s: float, write: Write) -> None:
    with contextlib.suppress(LabError):  # the platform reports that it has ended
        while True:
            write([clock_point(name, await clock_offset(agent), time.time_ns())])
            await asyncio.sleep(every_s)
