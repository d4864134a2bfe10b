# SPDX-License-Identifier: Apache-2.0
"""Swaps carried out, on switches in memory, with something going wrong at every single flow-mod.

Afterwards the tables are exactly the old or exactly the new plan; at no moment in between does any packet see a mixture
or get lost, wherever it was when the tables changed.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from atoll_controller.fabric import reconciler
from atoll_controller.fabric.reconciler import Reconciler
from atoll_controller.fabric.swap_executor import RunningSwap, StageReport, SwapStep, SwapVerifier, steps_of
from atoll_controller.fabric.swap_plan import Stage, StageKind, Swap, plan_swap
from atoll_controller.planner.entry_diff import diff
from atoll_controller.planner.planner import make_plan
from atoll_controller.tracing.table_model import Delivery, Frame, SwitchTables
from atoll_core.errors import LabError
from atoll_core.events.event_bus import EventBus
from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.lab.box_kind import LINK, ROUTER, BoxKind
from atoll_core.lab.network import (
    ChainBox,
    DelayBox,
    HostRole,
    Interface,
    LatencyClass,
    Network,
    PortPair,
    Switch,
    Tap,
    Trunk,
)
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.plan import Plan
from atoll_core.plan.tag_layout import UNTAGGED
from atoll_core.units import Duration, Rate
from atoll_switches.capability_profile import profile
from tests.support.labs import ISLAND, WORLD, Builder, experiment
from tests.support.memory_switches import Fault, MemorySwitches
from tests.support.table_paths import Path, path, places

pytestmark = pytest.mark.long

_GIGABIT = Rate(10**9)


def laboratory() -> Network:
    """Two switches, two routed boxes with spare legs on either side of a link, a delay box and a tap."""
    build = Builder()
    trunk = Trunk(build.port("sw-1"), build.port("sw-2"), _GIGABIT)
    roles = {
        "w1": (HostRole.WORLD_SERVER, WORLD[1], "sw-1"),
        "ws": (HostRole.WORLD_SPECIAL, WORLD[257], "sw-1"),
        "wh": (HostRole.WORLD_WHISTLE, WORLD[258], "sw-1"),
        "i1": (HostRole.ISLAND_CLIENT, ISLAND[1], "sw-2"),
        "is": (HostRole.ISLAND_SPECIAL, ISLAND[257], "sw-2"),
    }
    hosts = tuple(build.host(name, role, IPv4Address(address), at) for name, (role, address, at) in roles.items())

    def legs(name: str, suffix: str = "") -> PortPair:
        def leg(side: str) -> Interface:
            return build.interface(f"{name}-{side}{suffix}", "sw-2")

        return PortPair(leg("w"), leg("i"))

    def box(name: str, kind: BoxKind) -> ChainBox:
        first = legs(name)
        spare = legs(name, "2") if kind is ROUTER else None
        return ChainBox(name, kind, first.world, first.island, spare=spare)

    boxes = (box("b0", ROUTER), box("b1", LINK), box("b2", ROUTER))
    classes = tuple(LatencyClass(f"rtt-{ms}", ms, Duration(ms * 10**6), Duration(0)) for ms in (10, 20))
    delay = DelayBox("d0", build.interface("d0-t", "sw-1"), _GIGABIT, classes)
    tap = Tap("t0", "c0", build.interface("c0-t", "sw-2"))
    switches = (Switch("sw-1", 1, "ovs"), Switch("sw-2", 2, "ovs"))
    return Network("lab", "lab.yaml", WORLD, ISLAND, switches, (trunk,), hosts, boxes, (delay,), (tap,))


@dataclass
class Traffic:
    """Packets between hosts, each of which must come by one of the versions' ways, whenever it set out."""

    network: Network
    versions: tuple[tuple[Plan, Experiment], ...]
    allowed: dict[tuple[PortRef, Frame], set[Path]] = field(default_factory=dict)
    under_way: set[tuple[tuple[PortRef, Frame], PortRef, Frame, tuple[Delivery, ...]]] = field(default_factory=set)

    def __post_init__(self) -> None:
        world, island = self.network.host("w1"), self.network.host("i1")
        for src, dst in ((world, island), (island, world)):
            packet = src.interface.attached, Frame(src.address, dst.address)
            models = [SwitchTables(self.network, plan.flows) for plan, _ in self.versions]
            self.allowed[packet] = {path(model.arrivals(packet[1], packet[0])) for model in models}
            assert all(steps[-1][0] == dst.name or "t0" in dict(steps) for steps in self.allowed[packet])

    def look(self, switches: MemorySwitches) -> None:
        """Send a packet of each kind; where it is on its way others may be, too, when the tables change next."""
        model = SwitchTables(self.network, switches.forwarding, strict=False)
        for packet in self.allowed:
            start, frame = packet
            assert path(model.arrivals(frame, start)) in self.allowed[packet]
            self.under_way |= {(packet, *place) for place in places(model, frame, start)}
        for packet, at, frame, came_by in self.under_way:
            assert path((*came_by, *model.arrivals(frame, at))) in self.allowed[packet]


@functools.cache
def planned(*, detour: bool) -> tuple[Network, tuple[Plan, Plan, Plan], Swap, tuple[SwapStep, ...]]:
    """The laboratory, the plans before, between and after, and the swap with its steps."""
    network = laboratory()
    if detour:
        network = replace(network, boxes=tuple(replace(box, spare=None) for box in network.boxes))
    before = experiment(network, ("t0", "b0", "b1"), [("w1", "rtt-10")])
    after = experiment(network, ("b2", "t0", "b1", "b0"), [("w1", "rtt-10" if detour else "rtt-20")])
    swap = plan_swap(network, before, UNTAGGED, after)
    assert len(swap.parts) == 2
    old, new = make_plan(network, before), make_plan(network, after, layout=swap.layout)
    steps = steps_of(old, new, swap)
    middle = next(step.before for step in steps if step.stage.part)
    return network, (old, middle, new), swap, steps


@dataclass
class Trial:
    """A swap on switches in memory, and what became of it."""

    switches: MemorySwitches
    swapping: RunningSwap
    old: Plan
    new: Plan
    swap: Swap
    reports: list[StageReport]
    kept: Callable[[], Plan | None]
    turned: list[bool]
    slept: list[float]
    parts: list[int]

    def held(self, plan: Plan) -> bool:
        """Whether the switches hold exactly this plan, and are kept at it."""
        return diff(plan.flows, self.switches.entries) == () and self.kept() == plan


async def trial(
    fault: Fault | None = None,
    *,
    late: Collection[str] = (),
    probe: Callable[[Stage], Awaitable[None]] | None = None,
    before_cutover: Callable[[], Awaitable[None]] | None = None,
    before_part: Callable[[], Awaitable[None]] | None = None,
    detour: bool = False,
) -> Trial:
    """The old version on the switches, the swap ready to run; traffic all along. ``detour``: boxes have no spare legs.

    Then latencies stay, as one part more would hold only what other trials do.
    """
    network, plans, swap, steps = planned(detour=detour)
    old, _, new = plans
    traffic = Traffic(network, tuple(zip(plans, swap.versions, strict=True)))
    switches = MemorySwitches(network, lambda: traffic.look(switches) if running else None, late)
    running: list[bool] = []
    kept = Reconciler(switches, network, lambda: nothing(switches), EventBus())
    await kept.apply(old)
    switches.follow()
    running.append(True)
    switches.arm(fault)
    reports: list[StageReport] = []
    turned: list[bool] = []
    parts: list[int] = []

    async def nothing(controller: MemorySwitches) -> MemorySwitches:
        return controller

    class Verifier(SwapVerifier):
        """Frames arrive on the path of the tables as soon as all entries are in hardware, and no sooner."""

        async def verify_stage(self, stage: Stage) -> None:
            switches.follow()
            if probe is not None:
                await probe(stage)

        async def wait_for_cutover(self, stage: Stage, before: Plan, after: Plan) -> None:
            switches.follow()

        async def wait_for_drain(self, stage: Stage) -> None:
            """Nothing is in flight."""

    class Owner:
        """Records the cutover and the stages."""

        async def before_part(self, part: int) -> None:
            parts.append(part)
            if before_part is not None:
                await before_part()

        async def undo_part(self, part: int) -> None:
            parts.append(-part)

        async def wait_until_empty(self, stage: Stage) -> None:
            """No box holds packets."""

        async def before_shift(self, stage: Stage) -> None:
            if before_cutover is not None:
                await before_cutover()

        async def after_cutover(self) -> None:
            turned.append(True)

        async def after_shift(self, stage: Stage) -> None:
            """No connections are reset."""

        def stage_ended(self, report: StageReport) -> None:
            reports.append(report)

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if seconds:
            traffic.under_way.clear()

    swapping = RunningSwap(kept, steps, Verifier(), Owner(), sleep)
    return Trial(switches, swapping, old, new, swap, reports, lambda: kept.plan, turned, slept, parts)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is away is tried again soon."""
    monkeypatch.setattr(reconciler, "_RETRY_S", 0.0)


async def test_a_swap_passes_its_stages_and_leaves_exactly_the_new_plan() -> None:
    """Each stage is told once, with what it did."""
    tried = await trial()
    await tried.swapping.run()
    assert tried.held(tried.new)
    assert tried.turned == [True]
    assert [report.stage for report in tried.reports] == [stage.kind for stage in tried.swap.stages]
    assert {report.stage for report in tried.reports} == set(StageKind)
    assert sum(report.added + report.deleted for report in tried.reports) == tried.switches.sent


async def test_what_is_new_comes_from_the_highest_priority_down_before_anything_goes_from_the_lowest_up() -> None:
    """On all switches together, when a branch is split off and when it is joined again."""
    network = laboratory()
    bare = experiment(network, ("t0", "b0", "b1"))
    part = Chain("branch", ("b1", "b2"), TrafficSelector(island=IPv4Network("10.20.0.0/30"), protocol=Protocol.UDP))
    switches = MemorySwitches(network, lambda: None)
    kept = Reconciler(switches, network, asyncio.Event().wait, EventBus())  # pyright: ignore[reportArgumentType]
    await kept.apply(make_plan(network, bare))
    for version in (replace(bare, branches=(part,), chain=replace(bare.chain, hops=("b1",))), bare):
        switches.log.clear()
        await kept.apply(make_plan(network, version))
        come = [come for come, _ in switches.log]
        assert come == sorted(come, reverse=True)
        added, deleted = ([entry.priority for here, entry in switches.log if here is come] for come in (True, False))
        assert added == sorted(added, reverse=True)
        assert deleted == sorted(deleted)
        assert len(set(added + deleted)) > 2


async def ends(tried: Trial) -> bool:
    """Run a swap that something goes wrong with; whether the new version stands."""
    try:
        await tried.swapping.run()
    except LabError as error:
        assert tried.held(tried.old)
        assert tried.swapping.failure is error  # noqa: PT017 - whichever way it ends is right, if all of it is
        assert tried.reports[-1].stage == "undo"
        assert not tried.turned
        return False
    assert tried.held(tried.new)
    assert tried.turned
    return True


@pytest.mark.parametrize("late", [("sw-1",), ("sw-2",), ("sw-1", "sw-2")])
async def test_packets_take_no_harm_on_switches_that_acknowledge_entries_before_they_forward_by_them(
    late: Collection[str],
) -> None:
    """Nothing of the old version goes while any edge still sends packets into it."""
    tried = await trial(late=late)
    await tried.swapping.run()
    assert tried.held(tried.new)


@pytest.mark.parametrize("late", [(), ("sw-1",)])
@pytest.mark.parametrize("kind", ["refused", "ignored", "switch", "controller"])
async def test_whatever_goes_wrong_at_any_flow_mod_the_old_or_the_new_plan_stands(
    kind: str, late: Collection[str]
) -> None:
    """Before the last shift is complete the old one, afterwards the new one."""
    perfect = await trial()
    await perfect.swapping.run()
    outcomes = [await ends(await trial(Fault(kind, at), late=late)) for at in range(perfect.switches.sent)]
    collected = perfect.reports[-1].added + perfect.reports[-1].deleted
    assert outcomes == [False] * (len(outcomes) - collected) + [True] * collected


async def test_a_swap_with_a_version_in_between_is_one_change() -> None:
    """Whatever goes wrong in any part leads to the version before all of them or to the one behind."""
    perfect = await trial(detour=True)
    assert perfect.swap.parts[0].without == ("b0",)
    await perfect.swapping.run()
    assert [report.part for report in perfect.reports] == [stage.part for stage in perfect.swap.stages]
    assert perfect.turned == [True]
    for kind in ("refused", "ignored", "switch", "controller"):
        outcomes = [await ends(await trial(Fault(kind, at), detour=True)) for at in range(perfect.switches.sent)]
        collected = perfect.reports[-1].added + perfect.reports[-1].deleted
        assert outcomes == [False] * (len(outcomes) - collected) + [True] * collected, kind


async def test_cancelled_at_any_flow_mod_it_goes_back_unless_packets_have_turned() -> None:
    """Somebody's change of mind is a failure like any other."""
    outcomes: list[bool] = []
    perfect = await trial()
    await perfect.swapping.run()
    for at in range(perfect.switches.sent):
        tried = await trial()
        tried.switches.arm(Fault("call", at, call=lambda tried=tried: tried.swapping.abort("cancelled")))
        outcomes.append(await ends(tried))
    assert outcomes == sorted(outcomes)
    assert False in outcomes
    assert True in outcomes


async def test_a_probe_that_does_not_arrive_undoes_the_swap() -> None:
    """Its words are the reason; no packet has turned."""

    async def lost(stage: Stage) -> None:
        raise LabError(f"{len(stage.probes)} probes did not arrive")

    tried = await trial(probe=lost)
    with pytest.raises(LabError, match="probes did not arrive"):
        await tried.swapping.run()
    assert tried.held(tried.old)


async def test_entries_come_again_only_when_switches_do_not_forward_by_the_deleted_ones_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before packets turn; from then on the old version goes as soon as it can. What was waited for is told."""
    monkeypatch.setattr(Reconciler, "lag_s", lambda _, entries: 3.0 if entries else 0.0)
    tried = await trial()
    await tried.swapping.run()
    assert tried.held(tried.new)
    waited = {report.stage for report in tried.reports if report.waited_ns == 3 * 10**9}
    assert waited == {StageKind.INSTALL, StageKind.SHIFT}
    assert "waited 3.0 s" in str(tried.reports[0])
    assert not any(report.waited_ns for report in tried.reports if report.stage not in waited)


async def test_an_undone_swap_waits_before_it_adds_again_what_it_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old latencies are deleted already when frames do not pass the new chain."""
    monkeypatch.setattr(reconciler, "profile", lambda driver: replace(profile(driver), lag_s=5.0))
    slept_before = 0

    async def lost(_: Stage) -> None:
        nonlocal slept_before
        if any(report.stage is StageKind.COLLECT for report in tried.reports):
            slept_before = slept_before or len(tried.slept)
            raise LabError("probes did not arrive")

    tried = await trial(probe=lost)
    with pytest.raises(LabError, match="probes did not arrive"):
        await tried.swapping.run()
    assert tried.held(tried.old)
    assert any(4 < seconds <= 5 for seconds in tried.slept[slept_before:])


async def test_connections_that_cannot_be_looked_at_undo_the_swap() -> None:
    """What has to be done before packets turn has to succeed."""

    async def fail() -> None:
        raise LabError("no ss on this machine")

    tried = await trial(before_cutover=fail)
    with pytest.raises(LabError, match="no ss on this machine"):
        await tried.swapping.run()
    assert tried.held(tried.old)


async def test_who_waits_for_a_switch_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The swap goes back all the same, as soon as the switch is there."""
    monkeypatch.setattr("atoll_controller.fabric.swap_executor.BLOCKED_AFTER_S", 0.0)
    tried = await trial(Fault("switch", 3, away=200))
    with pytest.raises(LabError):
        await tried.swapping.run()
    assert "is not connected" in tried.swapping.blocked.result()
    assert tried.held(tried.old)


async def test_boxes_that_cannot_begin_again_between_two_parts_undo_the_swap() -> None:
    """The version in between carries packets by then."""

    async def fail() -> None:
        raise LabError("coder-w: its program ended at once")

    tried = await trial(detour=True, before_part=fail)
    with pytest.raises(LabError, match="ended at once"):
        await tried.swapping.run()
    assert tried.parts == [1, -1]
    assert tried.held(tried.old)
    assert not tried.turned
