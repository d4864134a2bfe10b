# SPDX-License-Identifier: Apache-2.0
"""The paths that prove a plan, and how it is told how far probes came."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_controller.planner.planner import make_plan
from atoll_controller.tracing.packet_trace import HopKind, trace
from atoll_controller.tracing.probe_paths import covering_paths, max_rtt_ns, path_of_sender
from atoll_controller.tracing.table_model import Lookup
from atoll_controller.tracing.trace_report import LiveStation, LiveTrace, live_trace_text, suspected_part
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.lab.box_kind import BoxKind, Forwarding
from atoll_core.lab.network import Network
from atoll_testbed.verification.entry_counters import are_counters_prompt, counted_path

Described = tuple[Network, Experiment]


@pytest.fixture
def demo(project: Path) -> Described:
    """The demo."""
    return load_experiment(project / "examples" / "geo.yaml")


def branched(experiment: Experiment) -> Experiment:
    """With a chain of its own for each protocol."""
    hops = {Protocol.TCP: ("pep-w", "sat", "pep-i"), Protocol.UDP: ("sat", "tap-i"), Protocol.ICMP: ("tap-w", "sat")}
    branches = tuple(Chain(str(kind), way, TrafficSelector(protocol=kind)) for kind, way in hops.items())
    return replace(experiment, branches=branches)


@pytest.mark.parametrize("name", ["congestion", "geo", "half-coded", "laboratory", "meo"])
def test_every_entry_that_hosts_can_cause_is_used(project: Path, name: str) -> None:
    """Guards, which drop what nobody sends, are all that is left; few paths do it."""
    network, experiment = load_experiment(project / "examples" / f"{name}.yaml")
    flows = make_plan(network, experiment).flows
    paths = covering_paths(network, experiment, flows)
    used = frozenset[object]().union(*(path.entries for path in paths))
    assert [entry for entry in flows if entry.actions and entry not in used] == []
    assert len(paths) <= 2 * max(len(network.world_hosts), len(network.island_hosts)) + 2


def test_chains_chosen_by_protocol_have_paths_of_that_protocol(demo: Described) -> None:
    """And what has no protocol of its own is probed by one that has no name."""
    network, experiment = demo
    experiment = branched(experiment)
    flows = make_plan(network, experiment).flows
    paths = covering_paths(network, experiment, flows)
    assert {(path.protocol, path.chain) for path in paths} == {
        (Protocol.TCP, "tcp"),
        (Protocol.UDP, "udp"),
        (Protocol.ICMP, "icmp"),
        (None, "main"),
    }
    used = frozenset[object]().union(*(path.entries for path in paths))
    assert [entry for entry in flows if entry.actions and entry not in used] == []


def test_the_full_laboratory_is_covered_at_once(project: Path) -> None:
    """One path a client; in hundredths of a second, so that an apply does not wait for it. A slow machine has 5 s."""
    network, experiment = load_experiment(project / "examples" / "laboratory.yaml")
    flows = make_plan(network, experiment).flows
    began = time.process_time()
    paths = covering_paths(network, experiment, flows)
    assert time.process_time() - began < 5
    assert len(paths) == len(network.island_hosts) == 107


def test_tcp_ends_at_a_box_that_ends_connections(demo: Described) -> None:
    """What is behind it is begun anew there; other protocols pass."""
    network, experiment = demo
    kind = BoxKind("splitter", Forwarding.ROUTED, stateful=True, ends_connections=True)
    boxes = tuple(replace(box, kind=kind) if box.name == "pep-w" else box for box in network.boxes)
    network, experiment = replace(network, boxes=boxes), branched(experiment)
    paths = covering_paths(network, experiment, make_plan(network, experiment).flows)
    ends = {path.protocol: {each.end for each in paths if each.protocol is path.protocol} for path in paths}
    assert ends[Protocol.TCP] == {"pep-w"}
    assert "pep-w" not in ends[Protocol.UDP]
    tcp = next(path for path in paths if path.protocol is Protocol.TCP)
    assert path_of_sender(network, tcp.steps, 17, tcp.island) == (tcp.steps, tcp.island)


def test_the_limit_holds_full_queues_and_delays_both_ways(demo: Described) -> None:
    """Twice: 250 ms, 200 ms of a full queue at the slower rate, 100 ms in the delay box, 0.2 s for the unknown."""
    assert max_rtt_ns(*demo) == 2 * (250_000_000 + 200_000_000 + 100_000_000 + 200_000_000)


def test_how_far_is_told_by_the_last_entry_that_counted(demo: Described) -> None:
    """And by where it sent the frames."""
    network, experiment = demo
    flows = make_plan(network, experiment).flows
    path = next(path for path in covering_paths(network, experiment, flows) if path.world == "ws")
    entries = [step.entry for step in path.steps if isinstance(step, Lookup) and step.entry is not None]
    taps = {tap.name for tap in network.taps}
    all_counted = dict.fromkeys(entries, 1)
    assert counted_path(path.steps, all_counted, taps).endswith(f"sent on to {path.island}")
    answer = counted_path(path.steps, all_counted | {entries[2]: 0}, taps)
    assert answer == (
        "last counted by 'ws -> sat: not delayed' at sw-c/1; sent on to sat; "
        "'sat -> island: out of the chain' at sw-c/16 did not count it"
    )
    assert counted_path(path.steps, {}, taps) == (
        "no entry counted it; 'ws -> sat: not delayed' at sw-w1/10 did not count it"
    )


def test_where_packets_ended_is_told_by_counters_that_tell_in_time(demo: Described) -> None:
    """Hardware on the way tells too late; a switch that is on no way does not matter."""
    network, experiment = demo
    path = next(p for p in covering_paths(network, experiment, make_plan(network, experiment).flows) if p.world == "w1")

    def answer(hardware: str) -> bool:
        switches = tuple(
            replace(each, driver="procurve-v3") if each.name == hardware else each for each in network.switches
        )
        return are_counters_prompt(replace(network, switches=switches), path.steps)

    assert [answer(switch) for switch in ("none", "sw-c", "sw-w1", "sw-w2")] == [True, False, False, True]


def live(described: Described, *, counted: int, seen: int, rtts: tuple[int, ...]) -> LiveTrace:
    """A live trace on which every station counted and saw as many."""
    network, experiment = described
    there = trace(network, experiment, make_plan(network, experiment).flows, "w1", "i1", Protocol.ICMP)
    stations = tuple(
        LiveStation(hop, counted=counted)
        if hop.kind is HopKind.SWITCH
        else LiveStation(hop, seen=seen, after_ns=1234567)
        for hop in there.hops
    )
    return LiveTrace(there, 5, stations, "i1", rtts, 505_000_000)


def test_where_to_look_is_the_cable_behind_the_last_entry_that_counted(demo: Described) -> None:
    """And the machine at its end, if there is one; the command is that of the switch which saw nothing."""
    network, experiment = demo
    taps = {tap.name for tap in network.taps}
    path = next(p for p in covering_paths(network, experiment, make_plan(network, experiment).flows) if p.world == "w1")
    entries = [step.entry for step in path.steps if isinstance(step, Lookup) and step.entry is not None]
    at = [str(step.at) for step in path.steps if isinstance(step, Lookup)]
    assert at == ["sw-w1/1", "sw-c/1", "sw-c/10", "sw-c/16", "sw-i/24"]

    def answer(number: int) -> str:
        return suspected_part(network, path.steps, dict.fromkeys(entries[:number], 1), taps)

    assert [answer(number) for number in range(6)] == [
        "w1 and the cable from its w1-eth0 to sw-w1/1, by `atoll switches counters sw-w1`",
        "the cable from sw-w1/24 to sw-c/1, by `atoll switches counters sw-c`",
        "delay and the cable from its delay-t to sw-c/10, by `atoll switches counters sw-c`",
        "sat and the cable from its sat-i to sw-c/16, by `atoll switches counters sw-c`",
        "the cable from sw-c/3 to sw-i/24, by `atoll switches counters sw-i`",
        "i1 and the cable from sw-i/1 to its i1-eth0, by `atoll switches counters sw-i`",
    ]
    gap = tuple(replace(step, entry=None) if step == path.steps[0] else step for step in path.steps)
    assert suspected_part(network, gap, {}, taps) == "the table of sw-w1, by `atoll switches entries sw-w1`"


def test_a_live_trace_says_what_is_proven(demo: Described) -> None:
    """With the round-trip time beside the configured one, and a word on other traffic."""
    found = live(demo, counted=7, seen=5, rtts=(506_000_000, 507_000_000, 509_000_000))
    text = live_trace_text(found)
    assert found.proven
    assert text.startswith("icmp from w1 to i1 takes chain main: proven, 3 of 5 probes answered after 507 ms ")
    assert "(506 ms to 509 ms), configured 505 ms\n" in text
    assert "saw 5 after 1.234 ms" in text
    assert text.endswith("\n  entries that counted more than 5 packets also carry other traffic")


def test_a_way_without_answers_is_not_proven(demo: Described) -> None:
    """Though everything on the way there has been passed."""
    found = live(demo, counted=5, seen=5, rtts=())
    assert found.lost == "on the way back: the probes arrived at i1, but no answer arrived at w1"
    assert "not proven; 5 probes were lost on the way back" in live_trace_text(found)


def test_the_first_station_that_saw_nothing_is_where_they_were_lost(demo: Described) -> None:
    """Counters that hardware does not tell in time say nothing either way."""
    found = live(demo, counted=5, seen=5, rtts=(1,))
    sat = next(at for at, station in enumerate(found.stations) if station.hop.name == "sat")
    stations = list(found.stations)
    stations[sat] = replace(stations[sat], seen=0)
    lost = replace(found, stations=tuple(stations))
    assert lost.lost == "after 'delay -> sat: delayed by class rtt-5' at sw-c/10: sat did not see them"
    unknown = [replace(each, counted=None) if each.counted else each for each in found.stations]
    assert replace(found, stations=tuple(unknown)).proven
