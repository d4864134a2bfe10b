# SPDX-License-Identifier: Apache-2.0
"""The configuration test's judgement of a path: what is off, in a line that says how to find out more."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from atoll.experiment.checks import judge_paths
from atoll.model.network import Network
from atoll.model.plan import PathCheck, Plan
from tests.unit.synthetic_run import RTTS_MS, experiment, network, plan


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
    return judge_paths(asked, measured, lab)


def test_a_path_without_an_answer_names_the_command_that_shows_where_packets_end() -> None:
    (line,) = judged({"w1": []})
    assert line == (
        "w1 -> is (10.20.1.1): no answer; expected an RTT of 505 ms; `atoll up EXPERIMENT`, `atoll trace EXPERIMENT w1 "
        "is --live` show how far packets come"
    )


def test_a_latency_is_held_against_what_an_undelayed_host_shows_of_the_lab() -> None:
    """The lab's own 2 ms cancel; 3 ms too much for w3 do not."""
    wrong = judged({f"w{n}": [500 + rtt + 2 + (3 if n == 3 else 0)] for n, rtt in enumerate(RTTS_MS, 1)}, undelayed=[2])
    assert wrong == [
        "w3: terrestrial RTT 53.00 ms, configured 50 ms; allowed is a difference of 1.50 ms",
    ]


def test_where_every_host_is_delayed_the_least_rest_is_the_labs() -> None:
    off = {f"w{n}": [500 + rtt + 2 + (3 if n == 3 else 0)] for n, rtt in enumerate(RTTS_MS, 1)}
    assert [line.partition(":")[0] for line in judged(off)] == ["w3"]


def test_every_path_that_is_off_has_a_line() -> None:
    wrong = judged({"w1": [], "w3": [900.0, 905.0]})
    assert len(wrong) == 2
    assert wrong[1] == "w3 -> is (10.20.1.1): RTT 900.00 ms, expected 550 ms (allowed 549.90 to 567.00)"
