# SPDX-License-Identifier: Apache-2.0
"""The configuration test's attempts on a slow link: what is off is pinged again, within the time that is left."""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_controller.planner.path_checks import LONGEST_TEST_NS, pinging_ns
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import RunError
from atoll_core.plan.plan import Phase, Plan
from atoll_testbed.preflight import preflight
from atoll_testbed.preflight.preflight import RttsByPath, check_paths
from atoll_testbed.testbed import Testbed

LABORATORY = Path(__file__).parents[3] / "examples/laboratory.yaml"


@dataclass
class Link:
    """A link that loses pings and their answers at random, and the clock by which they are sent."""

    loss: float
    chance: random.Random
    now_ns: int = 0
    attempts: int = 0

    async def ping(self, _: Testbed, plan: Plan, __: Path) -> RttsByPath:
        self.attempts += 1
        self.now_ns += pinging_ns(plan)
        measured: RttsByPath = {(check.src, check.dst): [] for check in plan.checks}
        expected = {(check.src, check.dst): check.rtt_ns + 2_000_000 for check in plan.checks}
        for job in plan.jobs:
            config: dict[str, Any] = job.config or {}
            for target in config["targets"] if job.phase is Phase.CHECK else ():
                path = (job.host, target["name"])
                answered = sum(self.chance.random() > self.loss for _ in range(config["count"]))
                measured[path] = [expected[path]] * answered
        return measured


def run_test(link: Link, rate: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [f"links.sat.to_{end}.rate={rate}" for end in ("island", "world")]
    network, experiment = load_experiment(LABORATORY, settings)
    monkeypatch.setattr(preflight, "measure_paths", link.ping)
    clock = SimpleNamespace(monotonic_ns=lambda: link.now_ns, time_ns=lambda: 10**18 + link.now_ns)
    monkeypatch.setattr(preflight, "time", clock)
    testbed = cast(Testbed, SimpleNamespace(network=network))
    asyncio.run(check_paths(testbed, make_plan(network, experiment), RunDir.create(directory, "slow", 0)))


@pytest.mark.parametrize("rate", ["64 kbit/s", "128 kbit/s", "1 Mbit/s", "16 Mbit/s"])
@pytest.mark.parametrize("seed", range(5))
def test_random_loss_on_a_slow_link_does_not_fail_the_test(
    rate: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 % each way: of 108 paths with one ping each, about two have no answer."""
    link = Link(0.02, random.Random(seed))
    run_test(link, rate, tmp_path, monkeypatch)
    assert link.now_ns <= LONGEST_TEST_NS


def test_a_path_without_answers_is_found_within_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(1, random.Random(1))
    with pytest.raises(RunError, match="and 98 more paths"):
        run_test(link, "64 kbit/s", tmp_path, monkeypatch)
    assert link.attempts == 1, "a second would take longer than there is time"
    assert link.now_ns <= LONGEST_TEST_NS


@dataclass
class BusyMachine:
    """One server's pings are 3.5 ms late at so many attempts, and then at none."""

    plan: Plan
    late_attempts: int
    now_ns: int = 0
    attempts: int = 0

    async def ping(self, _: Testbed, asked: Plan, __: Path) -> RttsByPath:
        self.attempts += 1
        self.now_ns += pinging_ns(asked)
        late = next(check.src for check in self.plan.checks if check.terrestrial_rtt_ns)
        more_ns = 3_500_000 if self.attempts <= self.late_attempts else 0
        return {
            (check.src, check.dst): [check.rtt_ns + (more_ns if check.src == late else 0)] for check in asked.checks
        }


def run_busy(late_attempts: int, directory: Path, monkeypatch: pytest.MonkeyPatch, *, emulated: bool) -> BusyMachine:
    network, experiment = load_experiment(LABORATORY)
    machine = BusyMachine(make_plan(network, experiment), late_attempts)
    monkeypatch.setattr(preflight, "measure_paths", machine.ping)
    clock = SimpleNamespace(monotonic_ns=lambda: machine.now_ns, time_ns=lambda: 10**18 + machine.now_ns)
    monkeypatch.setattr(preflight, "time", clock)
    run_dir = RunDir.create(directory, "late", 0)
    testbed = cast(Testbed, SimpleNamespace(network=network))
    asyncio.run(check_paths(testbed, machine.plan, run_dir, emulated=emulated))
    return machine


@pytest.mark.parametrize("emulated", [True, False], ids=["emulated", "virtual or real"])
def test_a_server_that_is_slightly_off_in_real_time_may_be_a_busy_machine(
    emulated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError) as error:
        run_busy(10**9, tmp_path, monkeypatch, emulated=emulated)
    first, *_, last = str(error.value).splitlines()
    assert first == "the configuration test failed; the experiment's load was not started"
    assert last.startswith("a terrestrial RTT slightly out of tolerance") == emulated


def test_a_machine_that_is_busy_for_ten_attempts_passes_when_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = run_busy(10, tmp_path, monkeypatch, emulated=True)
    assert machine.attempts == 11
    assert machine.now_ns <= LONGEST_TEST_NS
