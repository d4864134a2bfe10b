# SPDX-License-Identifier: Apache-2.0
"""Branches, boxes of other people, spare legs and physical taps: what they resolve to, and the message for each mistake."""

# ruff: noqa: E501 (the tables of mistakes read best with a message on a line)

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from atoll_controller.planner.host_config import host_settings
from atoll_controller.planner.job_plan import capture_points
from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError, LabError
from atoll_core.experiment.experiment import Experiment, Protocol, TrafficSelector
from atoll_core.lab.box_kind import EXTERNAL
from atoll_core.lab.network import Network
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.flow_entry import Output
from atoll_core.plan.plan import Phase
from atoll_emulation.mininet_lab.topology import LabTopo

PEPS = "  pep-w: {kind: router, world: sw-c/11, island: sw-c/12}"
TAP = "  tap-w: {host: cap-w, port: sw-c/21}"
CHAIN = "chain: [tap-w, sat, tap-i]"
PROGRAM = (
    "  pep-w: {kind: program, forwarding: routed, stateful: true, world: sw-c/11, island: sw-c/12, "
    "program: {start: [pepsal, -i, '{world}'], stop: [pepctl, stop], report: [pepctl, show, '{island}']}}"
)


@pytest.fixture
def load(tmp_path, monkeypatch, project):
    """Loads the demo with edits of its lab and of itself."""
    monkeypatch.chdir(tmp_path)

    def load_edited(
        lab: tuple[str, str] | None = None, experiment: tuple[str, str] | None = None
    ) -> tuple[Network, Experiment]:
        for name, source, edit in (
            ("lab.yaml", "emulation/labs/island.yaml", lab),
            ("e.yaml", "examples/geo.yaml", experiment),
        ):
            text = (project / source).read_text(encoding="utf-8").replace("../emulation/labs/island.yaml", "lab.yaml")
            if edit:
                assert text.count(edit[0]) == 1
                text = text.replace(*edit)
            Path(name).write_text(text, encoding="utf-8")
        return load_experiment(Path("e.yaml"))

    return load_edited


def branches(text: str) -> tuple[str, str]:
    """The demo's chain, and branches after it."""
    return CHAIN, f"{CHAIN}\nbranches: {{{text}}}"


def test_a_branch_carries_what_it_says_and_the_chain_the_rest(load):
    _, experiment = load(
        experiment=branches(
            "udp: {carries: {protocol: udp}, chain: [sat]}, a: {carries: {island: 10.20.0.0/30, world: "
            "10.10.0.2/32}, chain: []}"
        )
    )
    assert [chain.name for chain in experiment.chains] == ["udp", "a", "main"]
    assert experiment.branches[0].carries == TrafficSelector(protocol=Protocol.UDP)
    assert experiment.branches[1].carries == TrafficSelector(IPv4Network("10.10.0.2/32"), IPv4Network("10.20.0.0/30"))
    w1, w2 = (experiment_host(load, name) for name in ("w1", "w2"))
    i1, i6 = (experiment_host(load, name) for name in ("i1", "i6"))
    assert experiment.carrier(w2, i1, Protocol.TCP).name == "a"
    assert experiment.carrier(w2, i1, Protocol.UDP).name == "udp"
    assert experiment.carrier(w1, i1).name == experiment.carrier(w2, i6).name == "main"


def experiment_host(load, name):
    return load()[0].host(name).address


def test_paths_are_tested_on_the_chain_that_carries_pings(load):
    """Two emulators at once: each path's round-trip time is that of its own link."""
    network, experiment = load(experiment=branches("near: {carries: {island: 10.20.0.6/32}, chain: [pep-w]}"))
    checks = {(check.src, check.dst): check.rtt_ns for check in make_plan(network, experiment).checks}
    assert checks["ws", "is"] == 500_000_000
    assert checks["w6", "i6"] == 200_000_000


def test_a_tap_that_only_a_branch_passes_is_captured_by_its_name(load):
    lab = (TAP, f"{TAP}\n  tap-x: {{host: cap-x, port: sw-c/23}}")
    network, experiment = load(lab, branches("udp: {carries: {protocol: udp}, chain: [tap-w, tap-x, sat]}"))
    assert {point.name for point in capture_points(network, experiment)} == {"world", "island", "link-sat", "tap-x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: {carries: {}, chain: []}",
            (
                "branch 'a': carries: it selects no traffic; add a world prefix, an island prefix or a protocol "
                "('chain' carries all other traffic)"
            ),
        ),
        (
            "a: {carries: {protocol: sctp}, chain: []}",
            "branch 'a': carries: protocol: unknown protocol 'sctp'; known protocols: icmp, tcp, udp",
        ),
        (
            "a: {carries: {island: 10.30.0.0/24}, chain: []}",
            (
                "branch 'a': carries: island: 10.30.0.0/24 is not within the lab's island network 10.20.0.0/16; choose "
                "a part of that"
            ),
        ),
        (
            "a: {carries: {protocol: udp}, chain: [sta]}",
            (
                "branch 'a': chain hop 1: unknown box or tap 'sta'; did you mean 'sat'? known boxes and taps: pep-w, "
                "coder-w, sat, coder-i, pep-i, tap-w, tap-i"
            ),
        ),
        (
            "a: {carries: {protocol: udp}, chain: []}, b: {carries: {protocol: udp}, chain: [sat]}",
            (
                "branch 'b': carries: branch 'a' (line 10) carries the same traffic; merge the two branches, or narrow "
                "one of them"
            ),
        ),
        (
            "a: {carries: {island: 10.20.0.64/28}, chain: []}",
            "branch 'a': carries: no two hosts of the lab have such traffic; name a prefix with hosts in it",
        ),
        (
            (
                "a: {carries: {island: 10.20.0.0/24}, chain: []}, b: {carries: {island: 10.20.0.0/29}, chain: []}, c: "
                "{carries: {island: 10.20.0.0/28}, chain: [sat]}"
            ),
            (
                "branch 'c': carries: it carries no traffic: 'b' carries all of it; remove one of these branches, or "
                "narrow it"
            ),
        ),
        (
            "a: {carries: {island: 10.20.0.0/16}, chain: []}",
            "chain: it carries no traffic: 'a' carries all of it; remove one of these branches, or narrow it",
        ),
        ("a: {chain: []}", "branch 'a': carries is missing; add 'carries: {protocol: udp}'"),
    ],
)
def test_a_branch_that_cannot_be_is_told_with_its_remedy(load, text, message):
    with pytest.raises(DescriptionError) as refused:
        load(experiment=branches(text))
    answer = str(refused.value).splitlines()
    assert any(line.split(": ", 1)[1] == message for line in answer), answer


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            PEPS,
            PEPS.replace("router", "program"),
            "box 'pep-w': program: a box of kind program has one; add 'program: {start: [...]}'",
        ),
        (
            PEPS,
            PEPS.replace("router", "external"),
            (
                "box 'pep-w': forwarding: a box of kind external needs `forwarding`; write transparent if it "
                "forwards frames unchanged, routed if it forwards IP packets in new frames"
            ),
        ),
        (
            PEPS,
            PEPS.replace("router", "router, stateful: true"),
            ("box 'pep-w': stateful: kind router fixes this value; remove the key, or use kind program or external"),
        ),
        (
            PEPS,
            PEPS.replace("router", "router, program: {start: [x]}"),
            "box 'pep-w': program: nothing is started on a box of kind router; remove it, or write kind: program",
        ),
        (
            "  sat: {kind: link,",
            "  sat: {kind: link, spare: {world: sw-c/31, island: sw-c/32},",
            "box 'sat': spare: a transparent box keeps VLAN tags, which distinguish versions; remove spare",
        ),
        (PEPS, PEPS.replace("}", ", spare: {world: sw-c/13, island: sw-c/32}}"), "port sw-c/13 is already taken"),
        (
            TAP,
            "  tap-w: {host: cap-w}",
            "tap 'tap-w': write either port (a switch port that sends copies) or cable (a cable with a splitter)",
        ),
        (
            TAP,
            "  tap-w: {host: cap-w, cable: sw-c/77}",
            "tap 'tap-w': cable: no cable ends at sw-c/77; name a port with an attached machine",
        ),
    ],
)
def test_a_box_or_tap_that_cannot_be_is_told_with_its_remedy(load, old, new, message):
    with pytest.raises(DescriptionError) as refused:
        load((old, new))
    assert message in str(refused.value)


def test_a_program_is_started_stopped_and_heard_as_it_wants(load):
    """Its commands know the interfaces by name; its machine routes what the program leaves alone."""
    network, experiment = load((PEPS, PROGRAM), (CHAIN, "chain: [tap-w, pep-w, sat, tap-i]"))
    jobs = {job.name: job for job in make_plan(network, experiment).jobs if "pep-w" in job.name}
    assert jobs["program-pep-w"].argv == ("pepsal", "-i", "pep-w-w")
    assert jobs["program-pep-w"].stop == ("pepctl", "stop")
    assert (jobs["program-pep-w"].phase, jobs["program-pep-w"].config) == (Phase.SERVICE, None)
    assert jobs["report-pep-w"].argv == ("pepctl", "show", "pep-w-i")
    assert jobs["report-pep-w"].stdout == "logs/report-pep-w.out"
    settings = {each.host: each for each in host_settings(network, experiment)}
    assert all(legs.accept_foreign for legs in settings["pep-w"].legs)


def test_a_program_outside_the_chain_does_not_run(load):
    network, experiment = load((PEPS, PROGRAM))
    assert not [job for job in make_plan(network, experiment).jobs if "pep-w" in job.name]


def test_nothing_is_started_or_set_on_an_external_device(load):
    """Its ports are in the chain all the same."""
    external = PEPS.replace("router", "external, forwarding: transparent")
    network, experiment = load((PEPS, external), (CHAIN, "chain: [tap-w, pep-w, sat, tap-i]"))
    assert network.box("pep-w").kind is EXTERNAL
    plan = make_plan(network, experiment)
    assert "pep-w" not in {settings.host for settings in plan.hosts} | {job.host for job in plan.jobs}
    assert any("pep-w -> sat" in entry.why for entry in plan.flows)


def test_spare_legs_are_routed_by_a_table_of_their_own(load):
    """Named after the box; what comes in by them leaves by them."""
    network, experiment = load((PEPS, PEPS.replace("}", ", spare: {world: sw-c/31, island: sw-c/32}}")))
    (settings,) = (each for each in host_settings(network, experiment) if each.host == "pep-w")
    assert {interface.name: [route.prefix for route in interface.routes] for interface in settings.interfaces} == {
        "pep-w-w": ["10.10.0.0/16"],
        "pep-w-i": ["10.20.0.0/16"],
        "pep-w-w2": ["10.10.0.0/16"],
        "pep-w-i2": ["10.20.0.0/16"],
    }
    assert [(legs.world, legs.island, legs.table) for legs in settings.legs] == [
        ("pep-w-w", "pep-w-i", None),
        ("pep-w-w2", "pep-w-i2", 2),
    ]
    assert len(network.machines["pep-w"]) == 4


def test_a_tap_of_one_direction_gets_copies_of_frames_to_the_island_only(load):
    """At a switch port no entry sends it frames to the world; a splitter has the same key."""
    network, experiment = load()
    assert {_copies(network, experiment, address) for address in ("10.10.0.0/16", "10.20.0.0/16")} == {True}
    network, experiment = load((TAP, TAP[:-1] + ", direction: to_island}"))
    assert network.tap("tap-w").to_island_only
    assert _copies(network, experiment, "10.20.0.0/16")
    assert not _copies(network, experiment, "10.10.0.0/16")
    network, _ = load((TAP, "  tap-w: {host: cap-w, cable: sw-c/15, direction: to_island}"))
    assert network.tap("tap-w").physical
    assert network.tap("tap-w").to_island_only
    with pytest.raises(DescriptionError, match=r"unknown direction 'to_world'; known directions: both, to_island"):
        load((TAP, TAP[:-1] + ", direction: to_world}"))


def _copies(network, experiment, prefix: str) -> bool:
    """Whether an entry for frames to addresses of a prefix sends copies to tap-w."""
    tap = network.tap("tap-w").interface.attached
    return any(
        Output(tap.port) in flow.actions
        and flow.match.ipv4_dst is not None
        and flow.match.ipv4_dst.subnet_of(IPv4Network(prefix))
        for flow in make_plan(network, experiment).flows
        if flow.switch == tap.switch
    )


def test_a_physical_tap_needs_no_entry(load):
    """It copies what its cable carries; it can stand beside the box whose cable that is, and only there."""
    lab = (TAP, "  tap-w: {host: cap-w, cable: sw-c/15}")
    network, experiment = load(lab)
    tap = network.tap("tap-w")
    assert tap.physical
    assert tap.interface.attached == PortRef("sw-c", 15)
    assert network.machines["cap-w"] == ()
    bare, _ = load(lab, (CHAIN, "chain: [sat, tap-i]"))
    assert make_plan(network, experiment).flows == make_plan(bare, load(lab, (CHAIN, "chain: [sat, tap-i]"))[1]).flows
    assert [(point.name, point.interface) for point in capture_points(network, experiment)][-1] == (
        "world",
        "cap-w-tap-w",
    )
    for chain in ("[sat, tap-w, tap-i]", "[tap-w, pep-w, sat]"):
        with pytest.raises(
            DescriptionError,
            match=r"physical tap 'tap-w' is in the cable of 'sat' at sw-c/15; put it next to 'sat', on that side",
        ):
            load(lab, (CHAIN, f"chain: {chain}"))
    with pytest.raises(
        LabError, match=r"tap 'tap-w' is a splitter in a cable, and an emulated lab has no cables to split"
    ):
        LabTopo(network)
