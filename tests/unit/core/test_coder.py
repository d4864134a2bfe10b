# SPDX-License-Identifier: Apache-2.0
"""The coder in a plan: its tunnels, its machine, the MTU of hosts, and the experiments that are refused."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_core.plan.plan import Plan
from atoll_testbed.calibration.link_calibration import links_under_test

CODED = "chain: [tap-w, coder-w, sat, coder-i, tap-i]"
BARE = "chain: [tap-w, sat, tap-i]"
Load = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path, project: Path) -> Load:
    """The example with coders, with other settings of the boxes, another chain, or another lab."""

    def loaded(boxes: str = "{}", chain: str = CODED, lab: Callable[[str], str] = str) -> Any:
        text = (project / "emulation/labs/island-coder.yaml").read_text(encoding="utf-8")
        (tmp_path / "lab.yaml").write_text(lab(text), encoding="utf-8")
        example = (project / "examples/coder-geo.yaml").read_text(encoding="utf-8")
        example = example.replace("../emulation/labs/island-coder.yaml", "lab.yaml").replace(CODED, chain)
        example = re.sub(r"boxes:\n(  .*\n)+", f"boxes: {boxes}\n", example)
        example = re.sub(r"links:\n(  .*\n)+", "", example) if "\nlinks:" in chain else example
        (tmp_path / "e.yaml").write_text(example, encoding="utf-8")
        return load_experiment(tmp_path / "e.yaml")

    return loaded


def mtus(plan: Plan) -> set[int | None]:
    """Those of the routes of end hosts; None: that of the cable, 1500."""
    routes = (route for host in plan.hosts if not host.legs for each in host.interfaces for route in each.routes)
    return {route.mtu for route in routes}


def test_the_kernel_of_its_machine_forwards_nothing_while_it_runs(load: Load) -> None:
    machine = next(each for each in make_plan(*load()).hosts if each.host == "coder-w")
    assert (machine.forwarding, machine.legs, machine.packet_rules) == (False, (), ())
    off = make_plan(*load("{coder-w: {mode: off}, coder-i: {mode: off}}"))
    router = next(each for each in off.hosts if each.host == "coder-w")
    assert router.forwarding
    assert not [job.name for job in off.jobs if job.name.startswith("coder")]


def test_raised_cables_between_coders_keep_the_packets_of_hosts(load: Load) -> None:
    assert mtus(make_plan(*load())) == {None}
    plain = make_plan(*load(lab=lambda text: text.replace(", mtu: 1544", "")))
    assert 1456 in mtus(plain)


def test_calibrations_pass_without_the_bytes_of_the_tunnel(load: Load) -> None:
    link = links_under_test(*load())[0]
    assert (link.mtu, link.counted_bytes(link.mtu)) == (1500, 1500)


def test_each_chain_has_a_tunnel_between_addresses_of_its_own(load: Load) -> None:
    branches = "branches: {half: {carries: {island: 10.20.0.4/30}, chain: [tap-w, coder-w, sat, coder-i]}}"
    plan = make_plan(*load(chain=f"{CODED}\n{branches}"))
    config = next(job.config for job in plan.jobs if job.name == "coder-coder-w") or {}
    ends = [(each["carries"]["island"], each["peer_address"]) for each in config["tunnels"]]
    assert ends == [("10.20.0.4/30", "10.20.0.7"), ("10.20.0.0/16", "10.20.255.254")]


@pytest.mark.parametrize(
    ("half", "changes", "ways"),
    [
        ("sat", "", [0, 0]),
        ("sat-2", "", [0, 1]),
        ("sat", "changes: [{at: 9 s, chain: [tap-w, coder-w, sat-2, coder-i, tap-i]}]", [0, 1]),
        ("sat", "changes: [{at: 9 s, chain: [tap-w, sat-2, tap-i]}]", [0, 0]),
    ],
)
def test_titrated_tunnels_over_the_same_links_in_all_versions_have_one_way(
    load: Load, half: str, changes: str, ways: list[int]
) -> None:
    plan = _two_satellites(load, half, changes)
    (config,) = (job.config or {} for job in plan.jobs if job.name == "coder-coder-w")
    assert [each["way"] for each in config["tunnels"]] == ways


def test_another_link_between_coders_changes_nothing_of_their_programs(load: Load) -> None:
    """A swap that leads a chain over another satellite restarts none."""
    titrated = "scheduler: titrated, link_rate: 16 Mbit/s, link_queue: 120 kB"
    for boxes in ("{}", f"{{coder-w: {{{titrated}}}}}"):
        one, other = (
            [job for job in plan.jobs if job.name.startswith("coder-")]
            for half in ("sat", "sat-2")
            for plan in [_two_satellites(load, half, "", boxes, CODED.replace(" sat,", f" {half},"))]
        )
        assert len(one) == 2
        assert one == other


def _two_satellites(load: Load, half: str, changes: str, boxes: str | None = None, chain: str = CODED) -> Plan:
    """A chain over ``sat`` and a branch over ``half``, with a second satellite link in the lab."""
    second = "sat-2: {kind: link, world: sw-c/27, island: sw-c/28, mtu: 1544}"
    way = "{rate: 16 Mbit/s, delay: 250 ms, queue: 120 kB}"
    link = f"{{to_island: {way}, to_world: {way}}}"
    branches = f"{{half: {{carries: {{island: 10.20.0.4/30}}, chain: [tap-w, coder-w, {half}, coder-i]}}}}"
    links = ", ".join(f"{name}: {link}" for name in ("sat", "sat-2") if f" {name}," in chain + branches + changes)
    text = f"{chain}\nbranches: {branches}\n{changes}\nlinks: {{{links}}}"
    titrated = "{coder-w: {scheduler: titrated, link_rate: 16 Mbit/s, link_queue: 120 kB}}"
    return make_plan(
        *load(boxes or titrated, text, lab=lambda text: text.replace("\nboxes:\n", f"\nboxes:\n  {second}\n"))
    )


def test_half_of_the_island_can_be_coded(load: Load) -> None:
    branches = "branches: {half: {carries: {island: 10.20.0.4/30}, chain: [tap-w, coder-w, sat, coder-i]}}"
    plan = make_plan(*load(chain=f"{BARE}\n{branches}"))
    config = next(job.config for job in plan.jobs if job.name == "coder-coder-w") or {}
    assert [each["carries"]["island"] for each in config["tunnels"]] == ["10.20.0.4/30"]


@pytest.mark.parametrize(
    ("boxes", "chain", "message"),
    [
        ("{coder-w: {generation: 20}}", CODED, "generation is not the same for 'coder-w' and 'coder-i'"),
        ("{coder-w: {mode: off}}", CODED, "carries packets to it in udp, is on; write the same mode for both"),
        ("{coder-w: {scheduler: titrated}}", CODED, "titrated needs the rate and the queue of the link; add link_rate"),
        (
            "{coder-w: {scheduler: interspersed, scheme: reed-solomon}}",
            CODED,
            "reed-solomon makes repair packets at the end of a generation; write scheme: rlnc, or tail",
        ),
        (
            "{coder-w: {scheme: sliding-window, scheduler: tail}}",
            CODED,
            "so none are at the end of a generation; write scheduler: interspersed, deferred or titrated",
        ),
        ("{coder-w: {scheme: sliding-window, interleave: 2}}", CODED, "does not join generations in turn"),
        ("{coder-w: {scheme: sliding-window, defer_generations: 1}}", CODED, "no generations to wait for; write defer"),
        ("{coder-w: {scheme: sliding-window, generation: 513}}", CODED, "513 packets are more than the 512"),
        (
            "{coder-w: {scheme: sliding-window, redundancy: adaptive}}",
            CODED,
            "repair packets of sliding-window cannot be adapted; write scheme: rlnc or reed-solomon, or a number",
        ),
        ("{coder-w: {memory: 10}}", CODED, "rlnc has no memory; write scheme: partial-unit-memory, or remove memory"),
        (
            "{coder-w: {scheme: partial-unit-memory, memory: 31}}",
            CODED,
            "31 packets are more than the 30 that fit generation: 30; write fewer",
        ),
        (
            "{coder-w: {scheme: partial-unit-memory, generation: 500, memory: 13}}",
            CODED,
            "13 packets are more than the 12 that fit generation: 500; write fewer",
        ),
        ("{coder-w: {scheme: partial-unit-memory, generation: 512}}", CODED, "512 packets are more than the 511"),
        ("{coder-w: {scheme: partial-unit-memory, interleave: 2}}", CODED, "does not join generations in turn"),
        (
            "{coder-w: {scheme: partial-unit-memory, scheduler: interspersed}}",
            CODED,
            "makes repair packets at the end of a generation; write scheme: rlnc, or tail",
        ),
        ("{coder-w: {generation: 1}}", CODED, "1 is not a whole number"),
        ("{coder-w: {redundancy: adaptive}}", CODED, "redundancy is not the same for 'coder-w' and 'coder-i'"),
        ("{coder-w: {feedback: 50 ms}}", CODED, "feedback is not the same for 'coder-w' and 'coder-i'"),
        ("{coder-w: {in_order_hold: 5 ms}}", CODED, "in_order_hold is not the same for 'coder-w' and 'coder-i'"),
        (
            "{coder-w: {in_order_hold: 5 ms, interleave: 2}}",
            CODED,
            "interleaved generations cannot be held in order; write interleave: 1, or in_order_hold: 0 ms",
        ),
        (
            "{coder-w: {redundancy: often}}",
            CODED,
            "'often' is neither a number of repair packets from 0 to 1024 nor 'adaptive'",
        ),
        (
            "{coder-w: {redundancy: adaptive, scheme: repetition}}",
            CODED,
            "repair packets of repetition cannot be adapted; write scheme: rlnc or reed-solomon, or a number",
        ),
        (
            "{coder-w: {redundancy: adaptive, redundancy_max: 2}}",
            CODED,
            "redundancy_fallback is more than the 2 repair packets of redundancy_max; write no more",
        ),
        ("{coder-w: {residual_loss: 0 %}}", CODED, "'0 %' is too small; it must be at least 0.0001 %"),
        ("{coder-w: {poll: 5 ms}}", CODED, "'5 ms' is too large; it must be at most 4 ms"),
        ("{}", "chain: [tap-w, coder-w, sat, tap-i]", "'coder-w' is a coder, which needs a coder at its other end"),
        (
            "{}",
            f"{BARE}\nbranches: {{web: {{carries: {{protocol: tcp}}, chain: [tap-w, coder-w, sat, coder-i]}}}}",
            "it carries TCP only, but 'coder-w' and 'coder-i' encapsulate its packets in UDP; select its traffic by",
        ),
    ],
)
def test_a_mistake_has_one_line_with_its_place_and_remedy(load: Load, boxes: str, chain: str, message: str) -> None:
    with pytest.raises(DescriptionError) as refused:
        load(boxes, chain)
    (line,) = str(refused.value).splitlines()
    assert message in line
    assert re.match(r".*e\.yaml:\d+: ", line)


def test_the_memory_by_default_is_the_same_as_if_it_were_written(load: Load) -> None:
    scheme = "scheme: partial-unit-memory, generation: 400"
    plan = make_plan(*load(f"{{coder-w: {{{scheme}, memory: 112}}, coder-i: {{{scheme}}}}}"))
    configs = [job.config or {} for job in plan.jobs if job.argv[-1] == "coder"]
    assert [config["memory"] for config in configs] == [112, 112]


@pytest.mark.parametrize(
    ("scheme", "kind"), [("rlnc", "tail"), ("sliding-window", "interspersed"), ("partial-unit-memory", "tail")]
)
def test_the_scheduler_by_default_is_one_that_the_scheme_has(load: Load, scheme: str, kind: str) -> None:
    plan = make_plan(*load(f"{{coder-w: {{scheme: {scheme}}}, coder-i: {{scheme: {scheme}}}}}"))
    config = next(job.config for job in plan.jobs if job.name == "coder-coder-w") or {}
    assert (config["scheme"], config["scheduler"]) == (scheme, {"kind": kind})


def test_a_contradiction_between_lab_and_experiment_is_the_experiments(load: Load) -> None:
    """The scheduler is the lab's; the scheme that it cannot have is the experiment's."""

    def interspersed(text: str) -> str:
        return text.replace("kind: coder\n", "kind: coder\n    settings: {scheduler: interspersed}\n")

    load(lab=interspersed)
    with pytest.raises(DescriptionError, match=r"e\.yaml:\d+: .*write scheme: rlnc"):
        load("{coder-w: {scheme: repetition}, coder-i: {scheme: repetition}}", lab=interspersed)
