# SPDX-License-Identifier: Apache-2.0
"""Every numeric key of labs and experiments at the ends of its documented range, and descriptions that have several."""

import copy
import json
import random
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from ruamel.yaml import YAML

from atoll_core.description.coder_settings import CoderSettings
from atoll_core.description.pep_settings import PepSettings
from atoll_core.description.raw_experiment import RawExperiment
from atoll_core.description.raw_lab import RawLab
from atoll_core.description.raw_types import Between, Positive, Raw, Share

_BASE = Path(__file__).parents[1] / "data" / "ranges"
_YAML = YAML(typ="safe", pure=True)
_JUST_ABOVE = 1e-6  # the least number above 0 that is tried

# The entry of each section, of the lab and the experiment in tests/data/ranges, whose key is set.
_ENTRIES = {
    "switches": "sw-t",
    "learning_switches": "lan",
    "hosts": "i1",
    "boxes": "pep-w",
    "delay_boxes": "delay",
    "classes": "rtt-20",
    "links": "sat",
    "groups": "coded",
}
_CHANNEL = {"model": "gilbert-elliott", "good_to_bad": "0.1 %", "bad_to_good": "20 %"}
_WITH_PORTS = "rtt-40"  # a latency class that has ports and no VLAN id
# Keys that other keys need.
_WITH: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("good_to_bad", "bad_to_good", "loss_good", "loss_bad"), _CHANNEL),
    "memory": {"scheme": "partial-unit-memory"},
}


@dataclass(frozen=True, slots=True)
class Extreme:
    """A key at one end of its range. ``place``: from the top of the lab or of the experiment."""

    file: str  # lab or experiment
    place: tuple[str | int, ...]
    value: str | int | float

    def __str__(self) -> str:
        return f"{'lab.' if self.file == 'lab' else ''}{'.'.join(map(str, self.place))}={self.value}"


def extremes() -> tuple[Extreme, ...]:
    """Both ends of the range of every numeric key."""
    found = [(("lab", place), ends) for place, ends in _ranges(RawLab)]
    found += [(("experiment", place), ends) for place, ends in _ranges(RawExperiment)]
    for box, settings in (("pep-w", PepSettings), ("coder-w", CoderSettings)):
        found += [(("experiment", ("boxes", box, *place)), ends) for place, ends in _ranges(settings)]
    return tuple(Extreme(*where, end) for where, ends in found for end in ends)


def write_descriptions(folder: Path, wanted: Sequence[Extreme]) -> Path:
    """Write the lab and the experiment with these values; returns the experiment."""
    for file, model in (("lab", RawLab), ("experiment", RawExperiment)):
        tree: Any = _YAML.load(_BASE / f"{file}.yaml")
        for each in wanted:
            if each.file == file:
                _put(tree, model, each.place, each.value)
            if each.place[:2] == ("boxes", "coder-w") and each.file == file == "experiment":
                _put(tree, model, ("boxes", "coder-i", *each.place[2:]), each.value)  # both coders of a pair agree
        (folder / f"{file}.yaml").write_text(json.dumps(tree))  # JSON is YAML
    return folder / "experiment.yaml"


def shuffled(wanted: Sequence[Extreme], seed: int) -> list[Extreme]:
    """The values in random order."""
    order = list(wanted)
    random.Random(seed).shuffle(order)
    return order


def _ranges(model: type[Raw], place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        here = (*place, key, *_entry(key, field))
        if place[-2:-1] == ("classes",) and key in ("world", "island"):
            here = (*place[:-1], _WITH_PORTS, key)
        parts = [*_parts(field.annotation), *field.metadata]
        inner = next((each for each in parts if isinstance(each, type) and issubclass(each, Raw)), None)
        if inner is not None:
            yield from _ranges(inner, here)
        elif ends := _ends([part for each in parts for part in _parts(each)]):
            yield here, ends


def _entry(key: str, field: FieldInfo) -> tuple[str | int, ...]:
    """The entry of a section with names, or of a list, in which a key is set."""
    kinds = {typing.get_origin(part) for part in _parts(field.annotation)}
    if list in kinds:
        return (0,)
    if dict not in kinds:
        return ()
    return (_ENTRIES[key],) if key in _ENTRIES else ()


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for each in (*getattr(hint, "metadata", ()), *typing.get_args(hint)):
        yield from _parts(each)


def _ends(parts: Sequence[Any]) -> tuple[Any, Any] | None:
    for part in parts:
        if isinstance(part, Between):
            return part.low, part.high
        if isinstance(part, Share):
            return part.low, "100 %"
        if isinstance(part, Positive):
            return _JUST_ABOVE, part.high
    bounds = {bound: getattr(part, bound) for part in parts for bound in ("ge", "le") if hasattr(part, bound)}
    return (bounds["ge"], bounds["le"]) if len(bounds) == 2 else None


def _put(tree: Any, model: Any, place: tuple[str | int, ...], value: object) -> None:
    """Set a key. Mappings on its way are made with their required keys, and short forms are expanded."""
    at = tree
    for index, key in enumerate(place[:-1]):
        kinds = [part for part in _parts(_field(model, key)) if isinstance(part, type) and issubclass(part, Raw)]
        model = kinds[0] if kinds else model
        held: Any = at[key] if isinstance(key, int) or key in at else None
        if kinds and isinstance(place[index + 1], str) and not isinstance(held, (dict, list)):
            held = kinds[0].expanded(held) if held is not None else _required(kinds[0])
        at[key] = held = {} if held is None else held
        at = held
    name = str(place[-1])
    at.update({key: given for key, given in copy.deepcopy(_WITH.get(name, {})).items() if key not in at})
    at[name] = value


def _field(model: Any, key: str | int) -> Any:
    fields = getattr(model, "model_fields", {})
    return next((each.annotation for name, each in fields.items() if (each.alias or name) == key), None)


def _required(model: type[Raw]) -> dict[str, Any]:
    """The required keys of a mapping with their examples."""
    return {
        field.alias or name: _YAML.load(str((field.examples or [None])[0]))
        for name, field in model.model_fields.items()
        if field.is_required()
    }
