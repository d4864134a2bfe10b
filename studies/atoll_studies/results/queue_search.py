# SPDX-License-Identifier: Apache-2.0
"""The searches of a study: their runs judged by the criteria of a good queue, and the paths that follow."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

from atoll_studies.results.queue_capacity import (
    VOICE_MARGINAL_MS,
    QueueRun,
    best_medians,
    one_way_ms,
    queue_level,
    read_queue_run,
)
from atoll_studies.results.results import Results
from atoll_studies.statistics.bisection import Judgement, QueueSearch, SearchPath, best_interval, replay
from atoll_studies.statistics.estimates import Estimate

RunsByCapacity = Mapping[int, Sequence[QueueRun | None]]
"""Of each capacity (bytes) the runs that ended, by repetition; None: no attempt at it is valid."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One search, of one combination of the other factors."""

    other_levels: Mapping[str, str]  # by factor
    path: SearchPath
    interval: Estimate | None  # of the median of the seeds' best capacities; None: it has not ended

    @property
    def limits(self) -> tuple[float, float] | None:
        """The ends of the interval (bytes), which contains the capacity that was found."""
        best = self.path.best
        if best is None or self.interval is None:
            return None
        return min(best, self.interval.limits[1].least), max(best, self.interval.limits[2].most)


def search_results(results: Results) -> list[SearchResult]:
    """Replay the searches of a study by its runs."""
    search = results.search
    if search is None:
        return []
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for number, levels in enumerate(results.configurations):
        groups.setdefault(_others(levels, search), []).append(number)
    return [_result(results, search, numbers) for numbers in groups.values()]


def search_path(search: QueueSearch, runs: RunsByCapacity) -> SearchPath:
    """Replay one search by its runs."""
    return replay(search, lambda taken: _judged(search, runs, taken))


def _result(results: Results, search: QueueSearch, numbers: Sequence[int]) -> SearchResult:
    runs: dict[int, list[QueueRun | None]] = {}
    for number in numbers:
        path_by_seed = {run.seed: path for run, path in results.directories if run.configuration == number}
        settled = {seed for configuration, seed in results.settled_points if configuration == number}
        seeds = takewhile(settled.__contains__, results.seeds)  # by repetition
        capacity = results.described[number][1].link(search.box).to_island.queue.bytes
        runs[capacity] = [read_queue_run(path_by_seed[s]) if s in path_by_seed else None for s in seeds]
    path = search_path(search, runs)
    interval = best_interval(search, seed_judgements(search, runs, path)) if path.best is not None else None
    return SearchResult(dict(_others(results.configurations[numbers[0]], search)), path, interval)


def seed_judgements(search: QueueSearch, runs: RunsByCapacity, path: SearchPath) -> list[Judgement]:
    """The capacities as each seed alone judges them."""
    seeds: list[Judgement] = []
    for repetition in range(search.repetitions):
        own = {
            capacity: [run]
            for capacity, count in path.taken.items()
            if repetition < count and (run := runs[capacity][repetition]) is not None
        }
        if own:
            seeds.append(_judgement(search, own))
    return seeds


def _judged(search: QueueSearch, runs: RunsByCapacity, taken: Mapping[int, int]) -> Judgement | None:
    if any(len(runs.get(capacity, ())) < count for capacity, count in taken.items()):
        return None
    usable = {capacity: [run for run in runs[capacity][:count] if run] for capacity, count in taken.items()}
    return _judgement(search, {capacity: own for capacity, own in usable.items() if own})


def _judgement(search: QueueSearch, runs: Mapping[int, Sequence[QueueRun]]) -> Judgement:
    standard = best_medians(runs.values())
    unmet = {capacity: queue_level(own, standard, search.criteria).unmet for capacity, own in runs.items()}
    split = [
        capacity
        for capacity, own in runs.items()
        if len({queue_level([run], standard, search.criteria).unmet for run in own}) > 1
    ]
    any_run = next((run for own in runs.values() for run in own), None)
    if any_run is None or (rtt_ms := any_run.base_rtt_ms) is None:
        return Judgement(unmet, split)
    rate_bit_s = any_run.least_rate_bit_s
    carrying = [c for c in search.capacities if one_way_ms(rtt_ms, c, rate_bit_s) <= VOICE_MARGINAL_MS]
    return Judgement(unmet, split, max(carrying, default=0))


def _others(levels: Mapping[str, str], search: QueueSearch) -> tuple[tuple[str, str], ...]:
    return tuple(item for item in levels.items() if item[0] != search.over)


def searches_json(searched: Sequence[SearchResult]) -> list[dict[str, Any]]:
    """The searches as ``--json`` prints them."""
    return [
        {
            "others": dict(item.other_levels),
            "outcome": item.path.end.value,
            "best_bytes": item.path.best,
            "interval_bytes": item.limits,
            "level": item.interval and item.interval.level,
            "runs": sum(step.repetitions for step in item.path.last_steps.values()),
            "steps": [asdict(step) for step in item.path.steps],
        }
        for item in searched
    ]
