# SPDX-License-Identifier: Apache-2.0
"""The configuration test's judgement of a path: what is off, in a line that says how to find out more."""

from atoll.experiment.checks import judge_paths
from atoll.model.network import Network
from atoll.model.plan import Plan
from tests.unit.synthetic_run import experiment, network, plan


def judged(rtts_ms: dict[str, list[float]]) -> list[str]:
    """What is said of the paths of the servers; those that are not named answer as configured."""
    lab: Network = network()
    asked: Plan = plan(experiment(), lab, ())
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


def test_every_path_that_is_off_has_a_line() -> None:
    wrong = judged({"w1": [], "w3": [900.0, 905.0]})
    assert len(wrong) == 2
    assert wrong[1] == "w3 -> is (10.20.1.1): RTT 900.00 ms, expected 550 ms (allowed 549.90 to 567.00)"
