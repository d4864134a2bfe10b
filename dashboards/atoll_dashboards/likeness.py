# SPDX-License-Identifier: Apache-2.0
"""In what runs are alike and in what not: laboratory, place, program, chains, capacities, and what they were asked.

Pure; reads manifests. Whoever compares figures has to know first what besides the one setting was different.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from atoll.model.codec import from_json, to_json
from atoll.model.experiment import Chain, Experiment, LossTrace, Trace
from atoll.model.network import Network, PortRef
from atoll.model.placement import Placement
from atoll.model.units import Duration, Rate, Size
from atoll_dashboards import provenance
from atoll_dashboards.text import NOT_MEASURED

Rows = tuple[tuple[str, tuple[str, ...]], ...]
"""A name, and what stands under it for each run."""

_NAMES = ("box", "name", "t")  # the field by which a description calls the parts of a list
_WITHOUT_MEANING = (
    "started",
    "outcome",
    "seed",
    "host",
    "plan (SHA-256)",
    "format",
)  # of the origin: or told elsewhere
_TOLD_ABOVE = ("name", "seed", "chain", "branches")  # keys of an experiment that are among what runs are
_MOST_DETAILS = 12  # of laboratories that differ in more, the parts are counted
_MOST_GROUPS = 3  # of clients with equally many channels


@dataclass(frozen=True, slots=True)
class Likeness:
    """What is said of several runs before their figures."""

    origins: Rows  # what each run is: experiment, laboratory, place, seed, chains, capacities, program
    settings: Rows  # keys of the experiment, as --set calls them, and of the laboratory that say different things
    asked: tuple[tuple[str, str], ...]  # what all of them were asked, in words

    @property
    def alike(self) -> tuple[tuple[str, str], ...]:
        """What holds for all of them."""
        return (*((name, texts[0]) for name, texts in self.origins if len(set(texts)) == 1), *self.asked)

    @property
    def unlike(self) -> Rows:
        """What they are not alike in, but for settings."""
        return tuple(row for row in self.origins if differ(row))


def likeness(manifests: Sequence[Mapping[str, Any]]) -> Likeness:
    """Compare runs by their manifests. Raises KeyError for one of a run that did not come as far as a laboratory."""
    experiments = [from_json(Experiment, each["experiment"]) for each in manifests]
    networks = [from_json(Network, each["network"]) for each in manifests]
    placements = [_placement(each) for each in manifests]
    origins = [
        {**_what(experiment, network, placement), **_origin(manifest)}
        for experiment, network, placement, manifest in zip(experiments, networks, placements, manifests, strict=True)
    ]
    return Likeness(
        origins=_rows(origins),
        settings=(
            *_condensed(tuple(filter(differ, _rows([_settings(each) for each in experiments])))),
            *_laboratories(networks),
            *_dealt_to_others(placements),
        ),
        asked=_asked_alike(experiments),
    )


def differ(row: tuple[str, tuple[str, ...]]) -> bool:
    """Whether a row says different things of runs."""
    return len(set(row[1])) > 1


def grouped(texts: Sequence[str]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Every text once, with the runs (counted from 0) of which it holds, in the order of the first of them."""
    found: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        found.setdefault(text, []).append(place)
    return tuple((tuple(places), text) for text, places in found.items())


def _rows(described: Sequence[Mapping[str, str]]) -> Rows:
    names = dict.fromkeys(name for each in described for name in each)
    return tuple((name, tuple(each.get(name, NOT_MEASURED) for each in described)) for name in names)


def _what(experiment: Experiment, network: Network, placement: tuple[Placement, ...]) -> dict[str, str]:
    chains = {"chain": experiment.chain, **{f"chain {each.name}": each for each in experiment.branches}}
    return {
        "experiment": experiment.name,
        "lab": f"{network.name}, SHA-256 {_digest(network)}",
        "lab file": Path(network.file).name,
        "seed": str(experiment.seed),
        **{name: _hops(chain) for name, chain in chains.items()},
        **({"channels": _dealt(placement)} if placement else {}),
    }


def _origin(manifest: Mapping[str, Any]) -> dict[str, str]:
    told = {name: text for name, text in provenance.origin(manifest) if name not in _WITHOUT_MEANING}
    return told | ({"host kernel": str(manifest["host"]["kernel"])} if manifest.get("host") else {})


def _digest(network: Network) -> str:
    """What tells laboratories apart, wherever their file lies and whatever wrote the manifest."""
    parts = {name: part for name, part in to_json(network).items() if name != "file"}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def _hops(chain: Chain) -> str:
    return (" - ".join(chain.hops) or "empty") + ("" if str(chain.carries) == "the rest" else f" for {chain.carries}")


def _placement(manifest: Mapping[str, Any]) -> tuple[Placement, ...]:
    dealt = manifest.get("plan", {}).get("placement", ())
    return tuple(from_json(Placement, each) for each in dealt)


def _dealt(placement: tuple[Placement, ...]) -> str:
    """How channels were dealt to clients: ``20 to 6 clients: 2 have 4, 4 have 3``."""
    total = sum(each.channels for each in placement)
    ordered = sorted((each.channels, each.capacity) for each in placement)[::-1]
    groups = [(*alike, len(list(some))) for alike, some in groupby(ordered)]
    capacities = sorted({each.capacity for each in placement})
    if len(groups) > _MOST_GROUPS:
        words = f"{ordered[-1][0]} to {ordered[0][0]} each"
        words += f", capacities {capacities[0]:g} to {capacities[-1]:g}" if len(capacities) > 1 else ""
    else:
        words = ", ".join(
            f"{clients} have {channels}" + (f" (capacity {capacity:g})" if capacities != [1.0] else "")
            for channels, capacity, clients in groups
        )
    return f"{total} to {len(placement)} clients: {words}"


def _dealt_to_others(placements: Sequence[tuple[Placement, ...]]) -> Rows:
    """The clients of which some have more channels in one run than in another, where the numbers alone are alike."""
    if len({_dealt(each) for each in placements}) != 1:
        return ()
    rows = _rows([{f"channels of {each.host}": str(each.channels) for each in one} for one in placements])
    unlike = tuple(filter(differ, rows))
    return unlike if len(unlike) <= _MOST_DETAILS else (_row("channels of clients", unlike),)


def _asked_alike(experiments: Sequence[Experiment]) -> tuple[tuple[str, str], ...]:
    rows = _rows([dict(provenance.settings(each)) for each in experiments])
    return tuple((name, texts[0]) for name, texts in rows if len(set(texts)) == 1 and not name.startswith("chain"))


def _settings(experiment: Experiment) -> dict[str, str]:
    return {key: text for key, text in _leaves(experiment, "") if key.partition(".")[0] not in _TOLD_ABOVE}


def _condensed(rows: Rows) -> Rows:
    """Settings with many members that differ, such as the latencies of all servers, in a row of how many there are."""
    found: dict[str, Rows] = {}
    for name, texts in rows:
        key = name.partition(".")[0]
        found[key] = (*found.get(key, ()), (name, texts))
    return tuple(
        row for key, some in found.items() for row in (some if len(some) <= _MOST_DETAILS else [_row(key, some)])
    )


def _row(key: str, members: Rows) -> tuple[str, tuple[str, ...]]:
    columns = list(zip(*(texts for _, texts in members), strict=True))
    texts = [
        _number(
            sum(text != NOT_MEASURED for text in column),
            sum(NOT_MEASURED not in pair and pair[0] != pair[1] for pair in zip(column, columns[0], strict=True)),
        )
        for column in columns
    ]
    return f"{key} (of {len(members)})", tuple(texts)


def _number(members: int, unlike: int) -> str:
    return f"{members}" + (f" ({unlike} unlike #1)" if unlike else "")


def _laboratories(networks: Sequence[Network]) -> Rows:
    """In what laboratories differ: each detail if there are few, else how many of each kind there are."""
    rows = _rows([dict(_leaves(each, "lab")) for each in networks])
    details = tuple(row for row in rows if differ(row) and row[0] != "lab.name")
    if len(details) <= _MOST_DETAILS:
        return details
    parts = [field.name for field in fields(Network) if field.compare and field.name != "name"]
    counted = [{f"lab.{part}": _counted(getattr(each, part), getattr(networks[0], part)) for part in parts}
               for each in networks]  # fmt: skip
    return tuple(filter(differ, _rows(counted)))


def _counted(part: Any, first: Any) -> str:
    """``14``, or with how many of the same name are otherwise in the first laboratory: ``14 (3 unlike #1)``."""
    if not isinstance(part, tuple):
        return str(part)
    members, known = _members(cast("tuple[Any, ...]", part)), _members(first)
    unlike = sum(name in known and known[name] != each for name, each in members.items())
    return _number(len(members), unlike)


def _members(part: tuple[Any, ...]) -> dict[str, Any]:
    return {_name(each, place): each for place, each in enumerate(part)}


def _leaves(thing: Any, key: str) -> Iterator[tuple[str, str]]:
    """What a resolved description holds, each under the key by which the description calls it."""
    if isinstance(thing, Chain):
        yield key, _hops(thing)
    elif isinstance(thing, (Trace, LossTrace)):
        yield key, thing.file
    elif is_dataclass(thing) and not isinstance(thing, (Rate, Duration, Size, PortRef)):
        for field in fields(thing):
            found = getattr(thing, field.name)
            if field.name == "schedule":  # its first version is told by the experiment's own chain and latency
                field_name, found = "changes", found[1:]
            else:
                field_name = field.name
            if field.compare:  # paths of files are no part of what was asked
                yield from _leaves(found, f"{key}.{field_name}".lstrip("."))
    elif isinstance(thing, tuple):
        for place, part in enumerate(cast("tuple[Any, ...]", thing)):
            if isinstance(part, tuple):  # (key, what it says)
                yield from _leaves(part[1], f"{key}.{part[0]}")
            else:
                yield from _leaves(part, f"{key}.{_name(part, place)}")
    else:
        yield key, "none" if thing is None else str(thing)


def _name(part: Any, place: int) -> str:
    return str(next((getattr(part, name) for name in _NAMES if hasattr(part, name)), place + 1))
