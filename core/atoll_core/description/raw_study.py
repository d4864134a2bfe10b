# SPDX-License-Identifier: Apache-2.0
"""study.yaml as it is written. ``atoll_studies.study`` makes a Study of it."""

import json
from typing import Annotated, Any, Literal, cast

from pydantic import Field, PlainValidator, WithJsonSchema

from atoll_core.description.raw_experiment import LONGEST_RUN
from atoll_core.description.raw_link import Queue
from atoll_core.description.raw_types import Between, Name, Raw, Share, refusal
from atoll_core.errors import shown
from atoll_core.units import Duration, Size

MAX_LEVELS = 1000
MAX_REPETITIONS = 1000
MAX_SEED = 2**63 - 1
DEFAULT_ATTEMPTS = 3
"""Attempts at a run that fails, unless a study says otherwise."""


def level_name(value: Any) -> str:
    """The name of a level that is a value of a setting: the text as it is written, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_levels(value: object) -> list[Any] | dict[str, dict[str, Any]]:
    if isinstance(value, dict):
        return _read_variants(cast("dict[str, Any]", value))
    if not isinstance(value, list) or not value:
        raise refusal(value, "is not a list of levels; write a list of values, such as [cubic, bbr], or named variants")
    levels = cast("list[Any]", value)
    if len(levels) > MAX_LEVELS:
        msg = f"{len(levels)} levels are too many; write at most {MAX_LEVELS}"
        raise ValueError(msg)
    names = [level_name(level) for level in levels]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        msg = f"level {shown(repeated)} is given twice; remove one of them"
        raise ValueError(msg)
    return levels


def _read_variants(variants: dict[str, Any]) -> dict[str, dict[str, Any]]:
    for name, settings in variants.items():
        if not isinstance(settings, dict):
            msg = f"variant {shown(name)} is {shown(settings)}; write its settings, such as {{traffic.channels: 20}}"
            raise ValueError(msg)  # noqa: TRY004 - pydantic reports no TypeError
    if not variants:
        msg = "the mapping of levels is empty; write a list of values or named variants"
        raise ValueError(msg)
    return variants


Levels = Annotated[
    Any,
    PlainValidator(_read_levels),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "minItems": 1, "maxItems": MAX_LEVELS, "uniqueItems": True},
                {"type": "object", "minProperties": 1, "additionalProperties": {"type": "object"}},
            ]
        }
    ),
]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]


class RawStudyLimits(Raw):
    """Bounds of the work of a study."""

    attempts: int = Field(
        default=DEFAULT_ATTEMPTS,
        ge=1,
        le=100,
        description=f"Number of attempts at a run that fails or, in real time, is invalid; default {DEFAULT_ATTEMPTS}.",
        examples=[3],
    )


MSER_5 = "mser-5"
SCREENING = "screening"
_WARM_UP = Between(Duration, "100 ms", LONGEST_RUN)


def _read_warm_up(value: object) -> Duration | str:
    return MSER_5 if value == MSER_5 else cast("Duration", _WARM_UP.read(value))


WarmUp = Annotated[
    Any,
    PlainValidator(_read_warm_up),
    WithJsonSchema(
        {"anyOf": [{"const": MSER_5}, {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(ns|us|ms|s|min|h)\s*$"}]}
    ),
]


class RawStop(Raw):
    """When a combination has repetitions enough, instead of a fixed number of them."""

    figure: str = Field(examples=["goodput"])
    """The figure whose median is to be known."""
    half_width: Annotated[float, Share("0.1 %")] = Field(examples=["5 %"])
    """Half the width of the median's interval, as a share of the median, at which no more are made."""
    min: int = Field(default=6, ge=6, le=MAX_REPETITIONS, examples=[6])
    """Repetitions at least; default 6."""
    max: int = Field(ge=6, le=MAX_REPETITIONS, examples=[30])
    """Repetitions at most."""
    step: int = Field(default=2, ge=1, le=MAX_REPETITIONS, examples=[2])
    """Repetitions from one look to the next; default 2."""


class RawControlVariate(Raw):
    """The control variate of means: the mean size of the first flows of each channel."""

    flows: int = Field(ge=1, le=10_000, examples=[20])
    """The number of first flows of each channel."""
    largest: Annotated[Size, Between(Size, "1 B", "1000000 GB")] = Field(default=Size(10**6), examples=["1 MB"])
    """Larger flows count as this large; default 1 MB."""


class RawSearch(Raw):
    """A search for the capacity of a queue, instead of a grid of capacities."""

    over: str = Field(examples=["links.sat.to_island.queue"])
    """The setting that is searched: the queue of the slowest link to the island."""
    from_: Queue = Field(alias="from", examples=["30 kB"])
    """The smallest capacity."""
    to: Queue = Field(examples=["800 kB"])
    """The largest capacity."""
    resolution: Queue = Field(examples=["10 kB"])
    """The step from one capacity to the next."""
    for_: list[Literal["transfer", "oscillation", "utilisation", "standing queue", "voice"]] = Field(
        default=["transfer", "oscillation", "utilisation", "standing queue", "voice"],
        alias="for",
        min_length=1,
        examples=["[transfer, oscillation, utilisation]"],
    )
    """The criteria of a good queue (docs/regimes.md); default all."""


class RawPrimary(Raw):
    """The figure that a study is made for, named before its runs."""

    figure: str = Field(examples=["goodput"])
    """The figure, by its name in comparisons."""
    margin: Annotated[float, Share("0.1 %")] | None = Field(default=None, examples=["5 %"])
    """Deviation from the baseline, as a share of it, below which configurations are equivalent; default: equivalence is
    not tested."""


def _read_published(given: object) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise refusal(given, "is no published value; write 41 s, or above 120 s")
    return given if isinstance(given, str) else repr(given)


PublishedValue = Annotated[
    str, PlainValidator(_read_published), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})
]


class RawPublished(Raw):
    """A published figure of a set-up, to be compared with its runs."""

    figure: str = Field(examples=["transfer time"])
    """The figure, by its name in comparisons."""
    of: dict[str, Any] = Field(default={}, examples=["{links.sat.to_island.queue: 100 kB}"])
    """Levels of the combinations that it is of, by factor; default all."""
    relative_to: dict[str, Any] = Field(default={}, examples=["{links.sat.to_island.queue: 200 kB}"])
    """Levels with which the figure is divided by that of the combination with these, seed by seed."""
    value: PublishedValue = Field(examples=["41 s", "above 120 s", "33 %"])
    """The published value with the figure's unit; after above or below a bound of it."""
    source: str = Field(examples=["the laboratory's paper of 2017, figure 3"])
    """Where it is published."""


class RawStudy(Raw):
    """A study: an experiment, factors whose levels are combined, and repetitions with other seeds."""

    name: Name = Field(examples=["queues"])
    """Name of the study; its directory is runs/studies/NAME."""
    experiment: str = Field(examples=["../geo.yaml"])
    """Path of the experiment, relative to this file."""
    platform: Literal["virtual", "mininet", "hardware"] = Field(default="virtual", examples=["virtual"])
    """Platform of the runs; default virtual."""
    backend: Literal["engine", "tc"] | None = Field(default=None, examples=["engine"])
    """Link emulator; default tc in virtual time, else engine."""
    set: dict[str, Any] = Field(default={}, examples=["{duration: 30 s, traffic.channels: 40}"])
    """Settings of all runs, by their keys as in --set."""
    factors: dict[str, Levels] = Field(
        default={}, examples=["{tcp.congestion_control: [cubic, bbr], load: {light: {traffic.channels: 5}}}"]
    )
    """Settings that differ between runs: each factor is a setting with a list of values, or has named variants with
    their settings. All levels are combined with all levels of the other factors."""
    design: Literal["full", "screening"] = Field(default="full", examples=["screening"])
    """full (default): all levels are combined with all. screening: of factors with two levels each, the combinations of
    a design of resolution IV, about twice as many as factors."""
    repetitions: int | None = Field(default=None, ge=1, le=MAX_REPETITIONS, examples=[6])
    """Runs of each combination, with seeds from that of the experiment on; default 1."""
    seeds: list[Seed] | None = Field(
        default=None, min_length=1, max_length=MAX_REPETITIONS, examples=["[1, 2, 3, 4, 5, 6]"]
    )
    """Seeds of the runs of each combination, instead of repetitions."""
    order_seed: Seed = Field(default=1, examples=[1])
    """Seed of the order of the runs within each repetition; default 1."""
    baseline: dict[str, Any] = Field(default={}, examples=["{tcp.congestion_control: cubic}"])
    """Levels that other levels are compared with, by factor; default the first level of the first factor."""
    figures: list[str] = Field(default=[], examples=["[goodput, transfer time]"])
    """Figures that are shown; default the usual ones."""
    warm_up: WarmUp | None = Field(default=None, examples=["mser-5", "10 s"])
    """The beginning of each run that time averages leave out: a duration, or mser-5; default none."""
    stop: RawStop | None = Field(default=None, examples=["{figure: goodput, half_width: 5 %, max: 30}"])
    """Repetitions until the median of a figure is known, instead of repetitions."""
    search: RawSearch | None = Field(
        default=None, examples=["{over: links.sat.to_island.queue, from: 30 kB, to: 800 kB, resolution: 10 kB}"]
    )
    """Find the capacity of a queue that meets criteria, for each combination of the factors."""
    control: RawControlVariate | None = Field(default=None, examples=["{flows: 20}"])
    """Correct means by the sizes of the first flows of each channel; default no."""
    primary: RawPrimary | None = Field(default=None, examples=["{figure: goodput, margin: 5 %}"])
    """The figure that conclusions are to rest on; default: all shown figures alike."""
    published: list[RawPublished] = Field(
        default=[], examples=["[{figure: transfer time, value: 41 s, source: the paper of 2017}]"]
    )
    """Published figures that the runs are compared with."""
    limits: RawStudyLimits = Field(default=RawStudyLimits(), examples=["{attempts: 3}"])
    """Bounds of the work."""
