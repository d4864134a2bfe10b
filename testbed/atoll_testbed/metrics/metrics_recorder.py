# SPDX-License-Identifier: Apache-2.0
"""Record the metrics of a run as points in its spool: those of switches, and of machines, hosts and jobs.

Agents report on machines, hosts and jobs periodically, without being polled. The agent of an emulated lab reports on
its machine and on all hosts; each agent of a lab of real machines reports on one machine and one host.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from atoll_analysis.run_directory import MetricsSpool, RunDir
from atoll_analysis.run_directory.metrics_spool import SPOOL
from atoll_controller.fabric.flow_installer import table_of
from atoll_core.errors import AtollError, LabError, RunError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import MetricPoints, Note
from atoll_core.experiment.experiment import Experiment, Link
from atoll_core.lab.network import Network
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_core.metrics.metrics_schema import EMULATION, SECOND_NS
from atoll_core.plan.plan import JobSpec
from atoll_core.platforms import VIRTUAL
from atoll_hosts.agent import Agent
from atoll_hosts.machine import Machine, clock_offset
from atoll_testbed.metrics.metric_points import (
    FIGURES_OF_CHECKS,
    box_kinds,
    box_points,
    check_points,
    class_names,
    clock_point,
    event_point,
    job_points,
    latency_config_points,
    link_config_points,
    metrics_points,
    switch_points,
)
from atoll_testbed.testbed import Testbed

Write = Callable[[Iterable[MetricPoint]], None]
OnUnread = Callable[[int], None]

# Eight requests to each agent; clocks without NTP drift apart by some microseconds a second.
_CLOCK_INTERVAL_S = 10.0

# Of hosts with in-band control: metrics at the start and at the end only, as they would pass the measured network.
_QUIET_S = 86_400.0

# An agent that does not answer is ended by its heartbeat timeout; the end of a run does not wait for that.
_END_TIMEOUT_S = 2.0

_VIRTUAL_PERIOD = 300  # a sample of all switches and machines costs 0.75 s of wall time there, as much as 16 s of load


class MetricsRecorder:
    """Records the points of one run. A write error is kept in ``write_error`` for the run to raise.

    ``enabled``: False for a run without metrics: it has no spool, and counters are not requested.
    """

    def __init__(
        self, run_dir: RunDir, network: Network, experiment: Experiment, events: EventBus | None = None
    ) -> None:
        """``events``: takes the points as well. Raises RunError if the spool cannot be created."""
        manifest = run_dir.manifest()
        platform = str(manifest.get("place", ""))
        self.enabled = bool(manifest.get("metrics", True))
        self.write_error: RunError | None = None
        self._network = network
        self._experiment = experiment
        self._applied_experiment: Callable[[], Experiment] = lambda: experiment
        self._links: tuple[Link, ...] = experiment.links  # as they are configured now
        self._classes, self._kinds = class_names(network), box_kinds(network)
        self._common_tags = {
            "testbed": network.name,
            "place": platform,
            "experiment": experiment.name,
            "run": f"{experiment.name}-{run_dir.name}",
        }
        self._spool = MetricsSpool(run_dir.path / SPOOL) if self.enabled else None
        self._events = events or EventBus()
        self._period_ns = SECOND_NS * (_VIRTUAL_PERIOD if platform == VIRTUAL else 1)
        self._last_event_ns = 0
        self._unread = 0

    def close(self) -> None:
        """Write pending points and close the spool. Raises RunError."""
        if self._spool is not None:
            self._spool.close()

    def flush(self) -> None:
        """Write pending points now, not at the end of the second. Raises RunError."""
        if self._spool is not None:
            self._spool.flush()

    def record_box_line(self, box: str, line: Mapping[str, Any]) -> None:
        """Take a ``counters`` line of a link or delay box."""
        self._write(box_points(box, line, self._classes, self._kinds))

    def record_job_line(self, spec: JobSpec, line: Mapping[str, Any], clock_offset_ns: int) -> None:
        """Take a line of one of the plan's jobs; ``clock_offset_ns``: of its machine's clock."""
        self._write(job_points(spec, line, clock_offset_ns))

    def event(self, kind: str, t_ns: int, fields: Mapping[str, Any]) -> None:
        """Take an event. Events of the same nanosecond get different times, as a database would keep only one.

        Event points are published even if no metrics are recorded. After a cutover, and after a change of links, the
        configuration is recorded again. Of the test before the run only figures of servers are recorded.
        """
        if kind in FIGURES_OF_CHECKS:
            self._write(check_points(kind, t_ns, fields))
            return
        self._last_event_ns = max(t_ns, self._last_event_ns + 1)
        point = event_point(kind, self._last_event_ns, fields)
        if self.enabled:
            self._write([point])
        else:
            self._events.publish(MetricPoints([point]))
        links = self._links
        if kind == "change" and fields.get("state") == "end":
            self._links = self._experiment.states[int(fields["change"])].links
        if self._links != links or (kind == "swap" and fields.get("state") == "turned"):
            self._write(self._configuration(t_ns))

    @contextlib.asynccontextmanager
    async def sampling(self, testbed: Testbed) -> AsyncGenerator[None]:
        """Read the switches' counters one after another, once a period, while the block lasts.

        The agents' metrics and the configuration of links and latencies are recorded as often, the
        configuration once more at the end.
        """
        if self._spool is None:
            yield
            return
        self._applied_experiment = lambda: testbed.experiment or self._experiment
        async with _agent_metrics(testbed, self._period_ns / 1e9, self._write, self._count_unread):
            task = asyncio.create_task(self._sample(testbed, self._spool))
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                self._write(self._configuration(time.time_ns()))

    async def _sample(self, testbed: Testbed, spool: MetricsSpool) -> None:
        due_ns = time.monotonic_ns()  # a wall clock that is set back would silence the samples for as long
        while True:
            self._write(self._configuration(time.time_ns()))
            await self._sample_once(testbed)
            counts = {"points": spool.points, "left_out": spool.left_out, "unread": self._unread}
            self._write([MetricPoint("metrics", {}, counts, time.time_ns())])
            due_ns = max(due_ns + self._period_ns, time.monotonic_ns())  # missed periods are not repeated
            await asyncio.sleep((due_ns - time.monotonic_ns()) / 1e9)

    async def _sample_once(self, testbed: Testbed) -> None:
        for switch in testbed.network.switches:
            try:
                table = await table_of(testbed.controller, switch)
                counters = await testbed.controller.counters(switch.dpid, table)
            except AtollError:  # the run decides whether it can continue without it
                self._unread += 1
            else:
                self._write(switch_points(switch.name, counters, time.time_ns()))

    def _configuration(self, t_ns: int) -> Iterator[MetricPoint]:
        yield from link_config_points(self._links, t_ns)
        yield from latency_config_points(self._network, self._applied_experiment(), t_ns)

    def _count_unread(self, count: int) -> None:
        self._unread += count

    def _write(self, points: Iterable[MetricPoint]) -> None:
        if self._spool is None:
            return
        batch = tuple(points)
        try:
            self._spool.write(replace(point, tags={**point.tags, **self._common_tags}) for point in batch)
        except RunError as error:
            self.write_error = self.write_error or error
        self._events.publish(MetricPoints(batch))


@contextlib.asynccontextmanager
async def _agent_metrics(testbed: Testbed, period_s: float, write: Write, unread: OnUnread) -> AsyncGenerator[None]:
    """Call ``write`` with points of all agents every ``period_s`` while the block lasts, and once more at its end.

    ``unread`` takes the number of hosts that an agent could not read. An agent without metrics, because it has ended,
    is noted and does not affect the others. Hosts with in-band control report at the start and at the end only, and
    their clocks are not compared meanwhile.
    """
    agents = machines_by_agent(testbed)
    quiet = {host.name for host in testbed.network.in_band_hosts}  # an emulated lab's machine is none of them
    clock_tasks = [
        asyncio.create_task(_compare_clocks(agent, name, max(period_s, _CLOCK_INTERVAL_S), write))
        for agent, (name, _) in agents.items()
        if name not in quiet
    ]
    try:
        await asyncio.gather(
            *(
                _begin_measuring(testbed, agent, name, machines, _QUIET_S if name in quiet else period_s, write, unread)
                for agent, (name, machines) in agents.items()
            )
        )
        yield
    finally:
        for task in clock_tasks:
            task.cancel()
        await asyncio.gather(*clock_tasks, *(_end_measuring(agent) for agent in agents), return_exceptions=True)


def machines_by_agent(testbed: Testbed) -> dict[Agent, tuple[str, list[Machine]]]:
    """Each agent with the name of its machine, and the machines of the lab that it serves."""
    served: dict[Agent, tuple[str, list[Machine]]] = {}
    for machine in map(testbed.machine, testbed.network.machines):
        agent_machine = machine.name if machine.netns is None else EMULATION
        served.setdefault(machine.agent, (agent_machine, []))[1].append(machine)
    return served


async def _begin_measuring(
    testbed: Testbed, agent: Agent, name: str, machines: list[Machine], period_s: float, write: Write, unread: OnUnread
) -> None:
    served = [machine.name for machine in machines]

    def on_report(report: dict[str, Any]) -> None:
        # Not cached: clocks are compared again before clients start.
        write(metrics_points(name, report, testbed.machine(served[0]).clock_offset_ns))
        unread(len(report["unread"]))

    interfaces = {name: [leg.name for leg in legs] for name, legs in testbed.network.machines.items()}
    hosts = [(machine.name, machine.netns, interfaces[machine.name]) for machine in machines]
    try:
        await agent.measure(period_s, hosts, on_report)
    except LabError as error:
        testbed.events.publish(Note(f"no metrics of {', '.join(served)}: {error}"))
        unread(len(served))


async def _end_measuring(agent: Agent) -> None:
    with contextlib.suppress(LabError, TimeoutError):
        async with asyncio.timeout(_END_TIMEOUT_S):
            await agent.stop_measuring()


async def _compare_clocks(agent: Agent, name: str, period_s: float, write: Write) -> None:
    with contextlib.suppress(LabError):  # the platform reports that it has ended
        while True:
            write([clock_point(name, await clock_offset(agent), time.time_ns())])
            await asyncio.sleep(period_s)
