# SPDX-License-Identifier: Apache-2.0
"""Shares of flows by server and client: chance and giant flows are no finding; a slow client and a rare server are."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_analysis.verdict.findings import Finding, FindingCode
from atoll_analysis.verdict.flow_shares import LEVEL, flow_shares, judge_shares
from atoll_analysis.verdict.verdict import judge
from atoll_core.holm import holm
from tests.unit.analysis.test_verdict import VALID

SERVERS = [f"w{number}" for number in range(1, 7)]
CLIENTS, CHANNELS, DURATION_S = 6, 10, 300.0


def loops(seed: int, *, slower: float = 1.0, rare: float = 1.0, giants: int = 0, chains: bool = False) -> pl.LazyFrame:
    """Flows of channels in loops, each of 1 s on average.

    ``slower``: factor of the durations of client i1; ``rare``: of the probability of server w1; ``giants``: channels
    of client i1 that a flow of 1 GB holds; ``chains``: client i1 has a chain of its own.
    """
    random, shape = np.random.default_rng(seed), (CLIENTS * CHANNELS, 2 * round(DURATION_S))
    weights = np.array([rare, *[1.0] * (len(SERVERS) - 1)])
    servers = random.choice(SERVERS, shape, p=weights / weights.sum())
    size_bytes, duration_s = np.full(shape, 500), random.exponential(0.5, shape) + 0.5
    size_bytes[:giants, 2], duration_s[:giants, 2] = 10**9, 250.0
    duration_s[:CHANNELS] *= slower
    start_s = np.cumsum(duration_s, axis=1) - duration_s
    begun = channel, flow = np.nonzero(start_s < DURATION_S)
    return pl.LazyFrame({
        "client": [f"i{number // CHANNELS + 1}" for number in channel],
        "channel": channel,
        "flow": flow,
        "server": servers[begun],
        "size_bytes": size_bytes[begun],
        "start_ns": (start_s[begun] * 1e9).astype(np.int64),
        "chain": ["own" if chains and number < CHANNELS else "main" for number in channel],
    })  # fmt: skip


def findings(flows: pl.LazyFrame) -> list[Finding]:
    return list(judge_shares(flow_shares(flows, SERVERS)))


def test_equal_runs_have_no_caveat_also_if_giant_flows_hold_the_channels_of_a_client() -> None:
    assert [finding for seed in range(5) for finding in findings(loops(seed))] == []
    assert [finding for seed in range(5) for finding in findings(loops(seed, giants=8))] == []


def test_a_client_that_begins_a_fifth_fewer_flows_is_named_with_p_value_and_power() -> None:
    flows = loops(1, slower=1.25)
    (found,) = findings(flows)
    assert (found.code, found.is_reason) == (FindingCode.SHARES_UNEQUAL, False)
    assert found.text.startswith("flows are not shared equally among clients: i1 has 1")
    assert "% fewer than its share" in found.text
    assert "p = 0.002, bound 0.01 (Holm-corrected)" in found.text
    test = flow_shares(flows, SERVERS)["clients"]
    assert min(test["deviations"], key=lambda host: test["deviations"][host]) == "i1"
    assert 0.01 < test["least_found"] < 0.1


def test_a_server_that_is_drawn_less_often_is_named() -> None:
    (found,) = findings(loops(1, rare=0.8))
    assert found.text.startswith("flows are not shared equally among servers: w1 has 1")


def test_clients_of_different_chains_are_not_compared() -> None:
    flows = loops(1, slower=1.25, chains=True)
    assert findings(flows) == []
    assert [*flow_shares(flows, SERVERS)["clients"]["deviations"]] == ["i2", "i3", "i4", "i5", "i6"]


def test_clients_of_different_groups_are_not_compared() -> None:
    groups = {"i1": "slow", **dict.fromkeys(("i2", "i3", "i4", "i5", "i6"), "rest")}
    shares = flow_shares(loops(1, slower=1.25), SERVERS, groups=groups)
    assert list(judge_shares(shares)) == []
    assert [*shares["clients"]["deviations"]] == ["i2", "i3", "i4", "i5", "i6"]


def test_loads_before_and_after_a_change_are_not_compared() -> None:
    """Two clients get another channel when the load falls to a tenth."""
    random, rows = np.random.default_rng(1), []
    for channel in range(8):
        start_s = 0.0 if channel < 6 else 300.0
        while start_s < 600:
            start_s += random.exponential(0.06 if start_s < 300 else 0.8)
            rows.append((f"i{channel % 6 + 1}", channel, len(rows), "w1", 500, round(start_s * 1e9), "main"))
    names = ["client", "channel", "flow", "server", "size_bytes", "start_ns", "chain"]
    flows = pl.LazyFrame(rows, schema=names, orient="row")
    assert list(judge_shares(flow_shares(flows, ["w1"]))) != []
    assert list(judge_shares(flow_shares(flows, ["w1"], [300 * 10**9]))) == []


def test_flows_that_begin_at_the_same_instant_have_no_test_of_clients() -> None:
    flows = loops(1).with_columns(start_ns=pl.lit(5))
    assert flow_shares(flows, SERVERS).keys() == {"servers"}


def test_a_small_deviation_is_no_caveat_even_if_it_is_certain() -> None:
    flows = loops(1, slower=1.05)
    assert flow_shares(flows, SERVERS)["clients"]["p"] <= LEVEL
    assert findings(flows) == []


def test_a_run_too_short_to_find_a_quarter_has_no_caveat() -> None:
    """Of 4 s: a client whose flows take thrice as long would have one by its p-value alone."""
    flows = loops(1, slower=3.0).filter(pl.col("start_ns") < 4 * 10**9)
    clients = flow_shares(flows, SERVERS)["clients"]
    assert (clients["p"] <= LEVEL, clients["least_found"] > 0.25) == (True, True)
    assert findings(flows) == []


def test_a_short_run_says_that_it_finds_only_large_deviations() -> None:
    short, long = (flow_shares(loops(1).filter(pl.col("start_ns") < seconds * 10**9), SERVERS) for seconds in (10, 300))
    for role in ("servers", "clients"):
        assert short[role]["least_found"] > 3 * long[role]["least_found"]


def test_the_same_flows_have_the_same_p_values() -> None:
    assert flow_shares(loops(3), SERVERS) == flow_shares(loops(3), SERVERS)


def test_a_single_host_and_a_run_without_flows_have_no_test() -> None:
    flows = loops(1)
    assert flow_shares(flows.filter(pl.col("client") == "i1"), SERVERS).keys() == {"servers"}
    assert flow_shares(flows, ["w1"]).keys() == {"clients"}
    assert flow_shares(flows.filter(pl.col("flow") < 0), SERVERS) == {}


def test_unequal_shares_are_a_caveat_of_the_verdict() -> None:
    test = {"flows": 4000, "deviations": {"w1": -0.2, "w2": 0.1}, "p": 0.01, "least_found": 0.08}
    summary: Any = {**VALID, "flow_shares": {"servers": test}}
    assert [(finding.code, finding.text) for finding in judge(summary)] == [
        (
            FindingCode.SHARES_UNEQUAL,
            (
                "flows are not shared equally among servers: w1 has 20.0 % fewer than its share of 4000 flows; "
                "p = 0.01, bound 0.01 (Holm-corrected); the least that this run finds is 8 %"
            ),
        )
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_corrected_p_values_keep_the_order_and_lie_between_their_own_and_bonferronis(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for own, value in zip(p_values, corrected, strict=True):
        assert own <= value <= 1
    for first, second in zip(sorted(range(len(p_values)), key=p_values.__getitem__), sorted(corrected), strict=True):
        assert corrected[first] == second
    assert min(corrected) == min(1.0, len(p_values) * min(p_values))


def test_a_step_down_correction_is_that_of_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
