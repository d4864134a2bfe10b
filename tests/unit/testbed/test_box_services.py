# SPDX-License-Identifier: Apache-2.0
"""Programs of boxes: those of users that end at once, or later, and ours that refuse a request."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll_core.errors import LabError, PlanError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Note
from atoll_core.plan.plan import JobLimits, JobSpec, Phase, Plan
from atoll_hosts.job import Exit, Job
from atoll_testbed.box_services import Services
from tests.support.skipped_waits import skipping_waits

RELAY = JobSpec("program-pep-w", "pep-w", Phase.SERVICE, ("relay",))
BROKEN = JobSpec("program-pep-w", "pep-w", Phase.SERVICE, ("broken",))
WAY = {"rate_bit_s": 8_000_000, "delay_ns": 20_000_000}
SAT = JobSpec("link-sat", "sat", Phase.SERVICE, ("atoll-host", "link"), config={"to_island": WAY, "to_world": WAY})
LINK = JobSpec("link-sat", "sat", Phase.SERVICE, ("atoll-host", "link"), config={})
OTHER = JobSpec("program-pep-i", "pep-i", Phase.SERVICE, ("broken", "too"))


class Machines:
    """A place whose machines start jobs that print a line and end at once if their program is ``broken``."""

    lab_folder = None

    def __init__(self) -> None:
        self.started: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.refuses = True
        self.jobs: dict[str, Job] = {}

    def machine(self, name: str) -> Any:
        del name
        return SimpleNamespace(start_job=self.start_job)

    async def start_job(self, name: str, argv: tuple[str, ...], **how: Any) -> Job:

        async def request(op: str, **about: Any) -> dict[str, Any]:
            if op == "input":
                asked = json.loads(about["text"])
                answer = {"type": asked["op"], "id": asked.pop("id"), "t_ns": 1, "ok": not self.refuses}
                job.on_output_line("stdout", json.dumps(answer | {"error": "not understood"}))
                self.asked.append(asked)
            elif op == "limit":
                self.asked.append(about)
            else:
                job.on_exit(Exit(None, "TERM"))
            return {}

        job = self.jobs[name] = Job(name, request, how["on_line"])
        if how["config"] is not None:
            job.on_output_line("stdout", '{"type":"ready"}')
        self.started.append(" ".join(argv))
        if argv[0] == "broken":
            asyncio.get_running_loop().call_later(0.01, end, job)
        return job


def end(job: Job) -> None:
    job.on_output_line("stderr", "SyntaxError: '(' was never closed")
    job.on_exit(Exit(1, None))


def plan(*jobs: JobSpec) -> Plan:
    return SimpleNamespace(jobs=jobs)  # pyright: ignore[reportReturnType] - all that services read of one


@pytest.fixture
def lab() -> Callable[..., tuple[Machines, Services, list[str]]]:
    def build(events: EventBus | None = None) -> tuple[Machines, Services, list[str]]:
        machines, failures = Machines(), list[str]()
        place: Any = machines
        return machines, Services(place, events or EventBus(), failures.append), failures

    return build


Lab = Callable[..., tuple[Machines, Services, list[str]]]


@skipping_waits
async def test_a_program_that_ends_at_once_fails_what_starts_it_and_not_the_lab(lab: Lab) -> None:
    _, boxes, failures = lab()
    with pytest.raises(LabError) as error:
        await boxes.add(plan(BROKEN))
    assert str(error.value) == "program-pep-w ended at once: SyntaxError: '(' was never closed (exit status 1)"
    await asyncio.sleep(0.05)
    assert failures == []


@skipping_waits
async def test_the_programs_of_the_old_plan_run_again_after_that(lab: Lab) -> None:
    machines, boxes, failures = lab()
    await boxes.reconcile(plan(RELAY), restart_traces=False)
    with pytest.raises(LabError):
        await boxes.reconcile(plan(BROKEN, OTHER), restart_traces=False)
    await boxes.reconcile(plan(RELAY), restart_traces=False)
    assert (machines.started, failures) == (["relay", "broken", "broken too", "relay"], [])
    assert machines.jobs["program-pep-w"].exit is None
    end(machines.jobs["program-pep-w"])
    await asyncio.sleep(0.05)
    assert failures == ["program-pep-w ended unexpectedly: SyntaxError: '(' was never closed (exit status 1)"]


@skipping_waits
async def test_a_program_that_exceeds_its_limit_ends_with_the_settings_that_it_follows_from(lab: Lab) -> None:
    machines, boxes, failures = lab()
    limits = JobLimits(data_bytes=478 * 10**6, follow_from=("between", "connections_max"))
    await boxes.add(plan(replace(RELAY, limits=limits)))
    job = machines.jobs[RELAY.name]
    job.on_output_line("stderr", "memory allocation of 134217728 bytes failed")
    job.on_exit(Exit(None, "ABRT", "memory limit 478 MB"))
    await asyncio.sleep(0.05)
    said = "memory allocation of 134217728 bytes failed (killed: memory limit 478 MB)"
    why = "the limit follows from between and connections_max of pep-w"
    assert failures == [f"program-pep-w ended unexpectedly: {said}; {why}"]


async def test_a_program_that_cannot_do_its_work_fails_the_lab_with_its_reason(lab: Lab, project: Path) -> None:
    machines, boxes, failures = lab()
    await boxes.add(plan(replace(RELAY, config={})))
    said = (project / "tests/data/contract/coder.jsonl").read_text().splitlines()
    lines = [json.dumps(json.loads(line)["message"]) for line in said if '"type":"counters"' in line]
    machines.jobs[RELAY.name].on_output_line("stdout", lines[0])
    assert failures == []
    machines.jobs[RELAY.name].on_output_line("stdout", lines[1])
    version = "sends headers of version 10, this one of version 11: install the same atoll on both machines"
    assert failures == [f"{RELAY.host}: the coder at 10.20.255.254 {version}"]


@skipping_waits
async def test_a_program_that_ended_at_once_is_started_by_the_next_apply_of_the_same_plan(lab: Lab) -> None:
    machines, boxes, _ = lab()
    for _ in range(2):
        with pytest.raises(LabError, match="ended at once"):
            await boxes.reconcile(plan(BROKEN), restart_traces=False)
    assert machines.started == ["broken", "broken"]


@skipping_waits
async def test_programs_are_waited_for_together_and_those_that_run_are_not_waited_for(lab: Lab) -> None:
    _, boxes, _ = lab()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await boxes.add(plan(RELAY, JobSpec("program-pep-i", "pep-i", Phase.SERVICE, ("relay",))))
    between = loop.time()
    await boxes.add(plan(RELAY))
    assert (between - began, loop.time() - between) == (1, 0)


@skipping_waits
async def test_a_program_that_ends_later_fails_the_lab_though_the_apply_was_cancelled(lab: Lab) -> None:
    machines, boxes, failures = lab()
    apply = asyncio.create_task(boxes.add(plan(RELAY)))
    await asyncio.sleep(0.02)
    apply.cancel()
    with pytest.raises(asyncio.CancelledError):
        await apply
    end(machines.jobs["program-pep-w"])
    await asyncio.sleep(0.05)
    assert len(failures) == 1


@skipping_waits
async def test_a_refused_request_is_an_error_and_no_measurement(lab: Lab) -> None:
    _, boxes, _ = lab()
    await boxes.add(plan(LINK))
    with pytest.raises(LabError, match=r"^link-sat: not understood$"):
        await boxes.mark()
    with pytest.raises(LabError, match=r"^link-sat: not understood$"):
        await boxes.set_link("sat", {"op": "set", "to_island": WAY})


def sat(**changed: Any) -> Plan:
    """A plan whose link differs so towards the island."""
    return plan(replace(SAT, config={"to_island": WAY | changed, "to_world": WAY}))


@skipping_waits
async def test_a_link_with_other_settings_goes_on_and_begins_again_with_the_next_run(lab: Lab) -> None:
    machines, boxes, _ = lab()
    machines.refuses = False
    await boxes.reconcile(sat(), restart_traces=False)
    slower = sat(rate_bit_s=4_000_000)
    (said,) = boxes.changes(slower, restart_traces=False)
    assert said.reason == "its program takes the other settings while it runs"
    await boxes.reconcile(slower, restart_traces=False)
    assert machines.asked == [{"op": "set", "to_island": WAY | {"rate_bit_s": 4_000_000}}]
    assert (len(machines.started), boxes.changes(slower, restart_traces=False)) == (1, ())
    (said,) = boxes.changes(slower, restart_traces=True)
    assert said.reason == "it is no longer as it began"
    await boxes.reconcile(slower, restart_traces=True)
    assert (len(machines.started), boxes.changes(slower, restart_traces=True)) == (2, ())


@skipping_waits
async def test_settings_that_no_program_takes_while_packets_pass_are_refused_at_once(lab: Lab) -> None:
    _, boxes, _ = lab()
    await boxes.reconcile(plan(SAT, RELAY), restart_traces=False)
    other = plan(replace(SAT, argv=("atoll-host", "tc")), replace(RELAY, argv=("relay", "otherwise")))
    with pytest.raises(PlanError) as refused:
        boxes.changes(other, restart_traces=False)
    remedy = "while it runs; keep them, or use --immediate, which loses packets and connections in it"
    assert str(refused.value).splitlines() == [
        f"sat: its program does not take other settings (another backend) {remedy}",
        f"pep-w: its program does not take other settings (another program) {remedy}",
    ]
    idle = boxes.changes(other, restart_traces=False, idle={"sat", "pep-w"})
    assert [change.reason for change in idle] == ["its program begins again, with other settings"] * 2
    immediate = boxes.changes(other, restart_traces=True)
    lost = "its program begins again, with other settings; packets and connections in it are lost"
    assert [change.reason for change in immediate] == [lost] * 2


@skipping_waits
async def test_a_link_that_refuses_settings_begins_again_and_a_note_says_so(lab: Lab) -> None:
    notes, events = list[Note](), EventBus()
    machines, boxes, _ = lab(events)
    await boxes.reconcile(sat(), restart_traces=False)
    with events.subscribe(notes.append, Note):
        await boxes.reconcile(sat(rate_bit_s=1_000_000), restart_traces=False)
    assert len(machines.started) == 2
    (note,) = notes
    assert note.message == "link-sat begins again, and loses packets and connections in it: link-sat: not understood"


@skipping_waits
async def test_programs_that_do_not_end_as_they_should_are_named_when_the_lab_goes_down(lab: Lab) -> None:
    """A link on tc fails when it cannot undo its settings."""
    machines, boxes, _ = lab()
    await boxes.add(plan(SAT, RELAY))
    assert await boxes.stop() == ()
    await boxes.add(plan(SAT, RELAY))
    machines.jobs["link-sat"].on_output_line("stderr", "settings are not undone: qdisc netem (busy)")
    machines.jobs["link-sat"].on_exit(Exit(1, None))
    assert await boxes.stop() == (
        "sat: link-sat did not end as it should: settings are not undone: qdisc netem (busy) (exit status 1)",
    )


@skipping_waits
async def test_the_limit_of_memory_rises_before_a_link_becomes_faster_and_stays(lab: Lab) -> None:
    def limited(rate: int, data_bytes: int) -> Plan:
        (job,) = sat(rate_bit_s=rate).jobs
        return plan(replace(job, limits=JobLimits(data_bytes=data_bytes)))

    machines, boxes, _ = lab()
    machines.refuses = False
    await boxes.add(limited(8_000_000, 100))
    for rate, data_bytes in ((9_000_000, 300), (5_000_000, 200), (9_000_000, 300)):
        await boxes.reconcile(limited(rate, data_bytes), restart_traces=False)
    raised, *settings = machines.asked
    assert raised == {"job": "link-sat", "data_bytes": 300}
    rates = [each["to_island"]["rate_bit_s"] for each in settings]
    assert rates == [9_000_000, 5_000_000, 9_000_000]
    assert len(machines.started) == 1
