# SPDX-License-Identifier: Apache-2.0
"""Swaps, tried packet by packet on a model of the tables, in every state that a swap goes through."""

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from itertools import dropwhile, groupby, pairwise, product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, event, example, given, settings
from hypothesis import strategies as st

from atoll_apps.steering import flow_entries, steer
from atoll_controller.fabric.swap_plan import Stage, StageKind, Subject, Swap, plan_swap
from atoll_controller.fabric.swap_probes import Probe
from atoll_controller.planner.entry_diff import diff
from atoll_controller.planner.job_plan import jobs
from atoll_controller.tracing.table_model import Frame, Lookup, SwitchTables
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.lab.network import DelayBox, HostRole, LatencyClass, Network, Switch, Tap, Trunk
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import EntryId, FlowEntry
from atoll_core.plan.tag_layout import Layout
from atoll_core.units import Duration, Rate
from tests.support.labs import ISLAND, WORLD, Builder, experiment, experiments, laboratories
from tests.support.random_swaps import changed_experiment
from tests.support.table_paths import path, places

DATA = Path(__file__).resolve().parents[1] / "data" / "swaps"

MODELLED = int(os.environ.get("ATOLL_SWAPS", "30"))
"""Random swaps whose versions differ in settings of boxes, too."""
CODERS = {"coder-w", "coder-i"}

_quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@dataclass
class Case:
    """A swap in a random lab, from a version that may itself be the result of one."""

    network: Network
    old: Experiment
    new: Experiment
    swap: Swap
    before: tuple[FlowEntry, ...]


@st.composite
def swaps(draw: st.DrawFn) -> Case:
    """Swaps of chains, branches and latencies that are not refused."""
    network = draw(laboratories(gathered=draw(st.booleans())))
    first, second = draw(experiments(network)), draw(experiments(network))
    if draw(st.booleans()):
        second = replace(second, latency=first.latency, branches=first.branches)
    layout = Layout()
    try:
        layout = steer(network, first, layout).layout
        swap = plan_swap(network, first, layout, second)
        if draw(st.booleans()):  # and on to a third one, or back
            third = draw(st.sampled_from([first, draw(experiments(network))]))
            first, second, layout = second, third, swap.layout
            swap = plan_swap(network, first, layout, second)
    except PlanError:
        assume(False)
        raise
    return Case(network, first, second, swap, flow_entries(network, first, layout))


def _delayed_first() -> Case:
    """A swap after which only packets to the third server, which is not delayed, take an entry for all servers."""
    build = Builder()
    trunk = Trunk(build.port("sw-1"), build.port("sw-2"), Rate(10**9))
    server, client = HostRole.WORLD_SERVER, HostRole.ISLAND_CLIENT
    hosts = [build.host(f"w{number}", server, WORLD[number], "sw-1") for number in (1, 2, 3)]
    hosts += [build.host("i1", client, ISLAND[1], "sw-1"), build.host("i2", client, ISLAND[2], "sw-1")]
    delays = LatencyClass("slow", 100, Duration(10**7), Duration(0))
    box = DelayBox("d0", build.interface("d0-t", "sw-2"), Rate(10**9), (delays,))
    tap = Tap("t0", "c0", build.interface("c0-t", "sw-2"))
    switches = (Switch("sw-1", 1, "ovs"), Switch("sw-2", 2, "ovs"))
    network = Network("lab", "lab.yaml", WORLD, ISLAND, switches, (trunk,), tuple(hosts), (), (box,), (tap,))
    bare = experiment(network, ("t0",), (("w1", "slow"), ("w2", "slow")))
    old, new = (
        replace(bare, branches=(Chain("part", ("t0",), part),))
        for part in (TrafficSelector(protocol=Protocol.ICMP), TrafficSelector(island=IPv4Network("10.20.0.0/31")))
    )
    layout = steer(network, old, Layout()).layout
    return Case(network, old, new, plan_swap(network, old, layout, new), flow_entries(network, old, layout))


def _latencies_between() -> Case:
    """A swap whose latencies cannot change before its chain, nor behind it: only in a version in between."""
    network, bare = load_experiment(DATA / "scattered.yaml")
    old = replace(bare, latency=(("w2", "rtt-80"),))
    new = replace(bare, chain=replace(bare.chain, hops=("sat", "r2", "tap-i", "r1")), latency=(("w2", "rtt-20"),))
    layout = steer(network, old, Layout()).layout
    swap = plan_swap(network, old, layout, new)
    assert [part.subject for part in swap.parts] == [Subject.CHAINS, Subject.LATENCY, Subject.CHAINS]
    return Case(network, old, new, swap, flow_entries(network, old, layout))


@_quick
@given(swaps(), st.integers(0, 2**32))
@example(_latencies_between(), 1)
def test_every_packet_sees_the_old_version_or_the_new_one_in_every_state(case: Case, seed: int) -> None:
    """Packets that set out in one state and go on in a later one included, wherever they were in between."""
    _hold(case, list(_packets(case.network, case)), random.Random(seed))


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_any_chain_of_the_shipped_lab_becomes_any_other_one(
    shipped: tuple[Network, Experiment], data: st.DataObject
) -> None:
    """None of 50 pairs is refused, though no box has spare legs; nor is any packet led astray on the way."""
    network, geo = shipped
    assert not any(box.spare for box in network.boxes)
    old, new = (replace(geo, chain=replace(geo.chain, hops=data.draw(_hops_of(network)))) for _ in "ab")
    if data.draw(st.booleans()):
        part = TrafficSelector(island=IPv4Network("10.20.0.0/30"))
        new = replace(new, branches=(Chain("part", data.draw(_hops_of(network)), part),))
    layout = steer(network, old, Layout()).layout
    swap = plan_swap(network, old, layout, new)
    event(f"{len(swap.parts)} parts")
    case = Case(network, old, new, swap, flow_entries(network, old, layout))
    shuffle = random.Random(data.draw(st.integers(0, 2**32)))
    _hold(case, shuffle.sample(list(_packets(network, case)), 10), shuffle)


@pytest.mark.timeout(300 + MODELLED)
def test_chains_latencies_and_settings_of_coders_and_peps_change_while_no_packet_passes_a_box_that_begins_again(
    project: Path,
) -> None:
    """None is refused. A box that holds packets is left early enough, and each break of connections is announced."""
    network, experiment = load_experiment(project / "tests" / "data" / "swaps" / "coded.yaml")
    spare = random.Random(0)
    kinds: Counter[str] = Counter()
    for number in range(MODELLED):
        draw = random.Random(number)
        lab = bare(network) if spare.random() < 0.3 else network
        old = changed_experiment(draw, experiment)
        new = changed_experiment(draw, old)
        layout = steer(lab, old, Layout()).layout
        swap = plan_swap(lab, old, layout, new)
        _hold(Case(lab, old, new, swap, flow_entries(lab, old, layout)), _some(lab, draw), draw)
        begin_again = _begin_again(lab, old, new)
        passed = [{hop for chain in version.chains for hop in chain.hops} for version in swap.versions]
        renewed = {box: at for at, part in enumerate(swap.parts, start=1) for box in part.renewed}
        assert renewed.keys() == (begin_again & passed[0] & passed[-1] if passed else set())
        assert not any(box in passed[at] for box, at in renewed.items())
        for part, (before, after) in enumerate(pairwise(swap.versions)):
            left = {hop for hop in before.chain.hops if hop not in after.chain.hops}
            held_ns = max(
                (dict(each.settings)["in_order_hold"] for each in before.boxes if each.box in left & CODERS), default=0
            )
            assert swap.drain_ns(part) >= held_ns
            peps = {"pep-w", "pep-i"} & ({*before.chain.hops} ^ {*after.chain.hops})
            assert peps <= {*swap.parts[part].moved}
        kinds["with parts"] += len(swap.parts) > 1
        kinds["renewed"] += bool(renewed)
    assert min(kinds["with parts"], kinds["renewed"]) > MODELLED // 10


def _begin_again(network: Network, old: Experiment, new: Experiment) -> set[str]:
    """The boxes whose programs have another configuration, by both plans, but for limits that PEPs take as they run."""
    before, after = ({job.name: job.config for job in jobs(network, each)} for each in (old, new))
    found: set[str] = set()
    for name, was in before.items():
        now = after.get(name)
        if was and now and name.startswith(("pep-", "coder-")):
            taken = {"silence_ns", "pending_max"} if name.startswith("pep-") else set[str]()
            found |= {name.split("-", 1)[1]} if any(was[key] != now.get(key) for key in was.keys() - taken) else set()
    return found


def _some(network: Network, draw: random.Random) -> list[tuple[PortRef, Frame]]:
    """Packets of some pairs of hosts, in both directions."""
    found: list[tuple[PortRef, Frame]] = []
    for _ in range(2):
        world, island = draw.choice(network.world_hosts), draw.choice(network.island_hosts)
        for src, dst in ((world, island), (island, world)):
            found.append((src.interface.attached, Frame(src.address, dst.address, None, draw.choice([1, 6, 17]))))
    return found


def bare(network: Network) -> Network:
    """The lab without spare legs."""
    return replace(network, boxes=tuple(replace(box, spare=None) for box in network.boxes))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_no_chain_is_refused_in_random_labs_if_latencies_stay(data: st.DataObject) -> None:
    """Few others are (docs/swaps.md)."""
    network = data.draw(laboratories(gathered=data.draw(st.booleans())))
    old, new = data.draw(experiments(network)), data.draw(experiments(network))
    new = replace(new, latency=old.latency, branches=old.branches)
    plan_swap(network, old, steer(network, old, Layout()).layout, new)


def test_few_swaps_of_chains_and_latencies_are_refused_in_random_labs() -> None:
    """Eleven of these 200 would be, if latencies always changed first."""
    refused: list[str] = []

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def swap(data: st.DataObject) -> None:
        network = data.draw(laboratories(gathered=data.draw(st.booleans())))
        old, new = data.draw(experiments(network)), data.draw(experiments(network))
        try:
            plan_swap(network, old, steer(network, old, Layout()).layout, new)
        except PlanError as error:
            refused.append(str(error))

    swap()
    assert len(refused) <= 1, refused


@pytest.fixture(scope="module")
def shipped(project: Path) -> tuple[Network, Experiment]:
    """The lab that comes with atoll, and an experiment on it."""
    return load_experiment(project / "examples" / "geo.yaml")


@st.composite
def _hops_of(draw: st.DrawFn, network: Network) -> tuple[str, ...]:
    """The link, and any of the other boxes and of the taps, in any order."""
    others = [*(box.name for box in network.boxes if not box.is_link), *(tap.name for tap in network.taps)]
    chosen = draw(st.lists(st.sampled_from(others), unique=True))
    return tuple(draw(st.permutations([*chosen, *(box.name for box in network.boxes if box.is_link)])))


def _hold(case: Case, packets: Sequence[tuple[PortRef, Frame]], shuffle: random.Random) -> None:
    network = case.network
    table = {entry.identity: entry for entry in case.before}
    for _, phase in groupby(case.swap.stages, key=lambda stage: stage.part):
        states = list(_states(list(phase), table, shuffle))
        old, new = SwitchTables(network, table.values()), SwitchTables(network, states[-1][1])
        for start, frame in packets:
            allowed = [path(model.arrivals(frame, start)) for model in (old, new)]
            before, after = list(places(old, frame, start)), list(places(new, frame, start))
            for kind, state in states:
                model = SwitchTables(network, shuffle.sample(state, len(state)), strict=False)
                gone, come = kind is StageKind.COLLECT, kind is not StageKind.INSTALL
                assert path(model.arrivals(frame, start)) in (allowed[1:] if gone else allowed if come else allowed[:1])
                for at, carried, came_by in (*(() if gone else before), *(after if come else ())):
                    assert path((*came_by, *model.arrivals(carried, at))) in allowed
        table = {entry.identity: entry for entry in states[-1][1]}
    assert diff(flow_entries(network, case.new, case.swap.layout), table.values()) == ()


@_quick
@given(swaps())
@example(_delayed_first())
@example(_latencies_between())
def test_probes_take_every_entry_at_which_packets_turn_and_every_new_one_behind_it(case: Case) -> None:
    """Of all that some host's packets use: a switch may have any of its entries in hardware before any other."""
    table = {entry.identity: entry for entry in case.before}
    for _, phase in groupby(case.swap.stages, key=lambda stage: stage.part):
        stages = {stage.kind: stage for stage in phase}
        left = SwitchTables(case.network, ())
        for kind, stage in stages.items():
            if kind is StageKind.SHIFT:
                left = SwitchTables(case.network, table.values(), strict=False)
            come, gone = ({entry.identity for entry in entries} for entries in (stage.add, stage.delete))
            table = {key: entry for key, entry in table.items() if key not in gone}
            table |= {entry.identity: entry for entry in stage.add}
            if kind is StageKind.SHIFT:
                after = SwitchTables(case.network, table.values(), strict=False)
                probes = stages[StageKind.PROBE].probes if come else ()
                installed = stages[StageKind.INSTALL].add if StageKind.INSTALL in stages else ()
                new = come | {entry.identity for entry in installed}
                assert new & _used(case, after, come) <= _proven(case, after, come, probes)
                assert come & _used(case, after, come) <= _proven(case, after, come, stage.probes)
                assert gone & _used(case, left, gone) <= _proven(case, left, gone, stage.probes)


def _used(case: Case, tables: SwitchTables, turns: set[EntryId]) -> set[EntryId]:
    """What packets between hosts take where they turn and behind."""
    return {each for start, frame in _packets(case.network, case) for each in _behind(tables, frame, start, turns)}


def _proven(case: Case, tables: SwitchTables, turns: set[EntryId], probes: Iterable[Probe]) -> set[EntryId]:
    """What probes take there."""
    found: set[EntryId] = set()
    for probe in probes:
        src, dst = case.network.host(probe.src), case.network.host(probe.dst)
        frame = Frame(src.address, dst.address, protocol=probe.protocol)
        found.update(_behind(tables, frame, src.interface.attached, turns))
    return found


def _behind(tables: SwitchTables, frame: Frame, start: PortRef, turns: set[EntryId]) -> Iterator[EntryId]:
    steps = [step.entry for step in tables.walk(frame, start) if isinstance(step, Lookup)]
    return dropwhile(lambda key: key not in turns, (entry.identity for entry in steps if entry is not None))


def _states(
    phase: list[Stage], table: dict[EntryId, FlowEntry], shuffle: random.Random
) -> Iterator[tuple[StageKind, list[FlowEntry]]]:
    """Two tables within each stage and the one after it, with the stage."""
    table = dict(table)
    for stage in phase:
        add = sorted(shuffle.sample(stage.add, len(stage.add)), key=lambda entry: -entry.priority)
        delete = sorted(shuffle.sample(stage.delete, len(stage.delete)), key=lambda entry: entry.priority)
        changes = [(entry, True) for entry in add] + [(entry, False) for entry in delete]
        shown = {shuffle.randint(1, len(changes)), shuffle.randint(1, len(changes)), len(changes)} if changes else {0}
        for count, (entry, put) in enumerate(changes, start=1):
            if put:
                table[entry.identity] = entry
            else:
                del table[entry.identity]
            if count in shown:
                yield stage.kind, list(table.values())
    yield phase[-1].kind, list(table.values())


def _packets(network: Network, case: Case) -> Iterator[tuple[PortRef, Frame]]:
    """A frame of each kind that some chain is chosen by, between each two hosts, in both directions."""
    protocols = (1, 6) if case.old.branches or case.new.branches else (132,)
    for world, island, number in product(network.world_hosts, network.island_hosts, protocols):
        for src, dst in ((world, island), (island, world)):
            yield src.interface.attached, Frame(src.address, dst.address, None, number)
