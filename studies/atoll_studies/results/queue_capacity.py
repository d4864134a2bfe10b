# SPDX-License-Identifier: Apache-2.0
"""Recommended capacity of the slowest link's queue, from the runs of a study in which it is a factor.

A good queue: transfers finish in reasonable time, little oscillation, good utilisation, no significant standing queue,
and voice stays within its limits. The criteria and rules of thumb are in docs/regimes.md.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, cast

from atoll_analysis.figures.regimes import SPAN_RTTS, SWINGING_SHARE
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary, least_rate_bit_s, mean_rate_bit_s
from atoll_core.experiment.traffic import UPLOADS_ONLY
from atoll_core.units import Size
from atoll_studies.results.results import NO_REGIME, Results
from atoll_studies.results.similarity import SEED
from atoll_studies.statistics.bisection import CRITERIA, VOICE, QueueSearch
from atoll_studies.statistics.estimates import LEAST_SAMPLES
from atoll_studies.statistics.warm_up import NO_WARM_UP, WarmUp

MOST_TRANSFER_FACTOR = 1.25
"""A transfer finishes in reasonable time if it takes at most this much of the shortest median of all capacities."""

LEAST_UTILISATION = 0.9
"""Of the highest median of all capacities: the load of the study may not fill the link at any of them."""

MOST_STANDING_SHARE = 0.1
"""Share of time with a standing queue from which on it is significant."""

VOICE_MS = 300.0
"""One way, what voice allows; a call on a GEO link uses most of it before any queue."""
VOICE_MARGINAL_MS = 400.0
"""One way, what ITU-T G.114 allows in planning a network: between the two limits voice is marginal."""

LEAST_RTTS = round(SPAN_RTTS / SWINGING_SHARE)
"""Base RTTs that a run lasts after the warm-up: in a shorter one a single overflow counts as oscillation."""


@dataclass(frozen=True, slots=True)
class QueueRun:
    """What a run says of its queue; None: not measured."""

    link: str  # the box of the slowest link
    queue_bytes: int
    mean_rate_bit_s: int
    least_rate_bit_s: int
    settled_s: float  # time after the warm-up
    base_rtt_ms: float | None
    transfer_s: float | None  # inf: it did not finish; None: there was none
    time_limit_s: float | None  # time that the run had for it
    utilisation: float | None
    swinging_share: float | None
    standing: float | None
    long_flows: float | None
    regime: str | None
    mean_packet_bytes: float | None = None  # of the packets that came to the queue


@dataclass(frozen=True, slots=True)
class QueueLevel:
    """One capacity: medians over its runs, and the criteria that it does not meet."""

    queue_bytes: int
    runs: int
    transfer_s: float | None  # inf: in half of the runs it did not finish
    transfer_at_least_s: float | None  # the same, if each took no longer than there was time for it
    finished_share: float | None  # of the runs in which it finished
    utilisation: float | None
    full_and_empty_share: float | None
    standing_share: float | None
    voice_ms: float | None  # one way, with a full queue at the lowest rate
    regimes: Mapping[str, int]  # with the number of runs, the most frequent first
    unmet: tuple[str, ...]
    measured: bool  # any of the criteria but voice, which needs no run

    @property
    def is_marginal_for_voice(self) -> bool:
        """Whether voice is between its two limits."""
        return self.voice_ms is not None and VOICE_MS < self.voice_ms <= VOICE_MARGINAL_MS


@dataclass(frozen=True, slots=True)
class QueueAdvice:
    """The capacities of configurations that are otherwise the same, ascending, and the rules of thumb."""

    other_levels: Mapping[str, str]  # by other factor; of one that sets the queue together with more, its levels
    levels: tuple[QueueLevel, ...]
    product_bytes: int | None  # mean rate x base RTT (Villamizar and Song 1994)
    long_flows: float | None  # open at once, median of all runs
    root_bytes: int | None  # the product / sqrt(long flows), for at least one (Appenzeller, Keslassy and McKeown 2004)
    mean_packet_bytes: float | None  # median over all runs; None: not measured
    caveats: tuple[str, ...]  # why the runs are too little for a recommendation

    @property
    def refusal(self) -> str:
        """Why no capacity is recommended: runs are both few and short, or measured no criterion; empty if one is."""
        if not any(level.measured for level in self.levels):
            return "the runs measured none of the criteria"
        return " and ".join(self.caveats) if len(self.caveats) > 1 else ""

    @property
    def recommended(self) -> QueueLevel | None:
        """The capacity that leaves the fewest criteria unmet; of several, the smallest one; None if refused."""
        if self.refusal:
            return None
        return min(self.levels, key=lambda level: (len(level.unmet), level.queue_bytes))

    @property
    def recommended_packets(self) -> int | None:
        """The recommended capacity in packets of the mean size, as routers are configured; None: not known."""
        if self.recommended is None or self.mean_packet_bytes is None:
            return None
        return round(self.recommended.queue_bytes / self.mean_packet_bytes)


def queue_advice(results: Results) -> list[QueueAdvice]:
    """Return the advice for each set of configurations that differ in the slowest link's queue alone; none without one.

    The queue is that to the island, so runs with uploads only have no advice, and transfers that upload no criterion.
    Where it is changed together with the one to the world only, both may differ.
    """
    runs_of: dict[int, list[QueueRun]] = {}
    for run, path in results.directories:
        queue_run = read_queue_run(path, results.warm_up, run.configuration)
        if queue_run is None or run.configuration not in results.described:
            continue
        experiment = results.described[run.configuration][1]
        if any(transfer.is_upload for transfer in experiment.all_transfers):
            queue_run = replace(queue_run, transfer_s=None, time_limit_s=None)
        if experiment.flow_directions != UPLOADS_ONLY:
            runs_of.setdefault(run.configuration, []).append(queue_run)
    for directions in (("to_island",), ("to_island", "to_world")):
        groups: dict[Hashable, list[int]] = {}
        for number, runs in sorted(runs_of.items()):
            groups.setdefault(_without_queue(results, number, runs[0].link, directions), []).append(number)
        advice = [
            advise(_other_levels(results, group), [run for number in group for run in runs_of[number]], results.search)
            for group in groups.values()
        ]
        if compared := [item for item in advice if len(item.levels) > 1]:
            return compared
    return []


def advise(other_levels: Mapping[str, str], runs: Sequence[QueueRun], search: QueueSearch | None = None) -> QueueAdvice:
    """Return the advice from runs that differ in their queue and seed alone; at least one.

    ``search``: chose the runs; it makes fewer of a capacity if these agree.
    """
    by_capacity: dict[int, list[QueueRun]] = {}
    for run in sorted(runs, key=lambda run: run.queue_bytes):
        by_capacity.setdefault(run.queue_bytes, []).append(run)
    criteria, least_runs = (search.criteria, search.majority) if search else (CRITERIA, LEAST_SAMPLES)
    standard = best_medians(by_capacity.values())
    rtt_ms, long_flows = _median(run.base_rtt_ms for run in runs), _median(run.long_flows for run in runs)
    product = None if rtt_ms is None else round(runs[0].mean_rate_bit_s / 8 * rtt_ms / 1e3)
    return QueueAdvice(
        other_levels=other_levels,
        levels=tuple(queue_level(level, standard, criteria) for level in by_capacity.values()),
        product_bytes=product,
        long_flows=long_flows,
        root_bytes=None if product is None or long_flows is None else round(product / math.sqrt(max(1.0, long_flows))),
        mean_packet_bytes=_median(run.mean_packet_bytes for run in runs),
        caveats=tuple(_caveats(by_capacity.values(), least_runs)),
    )


def _caveats(levels: Collection[Sequence[QueueRun]], least_runs: int) -> Iterator[str]:
    """Why the runs are too few or too short."""
    if min(map(len, levels)) < least_runs:
        yield f"fewer than {least_runs} runs of a capacity"
    if any(1e3 * run.settled_s < LEAST_RTTS * (run.base_rtt_ms or 0.0) for level in levels for run in level):
        yield f"runs shorter than {LEAST_RTTS} base RTTs after the warm-up"


def best_medians(levels: Collection[Sequence[QueueRun]]) -> tuple[float | None, float | None]:
    """The time of the fastest transfer (s) and the highest utilisation of any capacity; None: not measured."""
    transfers = (_median(run.transfer_s for run in level) for level in levels)
    utilisations = (_median(run.utilisation for run in level) for level in levels)
    return (
        min((median_s for median_s in transfers if median_s is not None), default=None),
        max((share for share in utilisations if share is not None), default=None),
    )


def queue_level(
    runs: Sequence[QueueRun], standard: tuple[float | None, float | None], applied: Collection[str] = CRITERIA
) -> QueueLevel:
    """Judge the runs of one capacity; ``standard``: the :func:`best_medians`. ``applied``: the criteria that count."""
    fastest_s, highest = standard
    queue_bytes, rtt_ms = runs[0].queue_bytes, _median(run.base_rtt_ms for run in runs)
    transfer_s, utilisation = _median(run.transfer_s for run in runs), _median(run.utilisation for run in runs)
    times = [run.transfer_s for run in runs if run.transfer_s is not None]
    swinging_share, standing = _median(run.swinging_share for run in runs), _median(run.standing for run in runs)
    voice_ms = None if rtt_ms is None else one_way_ms(rtt_ms, queue_bytes, runs[0].least_rate_bit_s)
    criteria = {
        "transfer": transfer_s is not None
        and fastest_s is not None
        and (transfer_s == math.inf or transfer_s > MOST_TRANSFER_FACTOR * fastest_s),
        "oscillation": swinging_share is not None and swinging_share >= SWINGING_SHARE,
        "utilisation": utilisation is not None and highest is not None and utilisation < LEAST_UTILISATION * highest,
        "standing queue": standing is not None and standing >= MOST_STANDING_SHARE,
        VOICE: voice_ms is not None and voice_ms > VOICE_MARGINAL_MS,
    }
    return QueueLevel(
        queue_bytes=queue_bytes,
        runs=len(runs),
        transfer_s=transfer_s,
        transfer_at_least_s=_median(run.time_limit_s if run.transfer_s == math.inf else run.transfer_s for run in runs),
        finished_share=sum(time_s != math.inf for time_s in times) / len(times) if times else None,
        utilisation=utilisation,
        full_and_empty_share=swinging_share,
        standing_share=standing,
        voice_ms=voice_ms,
        regimes=dict(Counter(run.regime or NO_REGIME for run in runs).most_common()),
        unmet=tuple(name for name, fails in criteria.items() if fails and name in applied),
        measured=any(value is not None for value in (transfer_s, utilisation, swinging_share, standing)),
    )


def one_way_ms(rtt_ms: float, queue_bytes: int, rate_bit_s: int) -> float:
    """The delay of a voice packet that meets a full queue."""
    return rtt_ms / 2 + 8e3 * queue_bytes / rate_bit_s


def read_queue_run(path: Path, warm_up: WarmUp = NO_WARM_UP, configuration: int = 0) -> QueueRun | None:
    """Read what a run says of its queue; None without a link. Older versions did not compute all of it."""
    summary = cast("Summary", RunDir.open(path).summary())
    slowest = summary["bottleneck"] or ""
    link = summary["links"].get(slowest)
    if link is None:
        return None
    standing, regime = summary.get("standing_queue"), summary.get("regime")
    finished = math.inf if summary["transfer_s"] is None else summary["transfer_s"]
    return QueueRun(
        link=slowest,
        queue_bytes=link["queue_bytes"],
        mean_rate_bit_s=mean_rate_bit_s(link),
        least_rate_bit_s=least_rate_bit_s(link),
        settled_s=0.0 if configuration in warm_up.unsettled else (summary["duration_s"] or 0.0) - warm_up.seconds,
        base_rtt_ms=summary["base_rtt_ms"],
        transfer_s=None if summary["transfer_bytes"] is None else finished,
        time_limit_s=summary.get("transfer_room_s"),
        utilisation=summary["utilisation"],
        swinging_share=regime["swinging_share"] if regime else None,
        standing=standing["share"] if standing else None,
        long_flows=summary.get("long_flows_mean"),
        regime=regime["regime"] if regime else None,
        mean_packet_bytes=link.get("mean_packet_bytes"),
    )


def _without_queue(results: Results, number: int, slowest: str, directions: Sequence[str]) -> Hashable:
    """All that a configuration asks for, except seed, names, and the queue of a link's directions.

    Of runs that are no study's also the other properties that differ, such as platform and revision.
    """
    network, experiment = results.described[number]
    links = tuple(
        replace(link, **{name: replace(getattr(link, name), queue=Size(0)) for name in directions})
        if link.box == slowest
        else link
        for link in experiment.links
    )
    unlike = results.similarity.unlike if results.similarity else ()
    properties = tuple(results.configurations[number][name] for name, _ in unlike if name not in _NAMES)
    return replace(network, name=""), replace(experiment, name="", seed=0, links=links), properties


_NAMES = (SEED, "experiment", "lab", "lab file")  # what the network and the experiment of a run have, or no property


def _other_levels(results: Results, group: Sequence[int]) -> dict[str, str]:
    """The levels of a group of configurations, of all factors but those of the queue alone."""
    other_levels: dict[str, str] = {}
    for factor in results.factors:
        levels = dict.fromkeys(results.configurations[number][factor] for number in group)
        all_levels = {levels_of[factor] for levels_of in results.configurations}
        if len(levels) == 1 or not (factor.endswith("queue") or all_levels == set(levels)):
            other_levels[factor] = " / ".join(levels)
    return other_levels


def _median(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def advice_json(advice: Sequence[QueueAdvice]) -> list[dict[str, Any]]:
    """The advice as ``--json`` prints it; a transfer that did not finish in half of the runs has no time."""
    return [
        {
            "others": dict(item.other_levels),
            "recommended_bytes": item.recommended.queue_bytes if item.recommended else None,
            "recommended_packets": item.recommended_packets,
            "mean_packet_bytes": item.mean_packet_bytes,
            "caveats": list(item.caveats),
            "bandwidth_delay_product_bytes": item.product_bytes,
            "long_flows": item.long_flows,
            "product_by_root_bytes": item.root_bytes,
            "levels": [
                {**asdict(level), "transfer_s": None if level.transfer_s == math.inf else level.transfer_s}
                for level in item.levels
            ],
        }
        for item in advice
    ]
