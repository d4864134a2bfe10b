# SPDX-License-Identifier: Apache-2.0
"""Settings of descriptions as texts, under the keys of their files; those of several descriptions compared one by one.

Pure. Every setting comes out exactly once. Where descriptions hold different kinds of a thing (a transfer or none, two
models of loss), the thing is one setting, because its parts have no counterparts.
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, cast, get_args, get_type_hints

from atoll_core.codec import to_json
from atoll_core.description.raw_types import Share
from atoll_core.experiment.experiment import (
    Bernoulli,
    BitError,
    BoxConfiguration,
    Chain,
    Codel,
    Experiment,
    Link,
    LinkTrace,
    LossTrace,
    Red,
)
from atoll_core.experiment.flow_sizes import FlowSizes
from atoll_core.experiment.traffic import SizesCount, Traffic, UdpTraffic
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import ChainBox, DelayBox, Host, LatencyClass, Network, Switch, Tap, Trunk
from atoll_core.lab.port_ref import PortRef
from atoll_core.units import Duration, Rate, Size

UNSET = "none"
"""Text of a setting that a description leaves out and that has no value then."""

NO_COUNTERPART = "\N{EN DASH}"
"""Text of a part that only other descriptions have."""

_NAMES: dict[type[Any], tuple[str, ...]] = {
    Link: ("box",),
    Trunk: ("a", "b"),
    BoxConfiguration: ("box",),
    **dict.fromkeys((Switch, Host, ChainBox, DelayBox, LatencyClass, Tap, Chain), ("name",)),
}  # the fields by which the parts of a list are called; in keys, so that they are no settings themselves
_SHARES = frozenset(
    {"good_to_bad", "bad_to_good", "loss_good", "loss_bad", "correlation", "probability"}
    | {"stalled_share", "lateness_of_rtt", "failed_flows"}
)
_KEYS = {"think": "think_time", "schedule": "changes", "udp_rate": "udp.rate"}  # in descriptions, where they differ
_KINDS: dict[type[Any], str] = {Codel: "codel", Red: "red"}  # keys between aqm and its parts
_DIGITS = 8  # of a SHA-256


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of several descriptions. Texts are equal if and only if the values are."""

    key: str  # ``links.sat.to_island.rate``, as --set calls it
    texts: tuple[str, ...]  # a description each

    @property
    def alike(self) -> bool:
        """Whether the setting is equal in all descriptions."""
        return len(set(self.texts)) == 1


@dataclass(frozen=True, slots=True)
class _FlowSizes:
    """The distribution that ``flow_sizes`` of a description means."""

    said: str
    sizes: FlowSizes | None


@dataclass(frozen=True, slots=True)
class _Share:
    """A probability, which descriptions write as per cent."""

    of_one: float


@dataclass(frozen=True, slots=True)
class _Absent:
    """A part that only other descriptions have."""


_ABSENT = _Absent()
_WHOLE = (
    *(Rate, Duration, Size, PortRef, BoxKind, Chain, LinkTrace, LossTrace, Bernoulli, BitError),
    *(_FlowSizes, _Share, _Absent),
)


def settings_table(key: str, things: Sequence[Any]) -> Iterator[Setting]:
    """Return the settings of values of the model under ``key``; ``""`` for whole descriptions."""
    kinds = {cast("type[Any]", type(thing)) for thing in things}
    parts = [_parts(thing) for thing in things] if len(kinds) == 1 else [None]
    known = [each for each in parts if each is not None]
    names = dict.fromkeys(name for each in known for name in each)
    if len(known) < len(things) or not names:
        yield Setting(key, _told(things))
        return
    kind = _KINDS.get(kinds.pop(), "")
    for name in names:
        below = ".".join(filter(None, (key, kind, name)))
        yield from settings_table(below, [each.get(name, _ABSENT) for each in known])


def with_units(experiment: Experiment, network: Network) -> Experiment:
    """Return the experiment with quantities and shares in the settings of boxes, which are recorded as numbers.

    The kind of each box declares which they are. Settings that it does not have, as in runs of other versions, stay.
    """
    boxes = (
        replace(each, settings=tuple(_typed(network.box(each.box).kind, key, value) for key, value in each.settings))
        for each in experiment.boxes
    )
    return replace(experiment, boxes=tuple(boxes))


def _typed(kind: BoxKind, key: str, value: Any) -> tuple[str, Any]:
    declared = get_type_hints(kind.settings(), include_extras=True).get(key) if kind.settings else None
    return key, value if value is None else _type_of(declared)(value)


def _type_of(hint: Any) -> Callable[[Any], Any]:
    """The quantity in a type such as ``Annotated[Duration, ...] | None``, or what a share is here; else the same."""
    if hint in (Rate, Duration, Size):
        return hint
    found = (_type_of(part) for part in get_args(hint))
    return next((each for each in found if each is not _same), _Share if isinstance(hint, Share) else _same)


def _same(value: Any) -> Any:
    return value


def settings_tree(experiment: Experiment, network: Network) -> dict[str, Any]:
    """Return the settings of an experiment as texts, in the shape of experiment.yaml, without those that are unset.

    ``{"links": {"sat": {"to_island": {"rate": "16 Mbit/s"}}}}``. Each of ``changes`` has what differs from the version
    before.
    """
    tree = _tree(replace(with_units(experiment, network), schedule=()))
    versions = [_tree(version) for version in experiment.versions]
    changes = [_difference(before, after) for before, after in pairwise(versions)]
    return {**tree, "changes": changes} if changes else tree


def _tree(thing: Any) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for setting in settings_table("", [thing]):
        *above, last = setting.key.split(".")
        if setting.texts[0] != UNSET:
            branch = tree
            for key in above:
                branch = branch.setdefault(key, {})
            branch[last] = setting.texts[0]
    return tree


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What a tree has that another one before it has not; what that alone has is unset."""
    found: dict[str, Any] = {}
    for key in dict.fromkeys((*after, *before)):
        was, now = before.get(key, UNSET), after.get(key, UNSET)
        if isinstance(was, dict) and isinstance(now, dict):
            now = _difference(cast("dict[str, Any]", was), cast("dict[str, Any]", now))
            found |= {key: now} if now else {}
        elif was != now:
            found[key] = now
    return found


def short_hash(data: Any) -> str:
    """Return the beginning of the SHA-256 of JSON, which distinguishes values with equal names."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def hops(chain: Chain) -> str:
    """``tap-w - sat - tap-i``; of a branch with what it carries."""
    return (" - ".join(chain.hops) or "empty") + ("" if str(chain.carries) == "the rest" else f" for {chain.carries}")


def _parts(thing: Any) -> Mapping[str, Any] | None:
    """Return the parts of a value by their keys in a description; None: the value is one setting."""
    if isinstance(thing, tuple):
        return _members(cast("tuple[Any, ...]", thing))
    if isinstance(thing, _WHOLE) or not is_dataclass(thing):
        return None
    if isinstance(thing, BoxConfiguration):
        return dict(thing.settings)
    told = [each.name for each in fields(thing) if each.compare and each.name not in _NAMES.get(type(thing), ())]
    held: dict[str, Any] = {_KEYS.get(name, name): getattr(thing, name) for name in told}
    if isinstance(thing, (Traffic, UdpTraffic)):
        of_ip = held.pop("sizes_count", None) is SizesCount.IP
        said = f"{thing.flow_sizes} (IP bytes)" if of_ip else thing.flow_sizes
        held["flow_sizes"] = _FlowSizes(said, held.pop("sizes"))
    if isinstance(thing, Experiment):  # its first version is told by the experiment's own chain and latency
        held["changes"] = held["changes"][1:]
    if isinstance(thing, ChainBox):
        held |= dict(held.pop("settings"))
    return {name: _Share(part) if name in _SHARES else part for name, part in held.items()}


def _members(things: tuple[Any, ...]) -> Mapping[str, Any] | None:
    """The parts of a list by their names; None: it is a list of words, such as a program's."""
    if things and isinstance(things[0], (str, int)):
        return None
    if all(isinstance(each, tuple) for each in things):  # (key, what it says)
        return dict(things)
    return {_name(each, place): each for place, each in enumerate(things)}


def _name(part: Any, place: int) -> str:
    kind = cast("type[Any]", type(part))
    return "-".join(str(getattr(part, name)) for name in _NAMES.get(kind, ())) or str(place + 1)


def _told(things: Sequence[Any]) -> tuple[str, ...]:
    """Return a text for each value. Different values with equal texts, such as an edited file, get a digest."""
    first = [next(place for place, other in enumerate(things) if other == thing) for thing in things]
    texts = [_words(things[place]) for place in first]
    meant = {text: {place for place, other in zip(first, texts, strict=True) if other == text} for text in texts}
    return tuple(
        text if len(meant[text]) == 1 else f"{text}, SHA-256 {short_hash(to_json(things[place]))}"
        for place, text in zip(first, texts, strict=True)
    )


def _words(thing: Any) -> str:
    """Return the text of a whole value."""
    parts = _parts(thing)
    if parts:
        said = {name: part for name, part in parts.items() if part not in (None, ())}
        kind = _KINDS.get(cast("type[Any]", type(thing)), "")
        return (f"{kind}: " if kind else "") + ", ".join(
            f"{name} ({_words(part)})" if _parts(part) else f"{name} {_words(part)}" for name, part in said.items()
        )
    match thing:
        case None | ():
            return UNSET
        case _Absent():
            return NO_COUNTERPART
        case bool():
            return str(thing).lower()
        case float():
            return str(thing).removesuffix(".0")
        case tuple():
            return shlex.join(map(str, cast("tuple[Any, ...]", thing)))
        case _Share(of_one=share):
            return f"{100 * share:.12g} %"
        case LinkTrace():
            return thing.file
        case _FlowSizes():
            return thing.said
        case Chain():
            return hops(thing)
        case _:
            return str(thing)
