# SPDX-License-Identifier: Apache-2.0
"""A swap that takes coders out of the chain ends their programs when they hold no packets."""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.fabric.swap_executor import SwapVerifier, steps_of
from atoll_controller.fabric.swap_plan import plan_swap
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Note
from atoll_core.plan.plan import HostSettings
from atoll_core.plan.tag_layout import UNTAGGED
from atoll_hosts.job import Exit, Job
from atoll_testbed.box_connections import BoxConnections, ConnectionPolicy
from atoll_testbed.box_services import Services
from atoll_testbed.live_swap import LiveSwap
from atoll_testbed.machine_reconciler import MachineReconciler
from tests.support.memory_switches import MemorySwitches
from tests.support.skipped_waits import skipping_waits

CODED, BARE = ("tap-w", "coder-w", "sat", "coder-i", "tap-i"), ("tap-w", "sat", "tap-i")
Levels = Callable[[float], dict[str, int] | None]
"""The levels in a box's counters after so many seconds of the swap; None: the box sends no counters."""


class Machines:
    """Machines whose programs send counters ten times a second."""

    def __init__(self, levels: dict[str, Levels]) -> None:
        self._levels = levels
        self._begin_s = asyncio.get_running_loop().time()
        self.ended_s: dict[str, float] = {}

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time() - self._begin_s

    def machine(self, name: str) -> Any:
        async def start_job(_: str, argv: tuple[str, ...], **how: Any) -> Job:
            del argv

            async def request(op: str, **about: Any) -> dict[str, Any]:
                del op, about
                self.ended_s[name] = self.now_s
                job.on_exit(Exit(None, "TERM"))
                return {}

            def count() -> None:
                levels = self._levels.get(name, lambda _: None)(self.now_s)
                if job.exit is None and levels is not None:
                    job.on_output_line("stdout", json.dumps({"type": "counters", **levels}))
                    asyncio.get_running_loop().call_later(0.1, count)

            job = Job(name, request, how["on_line"])
            job.on_output_line("stdout", '{"type":"ready"}')
            count()
            return job

        async def put(settings: HostSettings) -> None: ...

        return SimpleNamespace(start_job=start_job, set=put)

    async def wait_for_links(self, hosts: Iterable[str]) -> None:
        list(hosts)


async def ends_of_coders(project: Path, **levels: Levels) -> tuple[float, list[str]]:
    """When the programs of both coders end in a swap without coders, in seconds, and its notes."""
    network, experiment = load_experiment(project / "examples" / "coder-geo.yaml")
    coded, bare = (replace(experiment, chain=replace(experiment.chain, hops=hops)) for hops in (CODED, BARE))
    swap = plan_swap(network, coded, UNTAGGED, bare)
    old, new = make_plan(network, coded), make_plan(network, bare, layout=swap.layout)
    events, notes = EventBus(), list[Note]()
    controller = MemorySwitches(network, lambda: None)
    switches = Reconciler(controller, network, asyncio.get_running_loop().create_future, events)
    await switches.apply(old)
    place: Any = Machines({box.replace("_", "-"): of for box, of in levels.items()})
    place.network = network
    services = Services(place, events, pytest.fail)
    machines = MachineReconciler(place, services)
    await machines.reconcile(old)
    swapping = LiveSwap(
        swap,
        steps_of(old, new, swap),
        switches=switches,
        machines=machines,
        connections=BoxConnections(
            network, place.machine, services.restart, machines.admit, events, ConnectionPolicy()
        ),
        verifier=SwapVerifier(),
        network=network,
        events=events,
        on_cutover=lambda: None,
    )
    with events.subscribe(notes.append, Note):
        await swapping.carry_out(asyncio.get_running_loop().create_future())
    await services.stop()
    first, last = sorted(place.ended_s[name] for name in ("coder-w", "coder-i"))
    assert last - first < 0.5
    return first, [note.message for note in notes]


def holding(level: str, until_s: float) -> Levels:
    """One of a coder's levels is not 0 until then."""
    return lambda now_s: {"waiting_repair_packets": 0, "packets_on_hold": 0, level: int(now_s < until_s)}


async def in_this_thread(function: Callable[..., Any], *args: Any) -> Any:
    """See :func:`skipping_waits`: its clock does not wait for threads."""
    return function(*args)


@skipping_waits
async def test_a_program_ends_when_its_counters_say_that_it_holds_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "to_thread", in_this_thread)
    empty = holding("packets_on_hold", 0)
    drained_s, notes = await ends_of_coders(project, coder_w=empty, coder_i=empty)
    assert notes == []
    for level in ("packets_on_hold", "waiting_repair_packets"):
        until_s = drained_s + 5
        ended_s, notes = await ends_of_coders(project, coder_w=empty, coder_i=holding(level, until_s))
        assert until_s <= ended_s <= until_s + 0.2
        assert notes == []


@skipping_waits
async def test_a_box_that_goes_on_holding_packets_or_is_silent_does_not_stop_the_swap_and_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "to_thread", in_this_thread)
    empty, full = holding("packets_on_hold", 0), holding("packets_on_hold", inf)
    drained_s, _ = await ends_of_coders(project, coder_w=empty, coder_i=empty)

    def silent(now_s: float) -> dict[str, int] | None:
        return empty(now_s) if now_s < drained_s - 1 else None

    lost = "may still hold packets, 10 s after its longest residence; they are lost"
    for coder_w, coder_i, boxes in ((full, empty, "coder-w"), (silent, silent, "coder-w, coder-i")):
        ended_s, notes = await ends_of_coders(project, coder_w=coder_w, coder_i=coder_i)
        assert ended_s == pytest.approx(drained_s + 10, abs=0.2)
        assert notes == [f"swap: {boxes} {lost}"]
