# SPDX-License-Identifier: Apache-2.0
"""Scheduled changes: what each version of an experiment is, what is told of mistakes, and swaps planned ahead."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_controller.planner.change_schedule import plan_schedule
from atoll_controller.planner.job_plan import capture_points, jobs
from atoll_controller.planner.plan_text import schedule_text
from atoll_controller.planner.planner import make_plan
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import DescriptionError
from atoll_core.experiment.experiment import Experiment
from atoll_core.plan.plan import Phase
from atoll_core.units import Duration

HEAD = """name: changing
lab: island.yaml
duration: 60 s
chain: [tap-w, sat, tap-i]
branches:
  half: {carries: {island: 10.20.0.0/30}, chain: [sat]}
links:
  sat: {to_island: &d {rate: 16 Mbit/s, delay: 250 ms, queue: 100 kB}, to_world: *d}
latency: {w1: rtt-5, w2: rtt-20}
traffic: {channels: 20}
"""


@pytest.fixture
def written(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes an experiment with these changes beside the demo's lab; its path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "island.yaml").write_text((project / "emulation/labs/island.yaml").read_text())

    def write(*changes: str) -> Path:
        path = Path("e.yaml")
        path.write_text(HEAD + "changes:\n" + "".join(f"  - {each}\n" for each in changes))
        return path

    return write


def planned(path: Path) -> None:
    described = load_experiment(path)
    plan_schedule(*described, make_plan(*described))


def mistakes(path: Path) -> list[str]:
    """What is wrong, from line 12 of the file on, where the changes are."""
    with pytest.raises(DescriptionError) as answer:
        planned(path)
    return [str(each).removeprefix("e.yaml:") for each in answer.value.mistakes]


def test_a_change_says_what_differs_and_all_else_stays(written) -> None:
    """Chain, branches and latencies that a change leaves out are those of the version before; null takes away."""
    _, experiment = load_experiment(
        written(
            "{at: 10 s, chain: [coder-w, sat, coder-i]}",
            "{at: 20 s, latency: {w1: rtt-90, w2: null}}",
            "{at: 30 s, branches: {half: null, other: {carries: {protocol: udp}, chain: [sat]}}}",
        )
    )
    first, second, third, last = experiment.versions
    assert (first.chain, first.latency) == (experiment.chain, experiment.latency)
    assert (second.at, second.chain.hops) == (Duration.parse("10 s"), ("coder-w", "sat", "coder-i"))
    assert (second.branches, second.latency) == (first.branches, first.latency)
    assert third.latency == (("w1", "rtt-90"),)
    assert third.chain == second.chain
    assert [branch.name for branch in last.branches] == ["other"]
    assert experiment.at(last.at).chain == second.chain
    assert from_json(Experiment, to_json(experiment)) == experiment


def test_an_experiment_without_changes_is_its_only_version(project: Path) -> None:
    """Nothing is scheduled, and it is equal to what it was before there were changes."""
    _, experiment = load_experiment(project / "examples/geo.yaml")
    assert experiment.schedule == ()
    assert len(experiment.versions) == 1
    assert experiment.states == (experiment,)


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        (["{at: 60 s, chain: [sat]}"], ["12: change 1: at: 60 s is not before the end at 60 s; make it earlier"]),
        (
            ["{at: 10 s}"],
            ["12: change 1: this change is empty; name a chain, branches, latency, traffic, udp or links"],
        ),
        (
            ["{at: 10 s, latency: {w1: rtt-5}}"],
            ["12: change 1: this change has no effect, because all of it is already in effect; remove it"],
        ),
        (
            ["{at: 10 s, chain: [sat]}", "{at: 10 s, chain: [tap-w, sat]}"],
            [
                "13: change 2: at: 10 s is not after change 1 at 10 s (line 12); list changes in order of time",
            ],
        ),
        (
            ["{at: 10 s, branches: {hafl: null}}"],
            [
                "12: change 1: branch 'hafl': no branch 'hafl' exists then; did you mean 'half'? known branches: half",
                "12: change 1: this change has no effect, because all of it is already in effect; remove it",
            ],
        ),
        (
            ["{at: 10 s, chain: [tap-w, sta]}"],
            ["12: change 1: chain hop 2: unknown box or tap 'sta'; did you mean 'sat'?"],
        ),
        (
            ["{at: 10 s, latency: {w1: rtt-7}}"],
            ["12: change 1: latency of 'w1': no delay box carries the latency class 'rtt-7'; known classes: rtt-5"],
        ),
        (
            ["{at: 10 s, latency: {is: rtt-5}}"],
            ["12: change 1: latency of 'is': an island-special has no terrestrial latency; give it to world hosts"],
        ),
        (["{at: soon, chain: [sat]}"], ["12: change 1: at: 'soon' is not a duration"]),
        (["{chain: [sat]}"], ["12: change 1: at is missing; add 'at: 20 s'"]),
        (
            [
                "{at: 10 s, branches: {quarter: {carries: {island: 10.20.0.0/31}, chain: []}}}",
                "{at: 20 s, branches: {rest: {carries: {island: 10.20.0.2/31}, chain: []}}}",
            ],
            [
                (
                    "6: branch 'half': carries: it carries no traffic: 'quarter', 'rest' carry all of it; remove one "
                    "of these branches"
                )
            ],
        ),
    ],
    ids=lambda given: given[0][:40],
)
def test_a_mistake_is_told_once_with_its_change_and_its_remedy(written, changes: list[str], answer: list[str]) -> None:
    """A change is held to the rules of what it changes."""
    found = mistakes(written(*changes))
    assert len(found) == len(answer)
    for message, wanted in zip(found, answer, strict=True):
        assert message.startswith(wanted)


def test_a_branch_that_an_earlier_change_added_counts(written) -> None:
    """Each version is held to the rules of branches; the message names the line of the one that stands already."""
    again = "{carries: {island: 10.20.0.4/30}, chain: [sat]}"
    (answer,) = mistakes(
        written(f"{{at: 10 s, branches: {{more: {again}}}}}", f"{{at: 20 s, branches: {{again: {again}}}}}")
    )
    assert answer.startswith(
        "13: change 2: branch 'again': carries: branch 'more' (line 12) carries the same traffic; merge"
    )


def test_a_change_that_cannot_be_told_apart_passes_versions_in_between(written) -> None:
    """Boxes before and behind a routed box that stays cannot both change at once; the plan says what happens."""
    path = written(
        "{at: 10 s, chain: [coder-w, sat, coder-i]}",
        "{at: 20 s, chain: [sat, coder-w, coder-i]}",
    )
    network, experiment = load_experiment(path)
    schedule = plan_schedule(network, experiment, make_plan(network, experiment))
    assert [len(each.swap.parts) for each in schedule] == [1, 2]
    text = schedule_text(experiment, schedule)
    assert "    the swap has 2 parts, one after the other:" in text
    assert "no packet passes coder-" in text


def test_changes_too_close_to_drain_are_refused(written) -> None:
    """A GEO link's old version takes 0.4 s to drain; the next change and the end must wait for that."""
    first, third = mistakes(
        written(
            "{at: 10 s, chain: [coder-w, sat, coder-i]}",
            "{at: 10400 ms, chain: [sat]}",
            "{at: 59800 ms, chain: [tap-w, sat]}",
        )
    )
    slow = "the previous version needs 400 ms to drain, so"
    assert first == f"12: change 1 (at 10 s): {slow} 10400 ms is too early for the next change"
    assert third == f"14: change 3 (at 59800 ms): {slow} 60 s is too early for the end"


def test_every_box_and_every_tap_of_any_version_is_there_from_the_beginning(written) -> None:
    """So that a change starts no program, and no packet passes a tap that nobody listens at."""
    network, experiment = load_experiment(
        written("{at: 10 s, chain: [coder-w, sat, coder-i]}", "{at: 20 s, latency: {w1: null, w2: null}}")
    )
    first = make_plan(network, experiment)
    plans = [first, *(make_plan(network, each.experiment) for each in plan_schedule(network, experiment, first))]
    assert len({plan.jobs for plan in plans}) == 1
    assert {point.name for point in capture_points(network, experiment)} == {"world", "island", "link-sat"}
    started = {job.name for job in jobs(network, experiment) if job.phase is Phase.SERVICE}
    assert started == {"link-sat", "delay-delay"}
    late = replace(experiment, schedule=(replace(experiment.versions[0], latency=()), experiment.versions[0]))
    assert {job.name for job in jobs(network, late) if job.phase is Phase.SERVICE} == started


def test_the_shipped_example_swaps_forth_and_back(project: Path) -> None:
    """Four changes, every one with its stages; the last one leads back to what stood at first."""
    network, experiment = load_experiment(project / "examples/switching.yaml")
    schedule = plan_schedule(network, experiment, make_plan(network, experiment))
    assert len(schedule) == 4
    assert all(each.swap.stages for each in schedule)
    first, last = experiment.versions[0], experiment.versions[-1]
    assert (first.chain, first.branches, set(first.latency)) == (last.chain, last.branches, set(last.latency))
    text = schedule_text(experiment, schedule)
    assert "  at 24 s: latency.w1 rtt-200 instead of rtt-5; no latency.w6\n" in text
    assert re.search(r"^    chains  drain    .*\b550 ms$", text, re.MULTILINE)
