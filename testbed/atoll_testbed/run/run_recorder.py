# SPDX-License-Identifier: Apache-2.0
"""Write the run directory during a run: box counters, metrics, marks, parts of the manifest; and the live line."""

import asyncio
import contextlib
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.atomic_files import Appender
from atoll_analysis.run_directory.directory import COUNTERS_FILE, ManifestWriter
from atoll_controller.fabric.flow_installer import read_tables, table_of
from atoll_controller.planner.planner import plan_sha256
from atoll_core.codec import to_json
from atoll_core.errors import LabError, RunError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Counters, Live, Note, ProgramOutput
from atoll_core.experiment.experiment import DIRECTIONS, Experiment
from atoll_core.experiment.traffic import UPLOADS_ONLY
from atoll_core.lab.network import Network
from atoll_core.plan.plan import JobSpec, Plan
from atoll_emulation.mininet_lab.emulated_lab import EmulatedLab
from atoll_testbed.metrics.metrics_recorder import MetricsRecorder
from atoll_testbed.testbed import Testbed

# Limits for the output of a job or box, so that none fills the disk: a link prints 10 to 20 kB a second, a delay box
# with 200 latency classes 410 kB, a ping every millisecond 93 kB.
_MAX_OUTPUT_BYTES = 64 << 20
_MAX_OUTPUT_BYTES_S = 1 << 20


class RunRecorder:
    """Writes the daemon's files of a run directory from the lines of boxes and jobs."""

    def __init__(
        self,
        run_dir: RunDir,
        network: Network,
        experiment: Experiment,
        events: EventBus,
    ) -> None:
        self.path = run_dir.path
        self._dir = run_dir
        self.manifest = ManifestWriter(run_dir)
        self._experiment = experiment
        self._events = events
        self._lines = Appender(run_dir.path / COUNTERS_FILE)
        self.metrics = MetricsRecorder(run_dir, network, experiment, events)
        self._job_files: dict[str, Appender] = {}
        self._output_bytes: Counter[str] = Counter()  # by job, and by box for link.jsonl
        self._max_output_bytes = _MAX_OUTPUT_BYTES + round(experiment.duration.s * _MAX_OUTPUT_BYTES_S)
        self._latest: dict[str, Mapping[str, Any]] = {}  # by link box
        # Of live lines:
        self._live_direction = "to_world" if experiment.flow_directions == UPLOADS_ONLY else "to_island"
        self._queue_max = 0  # of the first link's queue in that direction, since the last live line
        self._initial_drops = 0  # by that queue's link, when the measurement began
        self._previous_live: tuple[int, int] | None = None
        self._link_live: dict[str, Any] = {}  # figures of the link for live lines, until there are new counters
        self._write_error: RunError | None = None
        self._closed = False

    @contextlib.contextmanager
    def recording(self) -> Generator[None]:
        """Record counters of boxes, output of users' programs, and notes of the testbed during the block.

        Raises at its end what could not be recorded, unless the block raises.
        """
        with (
            self._events.subscribe(lambda event: self.record_box_line(event.box, event.line), Counters),
            self._events.subscribe(lambda event: self.record_program_line(event.job, event.line), ProgramOutput),
            self._events.subscribe(lambda event: self.append_event("note", message=event.message), Note),
        ):
            yield

    def append_event(self, kind: str, /, t_ns: int | None = None, **fields: Any) -> None:
        """Append an event to the run's, and to its metrics until they end. Default time: now. Raises RunError."""
        t_ns = time.time_ns() if t_ns is None else t_ns
        self._dir.append_event(kind, t_ns, **fields)
        if not self._closed:
            self.metrics.event(kind, t_ns, fields)

    def close(self) -> None:
        """Close the files."""
        self._closed = True
        for file in (self._lines, *self._job_files.values()):
            file.close()
        self.metrics.close()

    def record_box_line(self, box: str, line: Mapping[str, Any]) -> None:
        """Take a ``counters`` line of a link or delay box."""
        self.metrics.record_box_line(box, line)
        with self._keep_errors():
            self._write(box, line)
        if "to_island" in line:
            self._latest[box] = line
            if box == next(iter(self._latest)):
                self._queue_max = max(self._queue_max, line[self._live_direction]["queue_max_bytes"])

    def line_recorder(self, spec: JobSpec, clock_offset_ns: int) -> Callable[[dict[str, Any]], None]:
        """A function that takes the lines of a job: they are written to logs/<job>.out, and make metrics.

        ``clock_offset_ns``: of its machine's clock.
        """

        def record(line: dict[str, Any]) -> None:
            self.metrics.record_job_line(spec, line, clock_offset_ns)
            with self._keep_errors():
                self._append(self._log_file(spec.name), spec.name, _json_line(line))

        return record

    def record_program_line(self, job: str, line: str) -> None:
        """Take a line of a user's program on a box: it is written to logs/<job>.out, up to the limit."""
        output, was_exceeded = line.encode() + b"\n", self._output_bytes[job] > self._max_output_bytes
        with self._keep_errors():
            if self._count(job, output):
                self._log_file(job).append(output)
            elif not was_exceeded:
                limit = f"{self._max_output_bytes / 1e6:.0f} MB"
                self.append_event("note", message=f"{job} prints more than {limit}; the rest is not recorded")

    def _log_file(self, job: str) -> Appender:
        if job not in self._job_files:
            self._job_files[job] = Appender(self._dir.path / "logs" / f"{job}.out")
        return self._job_files[job]

    def record_marks(self, name: str, answers: dict[str, dict[str, Any]]) -> None:
        """Record a mark of every box, with its counters since the previous mark."""
        for box, answer in answers.items():
            self._write(box, {**answer, "mark": name})
        self.raise_if_broken()

    async def record_end_marks(
        self, mark: Callable[[], Awaitable[dict[str, dict[str, Any]]]], drain: Callable[[], Awaitable[None]]
    ) -> None:
        """Record the marks "end", at which no link holds a packet.

        A packet may enter after the counters that showed an empty link, such as one that TCP sends again seconds later.
        """
        while are_packets_held(answers := await mark()):
            self.record_marks("drain", answers)
            await drain()
        self.record_marks("end", answers)

    def raise_if_broken(self) -> None:
        """Raise RunError if anything could not be written."""
        error = self._write_error or self.metrics.write_error
        if error:
            raise error

    @contextlib.contextmanager
    def _keep_errors(self) -> Generator[None]:
        """Keep the first RunError for :meth:`raise_if_broken`."""
        try:
            yield
        except RunError as error:
            self._write_error = self._write_error or error

    def _write(self, box: str, line: Mapping[str, Any]) -> None:
        self._append(self._lines, box, _json_line({"box": box, **line}))

    def _append(self, file: Appender, source: str, line: bytes) -> None:
        """Append a line of a job or box. Raises RunError if its output exceeds the limit."""
        if not self._count(source, line):
            limit = f"{self._max_output_bytes / 1e6:.0f} MB"
            raise RunError(f"{source} prints more than a job is allowed in a run of this length ({limit})")
        file.append(line)

    def _count(self, source: str, line: bytes) -> bool:
        """Count the output of a job or box; returns whether it is within the limit."""
        self._output_bytes[source] += len(line)
        return self._output_bytes[source] <= self._max_output_bytes

    def begin_measurement(self) -> None:
        """Reset queue and drops of the live lines, which until now are those of the tests before the measurement."""
        self._queue_max = 0
        if (link := self._first_link()) is not None:
            _, line = link
            self._initial_drops = line[self._live_direction]["dropped_packets"]

    def publish_live(self, begin_ns: int, now_ns: int) -> None:
        """Publish a live line: time, the link's rate, queue and drops."""
        self.raise_if_broken()
        if (link := self._first_link()) is not None:
            box, line = link
            if self._previous_live is None or line["t_ns"] > self._previous_live[0]:
                self._link_live = self._link_figures(box, line)
        elapsed_s = max(0.0, (now_ns - begin_ns) / 1e9)
        # In virtual time live lines may come more often than counters.
        self._events.publish(Live(elapsed_s, self._experiment.duration.s, **self._link_live))

    def _first_link(self) -> tuple[str, Mapping[str, Any]] | None:
        """The link of the live lines, the first one that sent counters, and its latest counters."""
        return next(iter(self._latest.items()), None)

    def _link_figures(self, box: str, line: Mapping[str, Any]) -> dict[str, Any]:
        """The link's figures since the previous live line."""
        counters = line[self._live_direction]
        dropped = counters["dropped_packets"] - self._initial_drops
        figures: dict[str, Any] = {"box": box, "queue_max_bytes": self._queue_max, "dropped_packets": dropped}
        self._queue_max = 0
        if self._previous_live is not None:
            seconds = (line["t_ns"] - self._previous_live[0]) / 1e9
            figures["rate_mbit_s"] = (counters["out_bytes"] - self._previous_live[1]) * 8e-6 / seconds
        self._previous_live = (line["t_ns"], counters["out_bytes"])
        return figures

    async def wait_until_drained(self, quiet_s: float, limit_s: float) -> None:
        """Wait until no packet has entered any link for ``quiet_s`` and all links are empty.

        Raises RunError if that is not so ``limit_s`` after the longest queue has had time to drain, and packets to pass
        all links three times in both directions: a host sends again until it gets an acknowledgement, and the other
        one answers these packets, too.
        """
        directions = [d for link in self._experiment.links_over_time for d in (link.to_island, link.to_world)]
        limit_s += max((d.full_queue.s for d in directions), default=0.0) + 3 * sum(d.delays[1].s for d in directions)
        deadline = time.monotonic() + limit_s
        previous_entered, since_s = -1, time.monotonic()
        while time.monotonic() < deadline:
            entered = held = 0
            for line in self._latest.values():
                entered += sum(line[direction]["in_packets"] for direction in DIRECTIONS)
                held += sum(line[direction]["held_packets"] for direction in DIRECTIONS)
            if entered != previous_entered or held:
                previous_entered, since_s = entered, time.monotonic()
            elif time.monotonic() - since_s >= quiet_s:
                return
            await asyncio.sleep(0.1)
        msg = f"the link did not drain within {limit_s:g} s after the load had stopped: a program is still sending"
        raise RunError(msg)

    async def record_plan(self, testbed: Testbed, plan: Plan) -> None:
        """Record the plan and the flow tables of the switches after it was applied."""
        await self.manifest.update(
            {
                "plan": await asyncio.to_thread(to_json, plan),
                "plan_sha256": await asyncio.to_thread(plan_sha256, plan),
                "tables_before": await _tables(testbed),
                "machine_state": await _machine_state(testbed),
            }
        )

    async def record_network_state(self, lab: EmulatedLab) -> None:
        """Record interfaces, queueing disciplines, routes and neighbours of the lab's hosts and boxes."""
        try:
            hosts = await lab.network_state()
        except LabError as error:
            self.append_event("note", message=f"the manifest has no network_state: {error}")
        else:
            await self.manifest.update({"network_state": hosts})

    async def record_final_tables(self, testbed: Testbed) -> None:
        """Record the flow tables of the switches after the run, with their counters."""
        counters = {
            switch.name: await testbed.controller.counters(switch.dpid, await table_of(testbed.controller, switch))
            for switch in testbed.network.switches
        }
        await self.manifest.update({"tables_after": await _tables(testbed), "switch_counters": counters})


def are_packets_held(marks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a link holds packets at its mark."""
    return any(mark.get(direction, {}).get("held_packets") for mark in marks.values() for direction in DIRECTIONS)


def _json_line(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def describe_lab(testbed: Testbed, started_ns: int) -> dict[str, Any]:
    """The part of the manifest about the lab."""
    return {
        "started_ns": started_ns,
        **testbed.platform.describe(),
        "controller": testbed.controller.runtime,
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "root": os.geteuid() == 0,
    }


async def _tables(testbed: Testbed) -> dict[str, Any]:
    return await asyncio.to_thread(to_json, await read_tables(testbed.controller, testbed.network))


async def _machine_state(testbed: Testbed) -> dict[str, Any]:
    machines = testbed.network.machines
    states = await asyncio.gather(
        *(
            testbed.machine(name).read(
                sysctls=("net.ipv4.tcp_congestion_control",),
                interfaces=tuple(i.name for i in interfaces),
            )
            for name, interfaces in machines.items()
        )
    )
    return dict(zip(machines, states, strict=True))
