# SPDX-License-Identifier: Apache-2.0
"""Shares of the flows by server and by client: whether chance explains that they differ.

Each flow draws its server among all of them, so the numbers of flows that servers get are multinomial. Channels of all
clients are alike, too, but they are loops: a channel with a giant flow begins few others meanwhile. Clients are
therefore compared by the time from the begin of a short flow to the begin of the next one of its channel. Chance may
exchange these times between the clients of a group and a chain while the load is the same: a permutation test,
whatever their distribution.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import polars as pl

from atoll_analysis.verdict.findings import Finding, FindingCode, caveat
from atoll_core.holm import holm
from atoll_core.plural import counted

LEVEL = 0.01
"""Probability with which a run whose hosts are alike has a caveat, at most."""
LEAST_DEVIATION = 0.05
"""A smaller difference is no caveat: clients of different speed differ by it, and long runs would find that."""
LARGEST_FOUND = 0.25
"""A run that finds only larger deviations than this is too short for a caveat: its few flows meet the same moments of
the queue, so that they are not independent of each other, as the tests suppose."""
SHORT_FLOW_BYTES = 100_000
"""Larger flows, whose duration varies by more than all others together, do not count by client: they are governed by
queue and losses (CLASS_BOUNDS_BYTES of the module flows)."""
POWER = 0.9

_TESTS = 2
_DRAWS = 999
_ENOUGH = 20
"""Draws as extreme as the run, after which the p-value is known well enough (Besag and Clifford 1991)."""
_SEED = 1


class ShareTest(TypedDict):
    """Flows of the channels by host of one role, compared with equal shares."""

    flows: int  # flows that are compared
    deviations: dict[str, float]  # by host, its flows beyond those that it should have, as a share of these
    p: float  # probability that chance alone makes them differ as much, both tests of a run corrected by Holm's method
    least_found: float  # least deviation of one host that a run of so many flows finds in nine of ten cases


def flow_shares(
    flows: pl.LazyFrame, servers: list[str], changes_ns: Sequence[int] = (), groups: Mapping[str, str] | None = None
) -> dict[str, ShareTest]:
    """Compare the flows of servers (`servers`) and clients (`clients`); a role with a single host is left out.

    ``flows``: the table ``channel_flows``; flows that fail or that the end of the run cuts count, too. ``changes_ns``:
    when the load changed. ``groups``: of clients that have a load of their own, by client.
    """
    group = pl.col("client").replace_strict(groups, return_dtype=pl.String) if groups else pl.lit("")
    tests = {"servers": _servers(flows, servers), "clients": _clients(flows.with_columns(group=group), changes_ns)}
    tested = {role: test for role, test in tests.items() if test is not None}
    corrected = holm([test["p"] for test in tested.values()])
    return {role: {**test, "p": p} for (role, test), p in zip(tested.items(), corrected, strict=True)}


def judge_shares(tests: Mapping[str, ShareTest]) -> Iterator[Finding]:
    """Return a caveat for each role whose hosts differ by more than chance explains."""
    for role, test in tests.items():
        host, deviation = max(test["deviations"].items(), key=lambda pair: abs(pair[1]))
        is_long_enough = test["least_found"] <= LARGEST_FOUND
        if is_long_enough and test["p"] <= LEVEL and abs(deviation) >= LEAST_DEVIATION:
            yield caveat(
                FindingCode.SHARES_UNEQUAL,
                f"flows are not shared equally among {role}: {host} has {100 * abs(deviation):.1f} % "
                f"{'more' if deviation > 0 else 'fewer'} than its share of {counted(test['flows'], 'flow')}; "
                f"p = {test['p']:.2g}, bound {LEVEL:g} (Holm-corrected); the least that this run finds is "
                f"{100 * test['least_found']:.2g} %",
            )


def _servers(flows: pl.LazyFrame, names: list[str]) -> ShareTest | None:
    """Flows that began by server: a multinomial test with the chi-square statistic."""
    by_server = dict(flows.group_by("server").len().collect().iter_rows())
    counts = np.array([by_server.get(name, 0) for name in names])
    total, hosts = int(counts.sum()), len(names)
    if hosts < 2 or not total:
        return None
    random, expected = np.random.default_rng(_SEED), total / hosts

    def statistic(drawn: Any) -> float:
        return float(((drawn - expected) ** 2).sum())

    p = _p_value(statistic(counts), lambda: statistic(random.multinomial(total, np.full(hosts, 1 / hosts))))
    deviations = {name: float(count / expected - 1) for name, count in zip(names, counts, strict=True)}
    least = math.sqrt(_noncentrality(hosts) * (hosts - 1) / total)
    return ShareTest(flows=total, deviations=deviations, p=p, least_found=least)


def _clients(flows: pl.LazyFrame, changes_ns: Sequence[int]) -> ShareTest | None:
    """Short flows by client: a permutation test of the times from one begin to the next, by group, chain and load."""
    channel, start = ["client", "channel"], pl.col("start_ns")
    changes_before = pl.sum_horizontal(pl.lit(0), *(start >= change_ns for change_ns in changes_ns))
    short = (
        flows.sort(*channel, "flow")
        .with_columns(cycle=(start.shift(-1).over(channel) - start).cast(pl.Float64))
        .filter(pl.col("cycle").is_not_null() & (pl.col("size_bytes") <= SHORT_FLOW_BYTES))
        .with_columns(alike=pl.struct("group", "chain", changes_before.alias("changes")).rank("dense"))
        .filter((pl.col("client").n_unique().over("alike") > 1) & (pl.col("cycle").mean().over("alike") > 0))
        .sort("alike", maintain_order=True)
        .select("client", "alike", surplus=1 - pl.col("cycle") / pl.col("cycle").mean().over("alike"))
        .collect()
    )
    names: list[str] = short["client"].unique().sort().to_list()
    surplus = short["surplus"].to_numpy()
    if not names:
        return None
    number = short["client"].cast(pl.Enum(names)).to_physical().to_numpy()
    counts = np.bincount(number)
    alike = np.split(np.arange(len(short)), np.cumsum(short["alike"].rle().struct.field("len"))[:-1])
    random = np.random.default_rng(_SEED)

    def surplus_of(clients: Any) -> Any:
        """By client, the flows beyond those that begin in its time at the rates of all."""
        return np.bincount(clients, surplus, len(names))

    def statistic(clients: Any) -> float:
        return float((surplus_of(clients) ** 2 / counts).sum())

    def permuted() -> float:
        return statistic(np.concatenate([random.permutation(number[rows]) for rows in alike]))

    beyond = surplus_of(number)
    fewest = int(counts.min())
    slower = float(surplus.std()) * math.sqrt(_noncentrality(len(names)) / (fewest * (1 - fewest / len(short))))
    return ShareTest(
        flows=len(short),
        deviations=dict(zip(names, (beyond / (counts - beyond)).tolist(), strict=True)),
        p=_p_value(statistic(number), permuted),
        least_found=slower / (1 + slower),
    )


def _p_value(observed: float, draw: Callable[[], float]) -> float:
    """The share of draws that are at least as large as the observed statistic, which counts as one of them."""
    extreme = 0
    for count in range(1, _DRAWS + 1):
        extreme += draw() >= observed * (1 - 1e-12)  # of rounding
        if extreme == _ENOUGH:
            return extreme / count
    return (extreme + 1) / (_DRAWS + 1)


def _noncentrality(hosts: int) -> float:
    """The noncentrality of a chi-square statistic that its test finds with the power aimed at, if it is the first."""
    from scipy.special import chdtri, chndtrinc  # takes a moment to load

    return float(chndtrinc(chdtri(hosts - 1, LEVEL / _TESTS), hosts - 1, 1 - POWER))
