# SPDX-License-Identifier: Apache-2.0
"""Every setting of every description is told exactly once: among those that are alike, or among those that are not."""

from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from atoll_core.codec import to_json
from atoll_core.description.loader import load_experiment
from atoll_core.experiment.experiment import Experiment, LinkTrace, LossTrace
from atoll_core.experiment.flow_sizes import FlowSizes
from atoll_core.experiment.setting_texts import settings_table
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import Network
from atoll_core.units import Duration, Rate, Size
from atoll_studies.results.similarity import Likeness, likeness

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "examples").glob("*.yaml"))
IN_THE_ORIGINS = ("lab", "seed", "chain")


@cache
def shipped(name: str) -> tuple[Network, Experiment]:
    return load_experiment(ROOT / "examples" / name)


def manifest(network: Network, experiment: Experiment) -> dict[str, Any]:
    return {"network": to_json(network), "experiment": to_json(experiment)}


def places(thing: Any) -> list[tuple[Any, ...]]:
    """Where something stands in a description that can be another: paths of fields and numbers.

    What files hold is left out: it reads alike when it differs (tests/unit/studies/test_settings_table.py). So are
    kinds of boxes, of which descriptions have only the names.
    """
    if isinstance(thing, (LinkTrace, LossTrace, FlowSizes, BoxKind)):
        return []
    if isinstance(thing, (Rate, Duration, Size)) or type(thing) in (int, float, bool, str):
        return [()]
    if isinstance(thing, tuple):
        parts = list(enumerate(cast("tuple[Any, ...]", thing)))
    elif is_dataclass(thing):
        parts = [(each.name, getattr(thing, each.name)) for each in fields(thing) if each.compare]
    else:
        return []
    return [(key, *rest) for key, part in parts for rest in places(part)]


def otherwise(thing: Any, place: tuple[Any, ...]) -> Any:
    """A copy in which what stands there is something else."""
    if place:
        key, *rest = place
        if isinstance(thing, tuple):
            parts = cast("tuple[Any, ...]", thing)
            return (*parts[:key], otherwise(parts[key], tuple(rest)), *parts[key + 1 :])
        return replace(thing, **{key: otherwise(getattr(thing, key), tuple(rest))})
    if isinstance(thing, (Rate, Duration, Size)):
        return type(thing)(thing.base + 1)
    if isinstance(thing, bool):
        return not thing
    return f"{thing}x" if isinstance(thing, str) else thing + 1


def keys(described: Any, key: str = "") -> list[str]:
    return [each.key for each in settings_table(key, [described])]


def told_once(key: str, answer: list[str]) -> bool:
    """Whether exactly one of the rows is of this setting: its own, or that of the thing that it is a part of.

    An empty list beside ones that are not is told by their parts, which it lacks.
    """
    parts = key.split(".")
    found = sum(answer.count(".".join(parts[:length])) for length in range(1, len(parts) + 1))
    return found == 1 or (found == 0 and any(each.startswith(f"{key}.") for each in answer))


def holds(found: Likeness, networks: list[Network], experiments: list[Experiment]) -> None:
    alike = [each.key for each in found.described if each.alike]
    unlike = [each.key for each in found.described if not each.alike]
    origins = [name for name, _ in found.origins]
    assert len(set(alike + unlike)) == len(alike + unlike)
    assert {*IN_THE_ORIGINS, "experiment"} <= set(origins)
    for experiment in experiments:
        for key in keys(experiment):
            if key.split(".")[0] not in (*IN_THE_ORIGINS, "name", "branches"):
                assert told_once(key, alike + unlike), key
    for network in networks:
        of_one_lab = all(each == networks[0] for each in networks)  # then the origin `lab` tells of all of it
        answer = ["lab"] if of_one_lab else alike + unlike
        assert all(key == "lab.name" or told_once(key, answer) for key in keys(network, "lab"))


@given(st.lists(st.sampled_from(SHIPPED), min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
@example(SHIPPED)
def test_shipped_experiments_are_told_whole(paths: list[Path]) -> None:
    """However different they are: other laboratories, no transfer and one, changes and none."""
    described = [shipped(path.name) for path in paths]
    found = likeness([manifest(*each) for each in described])
    holds(found, [network for network, _ in described], [experiment for _, experiment in described])


@given(st.sampled_from(SHIPPED), st.integers(0, 2**32), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
@example(ROOT / "examples/switching.yaml", 277817219, 3)  # the names of chains, which no text has
@example(ROOT / "examples/switching.yaml", 145476, 2)
def test_what_was_changed_is_unlike_and_nothing_else(path: Path, seed: int, changes: int) -> None:
    """In a setting that differs in part, the rest of it is told as alike."""
    network, experiment = shipped(path.name)
    of_network, of_experiment = places(network), places(experiment)
    random, changed, moved = Random(seed), (network, experiment), set[str]()
    for _ in range(changes):
        of, which = random.choice([(of_network, 0), (of_experiment, 1)])
        place = random.choice(of)
        moved.add(".".join(["lab"] * (which == 0) + ["changes" if part == "schedule" else str(part) for part in place]))
        changed = tuple(otherwise(each, place) if number == which else each for number, each in enumerate(changed))
    other_network, other = cast("tuple[Network, Experiment]", changed)
    found = likeness([manifest(network, experiment), manifest(other_network, other)])
    holds(found, [network, other_network], [experiment, other])
    was, then = texts(network, experiment), texts(other_network, other)
    for each in found.described:
        below = {key for key in (*was, *then) if f"{key}.".startswith(f"{each.key}.")}
        reads_alike = all(was.get(key) == then.get(key) for key in below)
        # A thing told as a whole, such as a chain, holds more than its text says: a digest then tells two apart.
        digests = all(", SHA-256 " in text for text in each.texts) and any(key.startswith(each.key) for key in moved)
        assert each.alike == (reads_alike and not digests), each.key


def texts(network: Network, experiment: Experiment) -> dict[str, str]:
    """Every setting of one description."""
    answer = (*settings_table("lab", [network]), *settings_table("", [experiment]))
    return {each.key: each.texts[0] for each in answer}
