# SPDX-License-Identifier: Apache-2.0
"""A testbed whose apply or swap fails or cannot be reported: boxes, machines and switches end at one plan."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from atoll_controller.planner.entry_diff import diff
from atoll_core.errors import LabError
from atoll_core.events.events import Note, SwapEvent
from atoll_core.experiment.experiment import Experiment
from atoll_core.plan.plan import HostSettings, Plan
from atoll_core.plan.switch_features import Runtime
from atoll_core.units import Rate
from atoll_hosts.job import Exit
from atoll_testbed.platforms.base import Platform
from atoll_testbed.testbed import Testbed
from tests.support.labs import experiment
from tests.support.memory_switches import Fault, MemorySwitches
from tests.unit.controller.test_swap_executor import laboratory

LAB = laboratory()
BEFORE = experiment(LAB, ("t0", "b0", "b1"))
AFTER = experiment(LAB, ("b2", "t0", "b1", "b0"))


class MemoryJob:
    """A program on a box: runs until it is stopped."""

    def __init__(self, running: dict[str, Any], name: str, config: Any, on_line: Callable[[Any], None]) -> None:
        self._running, self._name, self._on_line = running, name, on_line
        self._ended = asyncio.Event()
        self.exit: Exit | None = None
        running[name] = config

    async def ready(self, timeout_s: float = 10.0) -> None:
        """At once, but for a link of 13 bit/s."""
        del timeout_s
        if "13," in str(self._running[self._name].get("to_island")):
            await self.stop()
            raise LabError(f"{self._name} did not start")

    async def send(self, request: dict[str, Any]) -> None:
        """Take other settings of a link at once, but for 13 bit/s."""
        operation, number = (request.pop(key) for key in ("op", "id"))
        taken = "13," not in str(request.get("to_island"))
        if taken:
            self._running[self._name] |= request
        self._on_line({"type": operation, "id": number, "ok": taken, "error": "" if taken else "too slow"})

    async def wait(self) -> Exit:
        """Until it was stopped."""
        await self._ended.wait()
        return Exit(0, None)

    async def stop(self, grace_s: float = 0.0) -> None:
        """At once."""
        del grace_s
        self._running.pop(self._name, None)
        self.exit = Exit(0, None)
        self._ended.set()


class MemoryMachines:
    """A place: what runs on its machines, and how they are set."""

    def __init__(self) -> None:
        self.network = LAB
        self.failed = asyncio.get_running_loop().create_future()
        self.jobs: dict[str, Any] = {}
        self.settings: dict[str, HostSettings] = {}

    def machine(self, name: str) -> "MemoryMachine":
        """Any."""
        return MemoryMachine(self, name)

    lab_folder = None

    async def wait_for_links(self, machines: object) -> None:
        """At once."""


class MemoryMachine:
    """One of them."""

    def __init__(self, place: MemoryMachines, name: str) -> None:
        self._place, self._name = place, name

    async def set(self, settings: HostSettings) -> None:
        """Only what is not set."""
        assert self._name not in self._place.settings
        self._place.settings[self._name] = settings

    async def unset(self) -> None:
        """Only what is set."""
        del self._place.settings[self._name]

    async def start_job(
        self, name: str, argv: Sequence[str], *, on_line: Any, config: Any = None, **_: Any
    ) -> MemoryJob:
        """Runs from now on."""
        del argv
        return MemoryJob(self._place.jobs, name, config, on_line)


class Lab:
    """A testbed in memory, with an experiment applied."""

    def __init__(self) -> None:
        self.place = MemoryMachines()
        self.switches = MemorySwitches(LAB, lambda: None)
        self.testbed = Testbed(cast("Platform", self.place), self.switches, Runtime.OS_KEN)
        self.before: Any = None

    @classmethod
    async def up(cls) -> "Lab":
        """The old experiment stands."""
        lab = cls()
        await lab.testbed.apply(BEFORE, probes=False)
        lab.before = lab.state()
        return lab

    def state(self) -> Any:
        """Everything that runs, is set and is held."""
        return (
            dict(self.place.jobs),
            dict(self.place.settings),
            {replace(entry, why="") for entry in self.switches.entries},
        )

    def holds(self, plan: Plan | None) -> bool:
        """Whether exactly this plan is on the switches."""
        return plan is not None and diff(plan.flows, self.switches.entries) == ()


def at_rate(described: Experiment, rate: int) -> Experiment:
    """The experiment with another rate of its link."""
    (link,) = described.links
    return replace(described, links=(replace(link, to_island=replace(link.to_island, rate=Rate(rate))),))


async def test_a_failed_apply_at_once_leaves_links_as_they_were() -> None:
    """A switch refused an entry when the links had their new settings already."""
    lab = await Lab.up()
    lab.switches.arm(Fault("refused", 3))
    with pytest.raises(LabError, match="refused"):
        await lab.testbed.apply(at_rate(AFTER, 32 * 10**6), at_once=True, probes=False)
    assert lab.state() == lab.before
    assert lab.testbed.experiment is BEFORE


@pytest.mark.parametrize("dry_run", [True, False])
async def test_entries_that_an_apply_at_once_deletes_are_named_by_their_reason(dry_run: bool) -> None:
    """As those of an apply in stages are, although a switch does not hold reasons."""
    lab = await Lab.up()
    await lab.testbed.apply(AFTER, probes=False)
    assert lab.testbed.plan is not None
    reasons = {f"{entry.switch} {entry.why}" for entry in lab.testbed.plan.flows}
    _, changes = await lab.testbed.apply(BEFORE, at_once=True, dry_run=dry_run, probes=False)
    deleted = [change.subject for change in changes if change.kind == "flow" and change.action == "delete"]
    assert deleted
    assert [subject for subject in deleted if subject not in reasons] == []


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_link_that_does_not_take_its_settings_goes_on_with_the_old_ones(at_once: bool) -> None:
    """Where nothing changes on the switches, too."""
    lab = await Lab.up()
    with pytest.raises(LabError, match="did not start"):
        await lab.testbed.apply(at_rate(BEFORE, 13), at_once=at_once, probes=False)
    assert lab.state() == lab.before


async def test_the_first_apply_leaves_nothing_when_it_fails() -> None:
    """There is no plan to go back to."""
    lab = Lab()
    lab.switches.arm(Fault("refused", 3))
    with pytest.raises(LabError, match="refused"):
        await lab.testbed.apply(BEFORE, probes=False)
    assert lab.state() == ({}, {}, set())


async def test_a_swap_that_cannot_be_reported_is_made_all_the_same() -> None:
    """The error comes when all is done: of a full disk, say."""
    lab = await Lab.up()

    def full(event: SwapEvent) -> None:
        raise OSError(28, f"no space for {event.state}")

    with pytest.raises(OSError, match="no space for begin"), lab.testbed.events.subscribe(full, SwapEvent):
        await lab.testbed.apply(AFTER, probes=False)
    assert lab.testbed.experiment is AFTER
    assert lab.holds(lab.testbed.plan)
    assert lab.place.jobs.keys() == lab.before[0].keys()


async def test_a_note_that_cannot_be_recorded_goes_to_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Who takes notes is a run, on a disk that may be full; what is noted are repairs of switches."""
    lab = await Lab.up()

    def full(note: Note) -> None:
        raise OSError(28, f"no space for {note.message}")

    lab.testbed.events.subscribe(full, Note)
    assert lab.switches.on_event is not None
    lab.switches.on_event({"type": "error", "dpid": 1, "message": "table full"})
    assert "daemon: sw-1: table full (not recorded: " in capsys.readouterr().err


async def test_a_swap_that_fails_and_cannot_be_reported_goes_back() -> None:
    """To exactly what was."""
    lab = await Lab.up()
    lab.switches.arm(Fault("refused", 3))

    def full(_: SwapEvent) -> None:
        raise OSError(28, "no space")

    with pytest.raises(LabError, match="refused"), lab.testbed.events.subscribe(full, SwapEvent):
        await lab.testbed.apply(at_rate(AFTER, 32 * 10**6), probes=False)
    assert lab.state() == lab.before
