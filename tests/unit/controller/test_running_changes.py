# SPDX-License-Identifier: Apache-2.0
"""Settings that programs of boxes take while they run, and those for which they begin again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll_controller.planner.job_plan import jobs
from atoll_controller.planner.running_changes import running_changes
from atoll_core.description.loader import load_experiment
from atoll_core.errors import PlanError
from atoll_core.plan.plan import Backend, JobSpec


@pytest.fixture
def jobs_of(project: Path):
    """The jobs of an example with other settings, by their names."""

    def make(*settings: str, backend: Backend = Backend.ENGINE) -> dict[str, JobSpec]:
        described = load_experiment(project / "examples/pep-both.yaml", settings=settings)
        return {job.name: job for job in jobs(*described, backend)}

    return make


def requests(was: JobSpec, now: JobSpec, **state: bool) -> list[dict[str, Any]]:
    return running_changes(was, now, **state)


def test_a_link_takes_all_settings_of_the_directions_that_change(jobs_of) -> None:
    way = "links.sat.to_island"
    settings = ["rate=8 Mbit/s", "delay=100 ms", "queue=50 kB", "loss=1 %", "jitter=2 ms", "reorder=true"]
    now = jobs_of(*(f"{way}.{each}" for each in settings), "links.sat.counts=ethernet", "limits.stall=9 ms", "seed=2")
    was = jobs_of()
    config = now["link-sat"].config or {}
    assert requests(was["link-sat"], now["link-sat"]) == [
        {"op": "set", "counts": "ethernet", "to_island": config["to_island"], "stall_from_ns": 9_000_000}
    ]
    back = requests(now["link-sat"], was["link-sat"])[0]
    assert "loss" not in back["to_island"]
    assert (back["counts"], back["stall_from_ns"]) == ("ip", 5_000_000)
    assert requests(was["delay-delay"], now["delay-delay"]) == [{"op": "set", "stall_from_ns": 9_000_000}]


def test_a_link_takes_a_queue_for_which_it_needs_more_memory(jobs_of) -> None:
    was, now = jobs_of()["link-sat"], jobs_of("links.sat.to_island.queue=100 MB")["link-sat"]
    assert (now.limits.data_bytes or 0) - (was.limits.data_bytes or 0) > 500_000_000
    (request,) = requests(was, now)
    assert request["to_island"]["queue_bytes"] == 100_000_000


def test_a_link_that_was_changed_since_gets_all_its_settings(jobs_of) -> None:
    was, now = jobs_of()["link-sat"], jobs_of("links.sat.to_world.rate=1 Mbit/s")["link-sat"]
    config = now.config or {}
    assert requests(was, now, drifted=True) == [
        {"op": "set", "to_island": config["to_island"], "to_world": config["to_world"]}
    ]


def test_another_seed_is_for_the_next_run(jobs_of) -> None:
    was, now = jobs_of(), jobs_of("seed=2")
    for name in ("link-sat", "delay-delay"):
        assert was[name] != now[name]
        assert requests(was[name], now[name]) == []


def test_a_link_on_tc_keeps_room_for_the_packets_that_came_before(jobs_of) -> None:
    """netem refuses packets while it holds more than its limit."""
    slow = "links.sat.to_island.rate=1 Mbit/s"
    was, now = (jobs_of(*each, backend=Backend.TC)["link-sat"] for each in ([], [slow]))
    (request,) = requests(was, now)
    kept = (was.config or {})["link"]["to_island"]["delay"]["limit_packets"]
    assert (now.config or {})["link"]["to_island"]["delay"]["limit_packets"] < kept
    assert request["link"]["to_island"]["delay"]["limit_packets"] == kept
    tbf, netem = request["tc"]
    assert tbf.startswith("qdisc change dev ifb-to-island root handle 1: stab linklayer ethernet overhead -14 tbf rate")
    assert netem.startswith("qdisc change dev sat-i root handle 1: stab linklayer ethernet overhead -14 netem limit")
    assert f" limit {kept} " in netem
    assert [each["options"]["limit"] for each in request["expect"]] == [100_000, kept]
    whole = requests(was, now, drifted=True)[0]
    assert [line.split()[3] for line in whole["tc"]] == ["ifb-to-island", "sat-i", "ifb-to-world", "sat-w"]


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("to_island.loss={probability: 1 %, where: before}", "loss before the queue to the island"),
        ("to_world.low_priority={queue: 10 kB}", "low_priority to the world"),
        ("counts=ethernet", "counts"),
    ],
)
def test_a_link_on_tc_does_not_take_settings_that_need_other_disciplines(jobs_of, setting: str, named: str) -> None:
    was, now = (jobs_of(*each, backend=Backend.TC)["link-sat"] for each in ([], [f"links.sat.{setting}"]))
    for one, other in ((was, now), (now, was)):
        with pytest.raises(PlanError, match=f"^{named}$"):
            requests(one, other)


def test_a_pep_takes_its_limits_and_begins_again_for_settings_of_sockets(jobs_of) -> None:
    was, now = jobs_of()["pep-pep-w"], jobs_of("boxes.pep-w.silence=60 s", "boxes.pep-w.accept=early")["pep-pep-w"]
    assert requests(was, now) == [{"op": "set", "mode": "early", "silence_ns": 60_000_000_000}]
    with pytest.raises(PlanError, match=r"^legs$"):
        requests(was, jobs_of("boxes.pep-w.island_window=1 MB")["pep-pep-w"])


def test_another_backend_is_no_change_of_settings(jobs_of) -> None:
    was = jobs_of()["link-sat"]
    with pytest.raises(PlanError, match="another backend"):
        requests(was, replace(was, argv=("atoll-host", "tc")))
