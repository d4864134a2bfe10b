# SPDX-License-Identifier: Apache-2.0
"""The sample of flow sizes in a run: sizes of the first flows of its channels, and the largest flow that fits. Pure.

The size of flow k of channel c is a function of seed, c and k, whatever the network does (hosts/crates/flow-sizes). The
mean of the first sizes therefore has a known expectation, that of the distribution, and is a control variate for the
figures of the run. Flows of the run's own table would not do: which flows begin depends on the network, because a
channel with a large flow begins fewer, and the expectation of their mean is unknown.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np

from atoll_analysis.figures.path_delays import base_rtts_ms
from atoll_core.experiment.experiment import Experiment
from atoll_core.experiment.flow_sizes import SCALE, FlowSizes, Interpolation
from atoll_core.experiment.link_over_time import link_over_time
from atoll_core.experiment.traffic import FlowDirection, Traffic
from atoll_core.lab.network import Network


@dataclass(frozen=True, slots=True)
class ControlVariate:
    """The control variate of a study: the mean size of the first flows of each channel.

    Sizes above ``largest`` count as ``largest``. A mean of unbounded sizes depends on a few giants of which a run
    receives only a part, so that no straight line relates it to a figure.
    """

    flows: int  # of each channel
    largest_bytes: int

    def of_run(self, traffic: Traffic, seed: int) -> float:
        """The control of a run with this seed, in bytes."""
        sizes = np.concatenate([
            first_sizes(load.distribution, seed, load.channels, self.flows, load.first_channel)
            for load in traffic.loads
        ])  # fmt: skip
        return float(np.minimum(sizes, self.largest_bytes).mean())

    def expectation(self, traffic: Traffic) -> float:
        """The expectation over seeds, in bytes."""
        sums = (load.channels * load.distribution.capped_mean(self.largest_bytes) for load in traffic.loads)
        return sum(sums) / traffic.total_channels


def first_sizes(sizes: FlowSizes, seed: int, channels: int, flows: int, first_channel: int = 0) -> Any:
    """The sizes of the first flows of every channel: an array of ``channels`` rows, in bytes, not rounded down."""
    channel = np.arange(first_channel, first_channel + channels, dtype=np.uint64)[:, None]
    flow = np.arange(flows, dtype=np.uint64)
    state = cast("Any", np.zeros((channels, flows), np.uint64))
    for coordinate in cast("tuple[Any, ...]", (np.uint64(seed), channel, flow)):
        state = _mix((state ^ coordinate) + _GAMMA)
    numbers = _mix(state + _GAMMA + _GAMMA)  # the second number of the flow's generator; the first one is its server
    probability = numbers.astype(float) / 2.0**64
    knots = np.asarray([knot[0] for knot in sizes.knots], float) / SCALE
    octets = np.asarray([knot[1] for knot in sizes.knots], float)
    if sizes.kind is Interpolation.STEPS:
        index = cast("Any", np.searchsorted(knots, probability, side="right"))
        return octets[np.minimum(index, len(octets) - 1)]
    return np.exp(cast("Any", np.interp(probability, knots, np.log(octets))))


_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def _mix(state: Any) -> Any:
    """The output of SplitMix64 (Steele, Lea, Flood 2014) at a state; arrays of uint64 wrap around."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


_ROUNDING = 1e-12  # shares are sums of floating-point numbers


@dataclass(frozen=True, slots=True)
class FlowBound:
    """The largest flow that one run can measure to its end."""

    largest_bytes: int
    share_of_flows: float  # that are larger
    share_of_bytes: float  # that these flows have; both of the group of clients where it is largest


def flow_bound(network: Network, experiment: Experiment) -> FlowBound | None:
    """The bound of a run's flows, and the share of its flow sizes beyond it; None without channels or a bound."""
    loads = [load for load in experiment.first_load.loads if load.channels]
    bounds = [(load.distribution, largest_flow_bytes(network, experiment, load.direction)) for load in loads]
    shares = [
        (_share_above(sizes.bytes_share_up_to(largest)), _share_above(sizes.share_up_to(largest)), largest)
        for sizes, largest in bounds
        if largest is not None
    ]
    if not shares:
        return None
    volume, flows, largest = max(shares)
    return FlowBound(largest, flows, volume)


def _share_above(share_up_to: float) -> float:
    return 1 - share_up_to if 1 - share_up_to > _ROUNDING else 0.0


def largest_flow_bytes(
    network: Network, experiment: Experiment, direction: FlowDirection = FlowDirection.DOWNLOAD
) -> int | None:
    """The most bytes that one flow of a channel can move within the duration; None: no link bounds it.

    An upper bound: at each instant the rate of the fastest path that any version of the steering has, alone for this
    flow, for the duration without the two round trips in which the connection and the request are made.
    """
    links = {link.box: link_over_time([(0, getattr(link, direction.of_link))]) for link in experiment.links_over_time}
    write_rate = experiment.traffic.write_rate

    def fastest_bit_s(t_ns: int) -> float:
        rates = [
            min((links[hop].at(t_ns).rate.bit_s for hop in chain.hops if hop in links), default=math.inf)
            for chain in experiment.all_chains
        ]
        return min(max(rates, default=math.inf), write_rate.bit_s if write_rate else math.inf)

    rtts = base_rtts_ms(network, experiment)
    end_ns = experiment.duration.ns
    begin_ns = min(end_ns, round(2e6 * (rtts[0] if rtts else 0.0)))
    instants = {step.since_ns for link in links.values() for step in link.steps if begin_ns < step.since_ns < end_ns}
    spans = list(pairwise(sorted({begin_ns, *instants, end_ns})))
    largest = sum(fastest_bit_s(begin) * (end - begin) for begin, end in spans) / 8e9
    return int(largest) if math.isfinite(largest) else None
