# SPDX-License-Identifier: Apache-2.0
"""Settings of descriptions as texts, under the keys of their files; those of several descriptions compared one by one.

Pure. Every setting comes out exactly once. Where one description has a mapping and another one has not (a transfer or
none, two models of loss), the mapping is one setting, because its parts have no counterparts. A list is one setting.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from atoll_core.codec import to_json
from atoll_core.described import setting_text
from atoll_core.experiment.experiment import Experiment, SteeringVersion
from atoll_core.lab.network import Network

NO_COUNTERPART = "\N{EN DASH}"
"""Text of a part that only other descriptions have."""

_UNSET_TEXTS = ("null", "{}", "[]")
_HASH_DIGITS = 8  # of a SHA-256
_DEPTHS = {"links": 3, "boxes": 2, "lab": 2}  # how many keys name a part of a description; of others, 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of several descriptions. Texts are equal if and only if the values are."""

    key: str  # ``links.sat.to_island.rate``, as --set calls it
    texts: tuple[str, ...]  # a description each, as --set takes them

    @property
    def alike(self) -> bool:
        """Whether the setting is equal in all descriptions."""
        return len(set(self.texts)) == 1

    @property
    def is_unset(self) -> bool:
        """Whether all descriptions leave it out, and it has no value then."""
        return self.alike and self.texts[0] in _UNSET_TEXTS


def settings_table(key: str, described: Sequence[Any]) -> Iterator[Setting]:
    """Return the settings under ``key`` of values in the shape of descriptions; ``""`` for whole descriptions."""
    mappings = [cast("dict[str, Any]", mapping) for mapping in described if isinstance(mapping, dict)]
    names = dict.fromkeys(name for mapping in mappings for name in mapping)
    if not names or len(mappings) < len(described):
        yield Setting(key, _texts(described))
        return
    for name in names:
        full_key = f"{key}.{name}" if key else name
        yield from settings_table(full_key, [mapping.get(name, NO_COUNTERPART) for mapping in mappings])


def group_by_part(settings: Iterable[Setting]) -> dict[str, list[Setting]]:
    """Group settings by their part of the description: ``tcp``, ``links.sat.to_island``, ``lab.hosts``."""
    by_part: dict[str, list[Setting]] = {}
    for setting in settings:
        keys = setting.key.split(".")
        depth = _DEPTHS.get(keys[0], 1)
        by_part.setdefault(".".join(keys[: max(1, min(depth, len(keys) - 1))]), []).append(setting)
    return by_part


def key_within(part: str, setting: Setting) -> str:
    """Return the key of a setting within its part."""
    return setting.key.removeprefix(part).lstrip(".")


def part_text(part: str, settings: Sequence[Setting]) -> str:
    """Return the settings of a part that are alike: ``rate 16 Mbit/s, delay 250 ms; none: jitter, loss``."""
    texts = [f"{key_within(part, setting)} {setting.texts[0]}".lstrip() for setting in settings if not setting.is_unset]
    unset = [key_within(part, setting) for setting in settings if setting.is_unset]
    none = "none" if unset == [""] else f"none: {', '.join(unset)}"
    return "; ".join((*([", ".join(texts)] if texts else []), *([none] if unset else [])))


def version_differences(before: SteeringVersion, after: SteeringVersion) -> Iterator[str]:
    """Return the differences of two versions: ``latency.w1 rtt-90 instead of rtt-5``, ``no branches.coded``."""
    for setting in settings_table("", [before.described, after.described]):
        old, new = setting.texts
        if new == NO_COUNTERPART:
            yield f"no {setting.key}"
        elif old != new:
            yield f"{setting.key} {new}" + (f" instead of {old}" if old != NO_COUNTERPART else "")


def settings_tree(experiment: Experiment, network: Network) -> dict[str, Any]:
    """Return the settings of an experiment as texts, in the shape of experiment.yaml, without those that are unset.

    ``{"links": {"sat": {"to_island": {"rate": "16 Mbit/s"}}}}``. Each of ``changes`` has what differs from the version
    before.
    """
    return cast("dict[str, Any]", _tree(experiment.described(network)))


def _tree(described: Any) -> Any:
    if isinstance(described, dict):
        subtrees = {key: _tree(part) for key, part in cast("dict[str, Any]", described).items() if part is not None}
        return {key: subtree for key, subtree in subtrees.items() if subtree not in ({}, [])}
    if isinstance(described, list):
        return [_tree(part) for part in cast("list[Any]", described)]
    return setting_text(described)


def short_hash(data: Any) -> str:
    """Return the beginning of the SHA-256 of JSON, which distinguishes values with equal names."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]


def _texts(described: Sequence[Any]) -> tuple[str, ...]:
    """Return a text for each value. Different values with equal texts, such as an edited file, get a digest."""
    firsts = [described.index(part) for part in described]
    texts = [
        NO_COUNTERPART if described[index] is NO_COUNTERPART else setting_text(described[index]) for index in firsts
    ]
    indices = {text: {index for index, other in zip(firsts, texts, strict=True) if other == text} for text in texts}
    return tuple(
        text if len(indices[text]) == 1 else f"{text}, SHA-256 {short_hash(to_json(described[index]))}"
        for index, text in zip(firsts, texts, strict=True)
    )
