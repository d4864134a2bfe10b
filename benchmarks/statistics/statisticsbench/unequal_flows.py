# SPDX-License-Identifier: Apache-2.0
"""How often the tests of flow shares find an imbalance, and how often they find one where there is none.

Runs are simulated from the traffic model: six clients of ten channels each, 22 servers, 600 s on a GEO link. Sizes are
the published ones that a seed draws; servers are drawn at random, their terrestrial RTTs are evenly spread from 5 to
300 ms. A flow takes two round trips, one more for each doubling of the initial window, its size at 0.8 Mbit/s, and a
queueing delay that all flows of an instant share. One flow of 20 waits for a timeout of 1 s; one of four such timeouts
is followed by one that is twice as long. In an unequal run, each flow of one client takes a quarter longer, so that it
begins 20 % fewer.
"""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl

from atoll_analysis.verdict.flow_shares import flow_shares, judge_shares
from atoll_core.experiment.flow_sizes import published
from atoll_studies.statistics.flow_sample import first_sizes

_CLIENTS, _CHANNELS, _SERVERS = 6, 10, 22
_DURATION_S = 600.0
_MOST_FLOWS = 1000  # of a channel
_WINDOW_BYTES = 14_480
_SWING_S = 0.1  # of the queueing delay
_NAMES = [f"w{number}" for number in range(1, _SERVERS + 1)]


@dataclass(frozen=True, slots=True)
class Unequal:
    """Simulated runs in which one client begins this share of its flows less."""

    imbalance: float
    found: float  # share of runs with a caveat
    least_found: float  # mean of the least imbalance of clients that the runs say they find


def unequal(runs: int, number: int) -> Unequal:
    """Measure one of the cases IMBALANCES."""
    imbalance = IMBALANCES[number]
    tests = [flow_shares(simulated_flows(seed, imbalance), _NAMES) for seed in range(runs)]
    found = fmean(any(True for _ in judge_shares(test)) for test in tests)
    return Unequal(imbalance, found, fmean(test["clients"]["least_found"] for test in tests))


IMBALANCES = (0.0, 0.1, 0.2)


def simulated_flows(seed: int, imbalance: float) -> pl.LazyFrame:
    """The columns of the table ``channel_flows`` that the tests read."""
    random, channels = np.random.default_rng(seed), _CLIENTS * _CHANNELS
    shape = (channels, _MOST_FLOWS)
    sizes = first_sizes(published(), seed, *shape)
    servers = random.integers(0, _SERVERS, shape)
    duration_s = _durations_s(random, sizes, np.linspace(0.005, 0.3, _SERVERS)[servers])
    duration_s[:_CHANNELS] /= 1 - imbalance
    start_s = _starts_s(duration_s, random)
    channel, flow = np.nonzero(start_s < _DURATION_S)
    begun = channel, flow
    return pl.LazyFrame({
        "client": [f"i{number // _CHANNELS + 1}" for number in channel],
        "channel": channel,
        "flow": flow,
        "server": np.array(_NAMES)[servers[begun]],
        "size_bytes": sizes[begun].astype(np.int64),
        "start_ns": (start_s[begun] * 1e9).astype(np.int64),
        "chain": ["main"] * len(channel),
    })  # fmt: skip


def _durations_s(random: Any, sizes: Any, terrestrial_s: Any) -> Any:
    """Durations on an empty queue."""
    rounds = 2 + np.log2(1 + sizes / _WINDOW_BYTES)
    timeouts = np.where(random.random(sizes.shape) < 0.05, 2.0 ** random.geometric(0.75, sizes.shape) - 1, 0.0)
    return (0.5 + terrestrial_s) * rounds + 8 * sizes / 0.8e6 + timeouts


def _starts_s(duration_s: Any, random: Any) -> Any:
    """Begins of the flows of each channel, one after the other, each delayed by the queue of its instant."""
    queue_s = _SWING_S * random.random(int(_DURATION_S) + 1)
    start_s, now_s = np.empty_like(duration_s), np.zeros(len(duration_s))
    for flow in range(duration_s.shape[1]):
        start_s[:, flow] = now_s
        instant = np.minimum(now_s, _DURATION_S).astype(int)
        now_s = now_s + duration_s[:, flow] + queue_s[instant]
    return start_s
