# SPDX-License-Identifier: Apache-2.0
"""Random chains, latencies, settings of boxes and of the link, for swaps in a lab with a pair of coders and of PEPs."""

from dataclasses import replace
from random import Random
from typing import Any

from atoll_core.experiment.experiment import (
    Bernoulli,
    BoxConfiguration,
    Codel,
    Experiment,
    GilbertElliott,
    Jitter,
    JitterShape,
    LinkDirection,
    LinkTrace,
    LossPoint,
    LowPriority,
    Red,
    TraceRow,
)
from atoll_core.units import Duration, Rate, Size

_PEPS, _CODERS = ("pep-w", "pep-i"), ("coder-w", "coder-i")
_ORDER = ("tap-w", "pep-w", "coder-w", "sat", "coder-i", "pep-i", "tap-i")
_CLASSES = ("rtt-5", "rtt-20", "rtt-50")
_MS = 10**6
_RED = Red(Size(300_000), Size(900_000), 0.1, 0.002)


def changed_experiment(draw: Random, experiment: Experiment) -> Experiment:
    """The experiment with another chain, latency, other settings of coders, PEPs and the link; not always with each."""
    used = {hop for hop in experiment.chain.hops if hop in (*_PEPS, *_CODERS)}
    if draw.random() < 0.7:
        used = {*_CODERS} if draw.random() < 0.7 else set[str]()
        used |= {name for name in _PEPS if draw.random() < 0.6}
    hops = tuple(hop for hop in _ORDER if hop in used or hop == "sat" or ("tap" in hop and draw.random() < 0.8))
    code: dict[str, Any] = {}
    if draw.random() < 0.6:
        hold_ns = draw.choice([0, 200, 1000, 2000]) * _MS
        code = {"in_order_hold": hold_ns, "redundancy": draw.choice([0, 1, 3])}
    boxes = tuple(_changed_box(draw, each, code) for each in experiment.boxes)
    latency = (("w1", draw.choice(_CLASSES)),) if draw.random() < 0.5 else experiment.latency
    links = experiment.links
    if draw.random() < 0.5:
        (sat,) = links
        links = (replace(sat, to_island=_changed_way(draw, sat.to_island), to_world=_changed_way(draw, sat.to_world)),)
    chain = replace(experiment.chain, hops=hops)
    return replace(experiment, chain=chain, boxes=boxes, latency=latency, links=links)


def _changed_way(draw: Random, way: LinkDirection) -> LinkDirection:
    """A direction of a link with other settings.

    Packets keep their order: a decoder could otherwise recover one that is still on its way, which the proof of swaps
    takes for one that skipped the link.
    """
    delay = Duration(draw.choice([100, 250, 280]) * _MS)
    return replace(
        way,
        rate=Rate(draw.choice([20, 40]) * 10**6),
        delay=delay,
        queue=Size(draw.choice([500_000, 1_000_000])),
        queue_packets=draw.choice([None, 1000]),
        jitter=draw.choice([None, Jitter(draw.choice([*JitterShape]), Duration(5 * _MS))]),
        loss=draw.choice([None, Bernoulli(0.02), Bernoulli(0.05, LossPoint.BEFORE), GilbertElliott(0.01, 0.5)]),
        aqm=draw.choice([None, Codel(Duration(5 * _MS), Duration(600 * _MS)), _RED]),
        trace=draw.choice([None, LinkTrace("", (TraceRow(Duration(0), delay=Duration(delay.ns + 10 * _MS)),))]),
        low_priority=draw.choice([None, LowPriority(Size(100_000))]),
    )


def _changed_box(draw: Random, box: BoxConfiguration, code: dict[str, Any]) -> BoxConfiguration:
    """``code``: what both coders change."""
    changed: dict[str, Any] = {}
    if box.box in _CODERS:
        changed |= code
        if draw.random() < 0.3:
            changed |= {"small": draw.choice([0, 100]), "flush": draw.choice([50, 100, 500]) * _MS}
    elif box.box in _PEPS:
        if draw.random() < 0.3:
            changed |= {"silence": draw.choice([60, 120]) * 1000 * _MS, "pending_max": draw.choice([100, 2000])}
        if draw.random() < 0.3:
            changed["island_window"] = draw.choice([None, 10**6])
        if draw.random() < 0.5:
            changed |= {"world_initial_window": draw.choice([None, 30]), "ecn": draw.choice([False, True])}
    return replace(box, settings=tuple({**dict(box.settings), **changed}.items()))
