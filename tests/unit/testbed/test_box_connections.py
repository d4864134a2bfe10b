# SPDX-License-Identifier: Apache-2.0
"""What is asked for connections that a swap breaks, and what is done where a kernel does not end them."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll_core.description.loader import load_experiment
from atoll_core.errors import LabError, UsageError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import SwapEvent
from atoll_core.units import Duration
from atoll_hosts.job import Exit
from atoll_testbed.box_connections import BoxConnections, ConnectionPolicy
from tests.support.skipped_waits import skipping_waits


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("reset", None),
        ("wait", Duration.parse("60 s")),
        ("wait:30 s", Duration.parse("30 s")),
        ("wait:500ms", Duration.parse("500 ms")),
    ],
)
def test_words_that_are_understood(text: str, limit: Duration | None) -> None:
    assert ConnectionPolicy.parse(text) == ConnectionPolicy(limit)


@pytest.mark.parametrize("text", ["", "resets", "wait:", "wait:soon", "wait:30", "reset:3 s", "wait :3 s"])
def test_words_that_are_not(text: str) -> None:
    with pytest.raises(UsageError) as error:
        ConnectionPolicy.parse(text)
    assert str(error.value).startswith(f"--connections: {text!r}")
    assert len(str(error.value).splitlines()) == 1


class OldKernel:
    """A box that tells how many connections its programs hold, and does not end any for `ss`."""

    def __init__(self, held: int) -> None:
        self.held = held
        self.asked: list[str] = []
        self.restarted: list[str] = []

    async def start_job(self, name: str, argv: tuple[str, ...], *, privileges: tuple[str, ...]) -> Any:
        assert privileges == ("net-admin",)
        self.asked.append(argv[0])

        async def wait() -> Exit:
            return Exit(0, None)

        return SimpleNamespace(name=name, wait=wait, last={"connections": self.held})

    async def admit(self, box: str, *, on: bool) -> None:
        self.asked.append(f"{box} {'admits' if on else 'admits none'}")

    async def restart(self, box: str) -> None:
        self.restarted.append(box)
        self.held = 0


@pytest.fixture
def answer() -> Iterator[list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    yield events
    json.dumps(events)  # what is told goes over wires


async def test_connections_that_the_kernel_does_not_end_end_with_their_program(
    project: Path, answer: list[dict[str, Any]]
) -> None:
    """And it is told that it was so."""
    network, _ = load_experiment(project / "tests" / "data" / "swaps" / "experiment.yaml")
    box = OldKernel(4)
    events = EventBus()
    events.subscribe(lambda event: answer.append(event.to_json()), SwapEvent)
    connections = BoxConnections(network, lambda _: box, box.restart, box.admit, events, ConnectionPolicy())  # pyright: ignore[reportArgumentType]
    await connections.reset(["r2"])
    assert box.asked == ["sh", "ss", "sh"]
    assert box.restarted == ["r2"]
    assert [(event["how"], event["boxes"]) for event in answer] == [("restart", {"r2": 4})]
    await connections.reset(["r2"])
    assert len(answer) == 1, "nothing held, nothing told"


class BusyBox(OldKernel):
    """A box at which a connection begins for each that ends, as long as it admits any."""

    admits = True

    async def admit(self, box: str, *, on: bool) -> None:
        await super().admit(box, on=on)
        self.admits = on

    async def start_job(self, name: str, argv: tuple[str, ...], *, privileges: tuple[str, ...]) -> Any:
        self.held -= not self.admits and self.held > 0
        return await super().start_job(name, argv, privileges=privileges)


@skipping_waits
async def test_a_busy_box_admits_no_connection_while_the_old_ones_are_waited_for(
    project: Path, answer: list[dict[str, Any]]
) -> None:
    """Their clients try again, and take the new way."""
    network, _ = load_experiment(project / "tests" / "data" / "swaps" / "experiment.yaml")
    box, events = BusyBox(3), EventBus()
    events.subscribe(lambda event: answer.append(event.to_json()), SwapEvent)
    policy = ConnectionPolicy.parse("wait:5 s")
    connections = BoxConnections(network, lambda _: box, box.restart, box.admit, events, policy)  # pyright: ignore[reportArgumentType]
    assert await connections.wait(["r2"])
    assert box.asked[0] == "r2 admits none"
    assert (box.held, box.admits, answer) == (0, False, [])
    await connections.reopen()
    await connections.reopen()
    assert [asked for asked in box.asked if "admits" in asked] == ["r2 admits none", "r2 admits"]


async def test_boxes_admit_connections_again_even_if_the_old_ones_cannot_be_reset(project: Path) -> None:
    class Failing(OldKernel):
        restarts = 0

        async def restart(self, box: str) -> None:
            self.restarts += 1
            raise LabError(f"{box} does not start")

    network, _ = load_experiment(project / "tests" / "data" / "swaps" / "experiment.yaml")
    box, policy = Failing(1), ConnectionPolicy.parse("wait:0 s")
    connections = BoxConnections(network, lambda _: box, box.restart, box.admit, EventBus(), policy)  # pyright: ignore[reportArgumentType]
    await connections.wait(["r2"])
    with pytest.raises(LabError, match="r2 does not start"):
        await connections.reset(["r2"])
    assert (box.restarts, box.asked[-1]) == (1, "r2 admits")


async def test_a_box_that_cannot_admit_connections_is_asked_again(project: Path) -> None:
    class Failing(OldKernel):
        failures = 1

        async def admit(self, box: str, *, on: bool) -> None:
            if on and self.failures:
                self.failures -= 1
                raise LabError(f"{box} does not answer")
            await super().admit(box, on=on)

    network, _ = load_experiment(project / "tests" / "data" / "swaps" / "experiment.yaml")
    box, policy = Failing(0), ConnectionPolicy.parse("wait:5 s")
    connections = BoxConnections(network, lambda _: box, box.restart, box.admit, EventBus(), policy)  # pyright: ignore[reportArgumentType]
    await connections.wait(["r2"])
    with pytest.raises(LabError, match="r2 does not answer"):
        await connections.reopen()
    await connections.reopen()
    assert box.asked[-1] == "r2 admits"
