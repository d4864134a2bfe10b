# SPDX-License-Identifier: Apache-2.0
"""The configuration test's judgement of a path: what is off, in a line that says how to find out more."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_controller.planner.planner import make_plan
from atoll_core.description.loader import load_experiment
from atoll_core.lab.network import Network
from atoll_core.plan.plan import PathCheck, Plan
from atoll_testbed.preflight.preflight import judge_paths
from tests.support.synthetic_run import RTTS_MS, experiment, network, plan


def judged(rtts_ms: Mapping[str, Sequence[float]], undelayed: Sequence[float] = ()) -> list[str]:
    """What is said of the paths of the servers; those that are not named answer as configured.

    ``undelayed``: how much longer than the link's the RTTs of an undelayed special server are.
    """
    lab: Network = network()
    asked: Plan = plan(experiment(), lab, ())
    if undelayed:
        asked = replace(asked, checks=(*asked.checks, PathCheck("ws", "is", "10.20.1.1", 500 * 10**6, 0, 0)))
        rtts_ms = {**rtts_ms, "ws": [500 + each for each in undelayed]}
    measured = {
        (check.src, check.dst): [round(ms * 1e6) for ms in rtts_ms.get(check.src, [check.rtt_ns / 1e6])]
        for check in asked.checks
    }
    return [off.message for off in judge_paths(asked, measured, lab)]


def test_a_path_without_an_answer_names_the_command_that_shows_where_packets_end() -> None:
    (line,) = judged({"w1": []})
    assert line == (
        "w1 -> is (10.20.1.1): no answer; expected an RTT of 505 ms; `atoll up EXPERIMENT` and `atoll trace EXPERIMENT "
        "w1 is --live` show where packets are lost"
    )


def test_a_latency_is_held_against_what_an_undelayed_host_shows_of_the_lab() -> None:
    """The lab's own 2 ms cancel; 3 ms too much for w3 do not."""
    wrong = judged({f"w{n}": [500 + rtt + 2 + (3 if n == 3 else 0)] for n, rtt in enumerate(RTTS_MS, 1)}, undelayed=[2])
    assert wrong == [
        "w3: terrestrial RTT 53.00 ms, configured 50 ms; the difference may be at most 1.50 ms",
    ]


def test_one_lucky_ping_of_an_undelayed_host_does_not_make_a_latency_wrong() -> None:
    """As measured on a busy machine: 200 pings of the undelayed host, one of them much quicker than usual."""
    lucky = [0.609, *([0.9, 1.05, 1.2] * 66)]
    servers = {f"w{n}": [500 + rtt + 1.22] for n, rtt in enumerate(RTTS_MS, 1)}
    assert judged(servers, undelayed=lucky) == []
    (wrong,) = judged({**servers, "w1": [500 + RTTS_MS[0] + 1.22 + 1]}, undelayed=lucky)
    assert wrong.startswith("w1: terrestrial RTT 6.61 ms, configured 5 ms; the difference may be at most 1.04 ms")


def test_where_every_host_is_delayed_the_least_rest_is_the_labs() -> None:
    off = {f"w{n}": [500 + rtt + 2 + (3 if n == 3 else 0)] for n, rtt in enumerate(RTTS_MS, 1)}
    assert [line.partition(":")[0] for line in judged(off)] == ["w3"]


def test_every_path_that_is_off_has_a_line() -> None:
    wrong = judged({"w1": [], "w3": [900.0, 905.0]})
    assert len(wrong) == 2
    assert wrong[1] == "w3 -> is (10.20.1.1): RTT 900.00 ms, expected 550 ms (allowed 549.90 to 567.00)"


@pytest.mark.parametrize(("counts", "packet_bytes"), [("ip", 84), ("ethernet", 98)])
def test_a_ping_may_take_as_long_as_its_bytes_take_on_the_link(project: Path, counts: str, packet_bytes: int) -> None:
    """At 64 kbit/s an 84-byte ping takes 10.5 ms; a token bucket lets it pass at once."""
    settings = [
        "links.sat.to_island.rate=256 kbit/s",
        "links.sat.to_world.rate=64 kbit/s",
        f"links.sat.counts={counts}",
    ]
    described, asked = load_experiment(project / "examples/geo.yaml", settings)
    planned = make_plan(described, asked)
    serialised_ns = 8 * packet_bytes * 10**9 // 64_000 + 8 * packet_bytes * 10**9 // 256_000
    assert {check.serialisation_ns for check in planned.checks} == {serialised_ns}

    def off(beyond_ns: int) -> int:
        rtts = {(check.src, check.dst): [check.rtt_ns + beyond_ns] for check in planned.checks}
        return len(judge_paths(planned, rtts, described))

    assert off(0) == 0
    assert off(serialised_ns + 15_900_000) == 0, "6 ms and 2 % of 500 ms more"
    assert off(serialised_ns + 21_000_000) == len(planned.checks)


def test_a_server_that_is_off_is_tested_again_with_the_hosts_that_it_is_held_against() -> None:
    lab: Network = network()
    asked: Plan = plan(experiment(), lab, ())
    asked = replace(asked, checks=(*asked.checks, PathCheck("ws", "is", "10.20.1.1", 500 * 10**6, 0, 0)))
    measured = {(c.src, c.dst): [c.rtt_ns + (3_000_000 if c.src == "w3" else 0)] for c in asked.checks}
    (off,) = judge_paths(asked, measured, lab)
    assert {src for src, _ in off.paths} == {"w3", "ws"}
