# SPDX-License-Identifier: Apache-2.0
"""A study as a value, and its description (study.yaml) loaded with every mistake in it.

A configuration is a combination of one level of each factor; a point is a configuration with one seed.
"""

import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import getitem
from pathlib import Path
from typing import Any, cast

from atoll_analysis.figures.run_figures import (
    FIGURES_BY_TRANSFER,
    general_figure,
    group_of_figure,
    is_figure,
    is_to_world,
    suggest_figure,
)
from atoll_analysis.tables.topology import RunTopology
from atoll_core.description.file_kinds import STUDY, require_kind
from atoll_core.description.loader import DescriptionFile
from atoll_core.description.raw_study import MAX_LEVELS, MAX_SEED, MSER_5, SCREENING, RawSearch, RawStudy, level_name
from atoll_core.description.validation_messages import parse, suggest
from atoll_core.description.yaml_document import Document, KeyPath, compose_document, read_document
from atoll_core.errors import DescriptionError, Diagnostic, PlanError, shown
from atoll_core.experiment.experiment import Experiment, Link
from atoll_core.experiment.link_over_time import link_over_time
from atoll_core.experiment.traffic import UPLOADS_ONLY
from atoll_core.lab.network import Network
from atoll_core.plan.plan import Backend
from atoll_core.platforms import VIRTUAL
from atoll_core.plural import counted
from atoll_core.units import Duration, Size
from atoll_emulation.this_machine.congestion_controls import missing_on_platform
from atoll_studies.published import Published, parse_value
from atoll_studies.statistics.bisection import CRITERIA, QueueSearch
from atoll_studies.statistics.estimates import LEAST_SAMPLES
from atoll_studies.statistics.flow_sample import ControlVariate
from atoll_studies.statistics.screening import resolution_iv_design
from atoll_studies.statistics.sign_tests import Primary
from atoll_studies.statistics.stopping import Stop
from atoll_studies.statistics.warm_up import whole_windows, windows_of

MOST_POINTS = 100_000

_RESERVED_KEYS = {  # that are no settings of a study: its own, or what runs are known by
    "seed": "write 'repetitions' or 'seeds'",
    "name": "leave it out",
    "lab.name": "leave it out",
}


_QUEUE = re.compile(r"links\.[^.]+\.to_island\.queue")
_LARGEST: KeyPath = ("search", "to")

Levels = tuple[tuple[str, tuple[str, ...]], ...]
"""The levels of a factor: the name of each, and its settings in the language of ``--set``."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A combination of levels, one of each factor in their order, and the experiment with their settings."""

    levels: tuple[str, ...]
    settings: tuple[str, ...]
    network: Network
    experiment: Experiment
    repetitions: int | None = None  # of a search, which may take fewer than the study's; None: as many

    @property
    def label(self) -> str:
        """Its levels; empty in a study without factors."""
        return ", ".join(self.levels)


@dataclass(frozen=True, slots=True)
class StudyDescription:
    """A study whose every configuration is a valid experiment."""

    name: str
    experiment: Path
    platform: str
    backend: Backend
    factors: Mapping[str, Levels]
    seeds: tuple[int, ...]  # that all configurations share; a repetition each; with ``stop``, of the most there may be
    order_seed: int
    attempts: int
    baseline: tuple[tuple[str, str], ...]  # (factor, level)
    figures: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    warm_up: str | None = None  # MSER_5 or a duration, as atoll_studies.statistics.warm_up reads it
    stop: Stop | None = None
    control: ControlVariate | None = None
    primary: Primary | None = None
    published: tuple[Published, ...] = ()
    missing_controls: tuple[Diagnostic, ...] = ()  # on this machine
    search: QueueSearch | None = None
    file: DescriptionFile | None = None  # the experiment, for the capacities of a search

    @property
    def level_names(self) -> dict[str, list[str]]:
        """The names of the levels of each factor."""
        return {factor: [name for name, _ in levels] for factor, levels in self.factors.items()}

    def levels_by_factor(self, configuration: Configuration) -> dict[str, str]:
        """The levels of a configuration, by factor."""
        return dict(zip(self.factors, configuration.levels, strict=True))

    def other_levels(self, configuration: Configuration) -> tuple[str, ...]:
        """The levels of a configuration without the capacity that is searched."""
        searched = self.search and self.search.over
        return tuple(level for factor, level in self.levels_by_factor(configuration).items() if factor != searched)

    def capacity(self, configuration: Configuration) -> int:
        """The capacity (bytes) of the queue that is searched."""
        return configuration.experiment.link(self._search.box).to_island.queue.bytes

    def with_capacities(self, taken: Mapping[tuple[str, ...], Mapping[int, int]]) -> "StudyDescription":
        """The same study with capacities that its search takes: by other levels, the repetitions of each."""
        configurations: list[Configuration] = []
        for others, repetitions in taken.items():
            known = {self.capacity(each): each for each in self.configurations if self.other_levels(each) == others}
            template = next(iter(known.values()))
            for capacity, count in repetitions.items():
                if capacity not in known:
                    known[capacity] = self._at_capacity(template, capacity, count)
                elif known[capacity].repetitions is not None:
                    known[capacity] = replace(known[capacity], repetitions=count)
            configurations += [known[capacity] for capacity in sorted(known)]
        place, over = list(self.factors).index(self._search.over), self._search.over
        levels = {self.capacity(each): each.levels[place] for each in configurations}
        factor = tuple((level, (setting_argument(over, level),)) for _, level in sorted(levels.items()))
        return replace(self, factors={**self.factors, over: factor}, configurations=tuple(configurations))

    def _at_capacity(self, template: Configuration, capacity: int, repetitions: int) -> Configuration:
        place, level = list(self.factors).index(self._search.over), str(Size(capacity))
        levels = (*template.levels[:place], level, *template.levels[place + 1 :])
        settings = (*template.settings, setting_argument(self._search.over, level))
        loaded = replace(cast("DescriptionFile", self.file), settings=settings).network_and_experiment()
        return Configuration(levels, settings, *loaded, repetitions)

    @property
    def _search(self) -> QueueSearch:
        return cast("QueueSearch", self.search)


def load_study(path: Path, columns: Collection[str] = ()) -> StudyDescription:
    """The study that a study.yaml describes. Raises DescriptionError with all mistakes, those of the experiment too.

    ``columns``: names that no factor may have.
    """
    document = read_document(path)
    require_kind(document, STUDY)
    return _Resolver(parse(RawStudy, document), document, path).resolve(columns)


def setting_argument(key: str, value: Any) -> str:
    """A setting as ``--set`` reads it."""
    if isinstance(value, str):
        plain = compose_document(f"given: {value}\n", "")
        if plain.tree == {"given": value} and not plain.mistakes:
            return f"{key}={value}"
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


def _key_parts(key: str) -> KeyPath:
    """Of the key that names the file of the lab other parts than those of keys in that file: both may be set."""
    parts = tuple(part.strip() for part in key.split("."))
    return ("lab", "file") if parts == ("lab",) else parts


def _size(level: str) -> Size | None:
    """The size that a level is; None: it is none."""
    try:
        return Size.parse(level)
    except ValueError:
        return None


def _slowest_link(network: Network, experiment: Experiment) -> Link | None:
    """The link that the analysis will find to be the slowest one, if all changes succeed."""

    def capacity_bytes(link: Link) -> float:
        versions = zip(experiment.versions, experiment.states, strict=True)
        directions = [(version.at.ns, state.link(link.box).to_island) for version, state in versions]
        return link_over_time(directions).capacity_bytes(0, experiment.duration.ns)

    return RunTopology(experiment, network, (), ()).slowest_link(capacity_bytes)


def _contains(outer: KeyPath, inner: KeyPath) -> bool:
    return inner[: len(outer)] == outer


class _Resolver:
    """One pass over a raw study."""

    def __init__(self, raw: RawStudy, document: Document, path: Path) -> None:
        self.raw = raw
        self.document = document
        self.experiment = DescriptionFile.read(path.parent / raw.experiment)
        self.mistakes: list[Diagnostic] = []
        self.missing_controls: dict[Diagnostic, None] = {}
        # by settings besides the common ones
        self.loaded: dict[tuple[str, ...], tuple[Network, Experiment] | DescriptionError] = {}
        self.common = self.settings(("set",), self.raw.set)
        self.search = self.queue_search()

    def resolve(self, columns: Collection[str]) -> StudyDescription:
        factors = dict(self.factors())
        for name in factors:
            if name in columns:
                reserved = ", ".join(sorted(columns))
                self.report(("factors", name), f"the tables have columns {reserved}; choose another name")
        self.check_design(factors)
        self.refuse_replaced_keys()
        baseline = self.baseline(factors)
        configurations = tuple(self.configurations(factors))
        self.check_figures(configurations)
        self.check_stop(configurations)
        published = tuple(self.published(factors, configurations))
        self.check_smallest(configurations)
        self.check_slowest(configurations)
        self.check_criteria(configurations)
        seeds = self.seeds(configurations)
        self.check_warm_up(configurations)
        self.check_controls(configurations)
        if self.mistakes:
            raise DescriptionError(self.mistakes)
        stop, control, primary = self.raw.stop, self.raw.control, self.raw.primary
        return StudyDescription(
            name=self.raw.name,
            experiment=self.experiment.path,
            platform=self.raw.platform,
            backend=self.backend(),
            factors=factors,
            seeds=seeds,
            order_seed=self.raw.order_seed,
            attempts=self.raw.limits.attempts,
            baseline=baseline,
            figures=tuple(self.raw.figures),
            configurations=configurations,
            warm_up=None if self.raw.warm_up is None else str(self.raw.warm_up),
            stop=stop and Stop(stop.figure, stop.half_width, stop.min, stop.max, stop.step),
            control=control and ControlVariate(control.flows, control.largest.bytes),
            primary=primary and Primary(primary.figure, primary.margin),
            published=published,
            missing_controls=tuple(self.missing_controls),
            search=self.search,
            file=self.experiment,
        )

    @property
    def most_repetitions(self) -> int:
        """Runs of each combination, the most there may be."""
        if self.raw.stop is not None:
            return self.raw.stop.max
        return self.raw.repetitions or len(self.raw.seeds or (1,))

    def backend(self) -> Backend:
        if self.raw.backend is not None:
            return Backend(self.raw.backend)
        return Backend.TC if self.raw.platform == VIRTUAL else Backend.ENGINE

    def factors(self) -> Iterator[tuple[str, Levels]]:
        for name, levels in self.raw.factors.items():
            if isinstance(levels, dict):
                variants = cast("dict[str, dict[str, Any]]", levels).items()
                resolved = [(level, self.settings(("factors", name, level), given)) for level, given in variants]
            else:
                resolved = [(level_name(level), self.settings(("factors",), {name: level})) for level in levels]
            yield name, self.with_largest(name, tuple(resolved))
        if self.search and self.search.over not in self.raw.factors:
            yield self.search.over, self.with_largest(self.search.over, ())

    def with_largest(self, factor: str, levels: Levels) -> Levels:
        """The levels of a factor, of the one that is searched with the largest capacity: a search begins there."""
        if self.search is None or self.search.over != factor:
            return levels
        largest = Size(self.search.capacities[-1])
        if any(_size(level) == largest for level, _ in levels):
            return levels
        return (*levels, (str(largest), (setting_argument(factor, str(largest)),)))

    def queue_search(self) -> QueueSearch | None:
        """The rule of the search. Mistakes of its form are reported, and there is none."""
        raw = self.raw.search
        if raw is None:
            return None
        mistakes = dict(self.search_mistakes(raw))
        for key, message in mistakes.items():
            self.report(key, message)
        if mistakes:
            return None
        smallest, largest = raw.from_.bytes, raw.to.bytes
        capacities = (*range(smallest, largest, raw.resolution.bytes), largest)
        criteria = tuple(name for name in CRITERIA if name in raw.for_)
        return QueueSearch(raw.over, capacities, criteria, self.most_repetitions)

    def search_mistakes(self, raw: RawSearch) -> Iterator[tuple[KeyPath, str]]:
        if not _QUEUE.fullmatch(raw.over):
            example = "write the queue of a link to the island, such as links.sat.to_island.queue"
            yield ("search", "over"), f"{shown(raw.over)} cannot be searched; {example}"
        if raw.to <= raw.from_:
            yield ("search", "to"), f"{raw.to} is not more than from, {raw.from_}; write a larger capacity"
        elif (raw.to.bytes - raw.from_.bytes) / raw.resolution.bytes > MAX_LEVELS:
            yield ("search", "resolution"), f"{raw.resolution} is more than {MAX_LEVELS} capacities; write a larger one"
        if self.raw.design == SCREENING:
            yield ("design",), "a screening design has two levels of each factor; remove it or 'search'"
        if isinstance(self.raw.factors.get(raw.over), dict):
            yield ("factors", raw.over), "a factor that is searched has a list of values; write [100 kB, 200 kB]"
        else:
            levels = [level_name(level) for level in self.raw.factors.get(raw.over, [])]
            sizes = [_size(level) for level in levels]
            for index, size in enumerate(sizes):
                if size is not None and size in sizes[:index]:
                    text = f"{levels[index]} is the same capacity as {levels[sizes.index(size)]}; remove one of them"
                    yield ("factors", raw.over, index), text
        if self.raw.stop is not None:
            yield ("stop",), "'stop' and 'search' both choose runs; keep one of them"
        elif self.most_repetitions < LEAST_SAMPLES:
            yield ("search",), f"a search needs medians; write 'repetitions: {LEAST_SAMPLES}' or more"

    def check_smallest(self, configurations: Sequence[Configuration]) -> None:
        """Report mistakes of the smallest capacity in any configuration. The largest is a level."""
        if self.search is None:
            return
        setting = setting_argument(self.search.over, str(Size(self.search.capacities[0])))
        for configuration in configurations:
            smallest = self.load((*configuration.settings[len(self.common) :], setting))
            if isinstance(smallest, DescriptionError):
                for mistake in smallest.mistakes:
                    self.report(("search", "from"), mistake.message)

    def check_slowest(self, configurations: Sequence[Configuration]) -> None:
        """Refuse a search over another link than the slowest one, whose queue the criteria are of."""
        if self.search is None:
            return
        box = self.search.box
        for configuration in configurations:
            slowest = _slowest_link(configuration.network, configuration.experiment)
            if slowest and slowest.box != box:
                remedy = f"write links.{slowest.box}.to_island.queue"
                self.report(("search", "over"), f"{box!r} is not the slowest link to the island; {remedy}")

    def check_criteria(self, configurations: Sequence[Configuration]) -> None:
        """Refuse to search by uploads, and by the transfer of runs with none or several: it would always be met."""
        if self.search and any(each.experiment.flow_directions == UPLOADS_ONLY for each in configurations):
            self.report(
                ("search",), "the criteria are of the queue to the island, and all flows are uploads; remove it"
            )
            return
        transfers = [configuration.experiment.all_transfers for configuration in configurations]
        is_unclear = any([transfer.is_upload for transfer in each] != [False] for each in transfers)
        if self.search and "transfer" in self.search.criteria and is_unclear:
            text = "the criterion transfer needs runs with one transfer to the island"
            self.report(("search", "for"), f"{text}; write one, or leave transfer out of 'for'")

    def settings(self, key_path: KeyPath, given: Mapping[str, Any]) -> tuple[str, ...]:
        """Settings in the language of ``--set``, without those that a study must not have, which are reported."""
        for key in given:
            if key in _RESERVED_KEYS:
                self.report((*key_path, key), f"{key} is not a setting of a study; {_RESERVED_KEYS[key]}")
        return tuple(setting_argument(key, value) for key, value in given.items() if key not in _RESERVED_KEYS)

    def seeds(self, configurations: Sequence[Configuration]) -> tuple[int, ...]:
        seeds = self.raw.seeds or []
        if seeds and self.raw.repetitions is not None:
            self.report(("repetitions",), "'repetitions' and 'seeds' are both given; keep one of them")
        for index, seed in enumerate(seeds):
            if seed in seeds[:index]:
                self.report(("seeds", index), f"seed {seed} is given twice; remove one of them")
        if seeds or not configurations:
            return tuple(seeds)
        first, repetitions = configurations[0].experiment.seed, self.most_repetitions
        if first + repetitions - 1 > MAX_SEED:
            key: KeyPath = ("stop", "max") if self.raw.stop else ("repetitions",)
            fewer = "a smaller max" if self.raw.stop else "fewer repetitions, or 'seeds'"
            self.report(key, f"seeds from {first} on exceed {MAX_SEED}, the largest seed; write {fewer}")
        return tuple(range(first, first + repetitions))

    def check_design(self, factors: Mapping[str, Levels]) -> None:
        """Refuse a screening design without factors, or with a factor that has not two levels."""
        if self.raw.design != SCREENING:
            return
        if not factors:
            self.report(("design",), "a screening design needs factors; write 'factors', or leave 'design' out")
        for name, levels in factors.items():
            if len(levels) != 2:
                text = f"{counted(len(levels), 'level')}; a screening design takes two of each factor"
                self.report(("factors", name), text)

    def refuse_replaced_keys(self) -> None:
        """Refuse keys of two factors, and common settings that a factor replaces in all runs."""
        levels: dict[
            str, list[dict[KeyPath, KeyPath]]
        ] = {}  # by factor: the keys of each level, where they are written
        for name, given in self.raw.factors.items():
            levels[name] = [{_key_parts(name): ("factors", name)}]
            if isinstance(given, dict):
                variants = cast("dict[str, dict[str, Any]]", given).items()
                levels[name] = [
                    {_key_parts(key): ("factors", name, level, key) for key in keys} for level, keys in variants
                ]
        if self.search:
            levels.setdefault(self.search.over, [{_key_parts(self.search.over): ("search", "over")}])
        for key in self.raw.set:
            for name, of_factor in levels.items():
                replacing = f"factor {shown(name)}" if name in self.raw.factors else "'search'"
                if all(any(_contains(outer_key, _key_parts(key)) for outer_key in level) for level in of_factor):
                    self.report(("set", key), f"{replacing} replaces {key} in all runs; remove it here")
        keys_of = {
            name: {key: key_path for level in reversed(of_factor) for key, key_path in level.items()}
            for name, of_factor in levels.items()
        }
        for (first, keys), (second, others) in itertools.combinations(keys_of.items(), 2):
            for (key, key_path), other in itertools.product(others.items(), keys):
                if _contains(other, key) or _contains(key, other):
                    text = ".".join(map(str, key))
                    conflict = f"both set {text}"
                    if other != key:
                        conflict = f"overlap: one sets {text}, the other {'.'.join(map(str, other))}"
                    self.report(key_path, f"factors {shown(first)} and {shown(second)} {conflict}; keep one of them")

    def baseline(self, factors: Mapping[str, Levels]) -> tuple[tuple[str, str], ...]:
        if not self.raw.baseline:
            return tuple((name, levels[0][0]) for name, levels in factors.items())[:1]
        return tuple(self.levels(("baseline",), self.raw.baseline, factors).items())

    def levels(self, key_path: KeyPath, given: Mapping[str, Any], factors: Mapping[str, Levels]) -> dict[str, str]:
        """The names of levels by factor. Unknown ones are reported."""
        valid = {name: [level for level, _ in factor_levels] for name, factor_levels in factors.items()}
        names = {factor: level_name(level) for factor, level in given.items()}
        for factor, level in names.items():
            if factor not in valid:
                self.report((*key_path, factor), f"unknown factor {shown(factor)}; {suggest(factor, valid, 'factors')}")
            elif level not in valid[factor]:
                remedy = suggest(level, valid[factor], "levels")
                self.report((*key_path, factor), f"unknown level {shown(given[factor])}; {remedy}")
        return names

    def published(self, factors: Mapping[str, Levels], configurations: Sequence[Configuration]) -> Iterator[Published]:
        for index, raw in enumerate(self.raw.published):
            key_path: KeyPath = ("published", index)
            of, relative_to = (
                self.levels((*key_path, key), given, factors)
                for key, given in (("of", raw.of), ("relative_to", raw.relative_to))
            )
            if raw.relative_to and self.raw.design == SCREENING:
                text = "a screening design does not have the runs of both; remove 'relative_to' or 'design'"
                self.report((*key_path, "relative_to"), text)
            if not is_figure(raw.figure):
                self.report((*key_path, "figure"), f"unknown figure {shown(raw.figure)}; {suggest_figure(raw.figure)}")
                continue
            self.check_part((*key_path, "figure"), raw.figure, configurations)
            try:
                bound, value = parse_value(raw.value, raw.figure, is_ratio=bool(relative_to))
            except ValueError as error:
                self.report((*key_path, "value"), str(error))
            else:
                yield Published(raw.figure, bound, value, of, relative_to, raw.source)

    def check_figures(self, configurations: Sequence[Configuration]) -> None:
        for index, name in enumerate(self.raw.figures):
            self.check_figure(("figures", index), name, configurations)
        if self.raw.primary is not None:
            self.check_figure(("primary", "figure"), self.raw.primary.figure, configurations)

    def check_figure(self, key_path: KeyPath, name: str, configurations: Sequence[Configuration]) -> None:
        if not is_figure(name):
            self.report(key_path, f"unknown figure {shown(name)}; {suggest_figure(name)}")
        self.check_part(key_path, name, configurations)

    def check_part(self, key_path: KeyPath, figure: str, configurations: Sequence[Configuration]) -> None:
        """Refuse a figure that no configuration has: of a group, a transfer, a single transfer or a direction."""
        experiments = [configuration.experiment for configuration in configurations]
        names = list(dict.fromkeys(transfer.name for experiment in experiments for transfer in experiment.transfers))
        groups = list(dict.fromkeys(load.name for experiment in experiments for load in experiment.traffic.groups))
        general = general_figure(figure)
        if group := group_of_figure(figure):
            if experiments and group not in groups:
                self.report(key_path, f"unknown group {shown(group)}; {suggest(group, groups, 'groups of clients')}")
        elif is_to_world(figure):
            if experiments and not any(each.has_uploads for each in experiments):
                self.report(key_path, f"{shown(figure)} is of runs with uploads, and there are none; write {general!r}")
        elif general != figure:
            name = figure.removeprefix(f"{general} of ")
            if experiments and name not in names:
                self.report(key_path, f"unknown transfer {shown(name)}; {suggest(name, names, 'transfers')}")
        elif figure in FIGURES_BY_TRANSFER and names and all(len(each.all_transfers) != 1 for each in experiments):
            remedy = f"write {shown(f'{figure} of {names[0]}')}; transfers: {', '.join(names)}"
            self.report(key_path, f"{figure} is that of a single transfer; {remedy}")

    def check_stop(self, configurations: Sequence[Configuration]) -> None:
        stop = self.raw.stop
        if stop is None:
            return
        for key, given in (("repetitions", self.raw.repetitions), ("seeds", self.raw.seeds)):
            if given is not None:
                self.report((key,), f"both 'stop' and '{key}'; 'stop' has the number of repetitions, remove '{key}'")
        self.check_figure(("stop", "figure"), stop.figure, configurations)
        if stop.min > stop.max:
            self.report(("stop", "min"), f"min {stop.min} is more than max {stop.max}; write at most {stop.max}")

    def check_warm_up(self, configurations: Sequence[Configuration]) -> None:
        shortest, given = min((c.experiment.duration for c in configurations), default=None), self.raw.warm_up
        if isinstance(given, Duration) and shortest and windows_of(given.s) >= whole_windows(shortest.s):
            self.report(("warm_up",), f"{given} leaves less than 100 ms of the duration, {shortest}; write less")
        elif given == MSER_5 and any(each.experiment.flow_directions == UPLOADS_ONLY for each in configurations):
            self.report(("warm_up",), f"{given} is by the goodput of downloads, and there are none; write a duration")

    def check_controls(self, configurations: Sequence[Configuration]) -> None:
        """Refuse controls that no kernel has, and note those that this one does not have.

        The place is the study's setting, or where it names its experiment.
        """
        for configuration in configurations:
            for keys, text, is_unknown in missing_on_platform(configuration.experiment, self.raw.platform):
                for key in keys:
                    key_path, message = self.written_at(_key_parts(key), configuration.levels), f"{key}: {text}"
                    if is_unknown:
                        self.report(key_path, message)
                    else:
                        self.missing_controls[self.document.mistake(key_path, message)] = None

    def written_at(self, key: KeyPath, levels: tuple[str, ...]) -> KeyPath:
        """Where a study with these levels sets a key of the experiment; where it names the experiment, if nowhere."""
        for (name, given), level in zip(self.raw.factors.items(), levels, strict=False):  # a search has one more
            if isinstance(given, dict):
                for setting in cast("dict[str, dict[str, Any]]", given)[level]:
                    if _contains(_key_parts(setting), key):
                        return ("factors", name, level, setting)
            elif _contains(_key_parts(name), key):
                return ("factors", name, [*map(level_name, given)].index(level))
        return next((("set", name) for name in self.raw.set if _contains(_key_parts(name), key)), ("experiment",))

    def configurations(self, factors: Mapping[str, Levels]) -> Iterator[Configuration]:
        """Load every combination. A mistake is reported once: at the level that causes it alone, if there is one."""
        causes: dict[str, KeyPath] | None = None
        for levels in self.combinations(factors):
            settings = tuple(setting for _, level_settings in levels for setting in level_settings)
            names = tuple(name for name, _ in levels)
            loaded = self.load(settings)
            if isinstance(loaded, tuple):
                yield Configuration(names, (*self.common, *settings), *loaded)
                continue
            causes = self.causes(factors) if causes is None else causes
            for mistake in loaded.mistakes:
                if mistake.line or not mistake.message.startswith("--set "):  # of a file
                    self.mistakes += [mistake] if mistake not in self.mistakes else []
                elif mistake.message in causes:
                    self.report(causes[mistake.message], mistake.message)
                else:
                    self.report(("factors",), f"{', '.join(names)}: {mistake.message}")

    def combinations(self, factors: Mapping[str, Levels]) -> Iterable[Levels]:
        """All combinations of levels, or those of the screening design.

        Of too many, which are refused: the first one, and those with one other level.
        """
        is_screening = self.raw.design == SCREENING and all(len(levels) == 2 for levels in factors.values())
        design = resolution_iv_design(len(factors)) if is_screening else []
        runs = self.most_repetitions * (len(design) or math.prod(map(len, factors.values())))
        if runs <= MOST_POINTS:
            screened = (tuple(map(getitem, factors.values(), row)) for row in design)
            return screened if is_screening else itertools.product(*factors.values())
        self.report(("factors",), f"{runs} runs are too many; write at most {MOST_POINTS}")
        first = tuple(levels[0] for levels in factors.values())
        others = enumerate(factors.values())
        return [(*first[:index], level, *first[index + 1 :]) for index, levels in others for level in levels]

    def causes(self, factors: Mapping[str, Levels]) -> dict[str, KeyPath]:
        """The key paths of the mistakes that the experiment, the settings of all runs or a single level cause."""
        single_levels: list[tuple[tuple[str, ...], KeyPath]] = [((), ("set",) if self.common else ("experiment",))]
        for factor, levels in factors.items():
            given = self.raw.factors.get(factor, [])
            has_names = isinstance(given, dict)
            single_levels += [
                (settings, ("factors", factor, level if has_names else index) if index < len(given) else _LARGEST)
                for index, (level, settings) in enumerate(levels)
            ]
        causes: dict[str, KeyPath] = {}
        for settings, key_path in single_levels:
            loaded = self.load(settings)
            if isinstance(loaded, DescriptionError):
                causes = {mistake.message: key_path for mistake in loaded.mistakes} | causes
        return causes

    def load(self, settings: tuple[str, ...]) -> tuple[Network, Experiment] | DescriptionError:
        """Load the experiment with settings besides the common ones, or return its mistakes; once for each."""
        if settings not in self.loaded:
            file = replace(self.experiment, settings=(*self.common, *settings))
            try:
                self.loaded[settings] = file.network_and_experiment()
            except DescriptionError as error:
                self.loaded[settings] = error
            except PlanError as error:  # a setting that cannot be read
                self.loaded[settings] = DescriptionError([Diagnostic(str(self.experiment.path), 0, str(error))])
        return self.loaded[settings]

    def report(self, key_path: KeyPath, message: str) -> None:
        mistake = self.document.mistake(key_path, message)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)
