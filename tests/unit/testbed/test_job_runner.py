# SPDX-License-Identifier: Apache-2.0
"""A run's jobs: each that was asked for has to start, and to go on as long as it is needed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll_core.errors import LabError, RunError
from atoll_core.plan.plan import JobSpec, Phase
from atoll_hosts.job import Exit, Job
from atoll_hosts.machine import ClockOffset
from atoll_testbed.run.job_runner import RunJobs
from atoll_testbed.run.run_clock import RunClock
from tests.support.skipped_waits import skipping_waits

IPERF3 = JobSpec("transfer-receive", "is", Phase.TRANSFER, ("iperf3", "-c", "10.10.1.1"))


def lasting(name: str, phase: Phase) -> JobSpec:
    return JobSpec(name, "i1", phase, ("atoll-host",), {})


class Lab:
    """Starts nothing; what was asked for ends when the test says so."""

    def __init__(self, refusal: str | None = None) -> None:
        self.refusal = refusal
        self.jobs: dict[str, Job] = {}

    def machine(self, _: str) -> Any:
        return SimpleNamespace(clock_offset_ns=0)

    async def start_job(self, spec: JobSpec, _: Path, on_line: Callable[[dict[str, Any]], None]) -> Job:
        del on_line
        if self.refusal is not None:
            raise LabError(self.refusal)
        job = self.jobs[spec.name] = Job(spec.name, cast("Any", None), None)
        job.on_output_line("stdout", '{"type":"ready"}')
        return job


def jobs_of(lab: Lab, *specs: JobSpec) -> RunJobs:
    recording = SimpleNamespace(line_recorder=lambda *_: None)
    jobs = RunJobs(cast("Any", lab), cast("Any", recording), Path())
    jobs.set_jobs(specs)
    return jobs


@skipping_waits
async def test_a_program_that_cannot_be_started_when_its_instant_has_come_fails_the_run() -> None:
    """It is started by a task of its own, whose error nobody waits for."""
    jobs = jobs_of(Lab("iperf3: not found"), IPERF3)
    await jobs.start_at([(IPERF3, 0)], RunClock({}))
    await asyncio.sleep(0.01)
    with pytest.raises(RunError, match=r"^transfer-receive could not be started: iperf3: not found$"):
        jobs.raise_for_failed(remaining_ns=10**9)


async def test_a_program_whose_start_is_still_to_come_at_the_end_fails_the_run() -> None:
    clock, jobs = RunClock({}), jobs_of(Lab(), IPERF3)
    await jobs.start_at([(IPERF3, clock.now_ns() + 3600 * 10**9)], clock)
    jobs.raise_for_failed(remaining_ns=10**9)
    with pytest.raises(RunError, match=r"^transfer-receive had not started when the measurement ended"):
        jobs.raise_for_missing()
    await jobs.end()


@pytest.mark.parametrize(
    ("spec", "code", "left_ns", "error"),
    [
        (lasting("load-i1", Phase.CLIENT), 0, 10**9, "load-i1 ended too early, 1.0 s before the end"),
        (lasting("serve-w1", Phase.SERVER), 0, 10**9, "serve-w1 ended too early"),
        (lasting("ping", Phase.PING), 0, 10**9, "ping ended too early"),
        (lasting("capture-world", Phase.CAPTURE), 0, 10**9, "capture-world ended too early"),
        (lasting("load-i1", Phase.CLIENT), 1, 0, "load-i1 failed: exit status 1"),
        (lasting("load-i1", Phase.CLIENT), 0, 10**8, None),  # of its own accord, when the measurement ends
        (lasting("udp-send", Phase.CLIENT), 0, 10**9, None),  # its next packet is due behind the end
        (lasting("whistle-start", Phase.WHISTLE), 0, 10**9, None),
        (lasting("transfer-receive", Phase.TRANSFER), 0, 10**9, None),
        (lasting("transfer-receive", Phase.TRANSFER), 1, 10**9, None),  # it broke off: its figures count
        (lasting("transfer-send", Phase.TRANSFER_SERVER), 1, 10**9, "transfer-send failed: exit status 1"),
        (lasting("transfer-receive", Phase.TRANSFER), 2, 10**9, "transfer-receive failed: exit status 2"),
    ],
)
async def test_a_job_that_ends_while_it_is_needed_fails_the_run_whatever_its_exit_status(
    spec: JobSpec, code: int, left_ns: int, error: str | None
) -> None:
    lab = Lab()
    jobs = jobs_of(lab, spec)
    await jobs.start(spec)
    jobs.raise_for_failed(remaining_ns=left_ns)
    lab.jobs[spec.name].on_exit(Exit(code, None))
    if error is None:
        jobs.raise_for_failed(remaining_ns=left_ns)
    else:
        with pytest.raises(RunError, match=error):
            jobs.raise_for_failed(remaining_ns=left_ns)


async def test_a_transfer_that_breaks_off_is_reported_in_its_own_words() -> None:
    lab, receive = Lab(), lasting("transfer-receive", Phase.TRANSFER)
    jobs = jobs_of(lab, receive)
    await jobs.start(receive)
    assert jobs.broken_transfer("transfer-send", "transfer-receive") is None
    lab.jobs["transfer-receive"].on_output_line("stderr", "10.10.1.1:5201: connection reset")
    lab.jobs["transfer-receive"].on_exit(Exit(1, None))
    jobs.raise_for_failed(remaining_ns=10**9)
    assert jobs.broken_transfer("transfer-send-other", "transfer-receive-other") is None
    reason = jobs.broken_transfer("transfer-send", "transfer-receive")
    assert reason == "transfer-receive failed: 10.10.1.1:5201: connection reset (exit status 1)"


async def test_a_server_of_the_transfer_breaks_off_only_after_its_client_was_started() -> None:
    lab, send, receive = Lab(), lasting("transfer-send", Phase.TRANSFER_SERVER), lasting("receive", Phase.TRANSFER)
    jobs = jobs_of(lab, send, receive)
    await jobs.start(send)
    lab.jobs["transfer-send"].on_exit(Exit(1, None))
    with pytest.raises(RunError, match="transfer-send failed: exit status 1"):  # its port is taken, say
        jobs.raise_for_failed(remaining_ns=10**9)
    await jobs.start(receive)
    jobs.raise_for_failed(remaining_ns=10**9)
    assert jobs.broken_transfer("transfer-send", "receive") == "transfer-send failed: exit status 1"


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Both clocks, as the test sets them."""
    now = {"real": 10**18, "monotonic": 10**12}
    monkeypatch.setattr("time.time_ns", lambda: now["real"])
    monkeypatch.setattr("time.monotonic_ns", lambda: now["monotonic"])
    return now


def test_a_clock_that_is_set_moves_no_instant_of_a_run_and_is_noticed(clocks: dict[str, int]) -> None:
    """Also if it is set back before the end."""
    clock = RunClock({})
    clocks["monotonic"] += 5
    clocks["real"] += 5 + 20 * 10**9
    assert clock.now_ns() == 10**18 + 5
    clock.check_step()
    clocks["real"] -= 20 * 10**9
    answer = clock.clocks_event({})
    assert answer["step_ns"] == 20 * 10**9
    assert answer["begin_offset_ns"] == answer["end_offset_ns"] == 10**18 - 10**12


def test_what_other_machines_drifted_is_told_without_our_own_step(clocks: dict[str, int]) -> None:
    clock = RunClock({"i1": ClockOffset(100, 10, 20), "i2": ClockOffset(0, 10, 20)})
    clocks["real"] += 1000
    answer = clock.clocks_event({"i1": ClockOffset(-850, 5, 10), "i2": ClockOffset(-1000, 5, 10)})
    assert answer["step_ns"] == 1000
    assert answer["machines"] == {"i1": {"drift_ns": 50, "bound_ns": 15}, "i2": {"drift_ns": 0, "bound_ns": 15}}
