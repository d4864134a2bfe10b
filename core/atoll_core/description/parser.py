# SPDX-License-Identifier: Apache-2.0
"""Validate a document against a raw model, and find all mistakes in one go.

One bad line must not hide mistakes elsewhere. So an entry that pydantic refuses is noted, and the rest is validated
again until it is accepted. Optional entries are removed; required ones are replaced by an example (``Parsed.reads``
excludes these). Names of removed entries still count as known (``Parsed.knows``).
"""

import copy
import typing
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from atoll_core.description.raw_types import ContradictionError, Raw
from atoll_core.description.validation_messages import bare, error_message, field_at, free_ports, suggest_key
from atoll_core.description.yaml_document import Document, Place, compose_document
from atoll_core.errors import Diagnostic

M = TypeVar("M", bound=Raw)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[M]):
    """The valid part of a document.

    Entries and sections in ``removed`` are not in ``raw``; those in ``unread`` are placeholders. ``document`` is the
    tree behind ``raw``, with the lines of the file. ``mistakes`` includes those of the YAML.
    """

    raw: M
    document: Document
    mistakes: tuple[Diagnostic, ...]
    removed: frozenset[Place]
    unread: frozenset[Place]
    declared: dict[str, Any]  # the tree as written

    def whole(self, *sections: str) -> bool:
        """Whether no entry was removed from these sections, so that a missing entry is missing in the file."""
        return not any(place[0] in sections for place in self.removed)

    def reads(self, *places: Place) -> bool:
        """Whether ``raw`` has the file's own values at all these places and below them."""
        return not any(
            one[: min(len(one), len(place))] == place[: min(len(one), len(place))]
            for place in places
            for one in (*self.unread, *(gone for gone in self.removed if len(gone) == 1))
        )

    def is_placeholder(self, place: Place) -> bool:
        """Whether the value of ``raw`` at ``place`` is a placeholder, so that it must not be judged."""
        return any(place[:length] in self.unread for length in range(1, len(place) + 1))

    def reads_all(self, section: str, key: str) -> bool:
        """Whether this key has the file's own value in all entries of a section."""
        return self.whole(section) and not any(
            place[0] == section and (key in place or len(place) < 3) for place in self.unread
        )

    def names(self, section: str) -> tuple[str, ...]:
        """Names that a section declares, those of unreadable entries included."""
        entries = self.declared.get(section)
        return tuple(cast("dict[str, Any]", entries)) if isinstance(entries, dict) else ()

    def knows(self, section: str, name: str) -> bool:
        """Whether ``name`` may be declared in ``section``: it is, or the section could not be read."""
        return (section,) in self.removed or name in self.names(section)


def parse(model: type[M], document: Document, examples: Mapping[str, str] = MappingProxyType({})) -> Parsed[M] | None:
    """Validate ``document`` against ``model``; None when it has no tree.

    ``examples``: by key, for messages, instead of those of the model.
    """
    if document.tree is None:
        return None
    reading = replace(document, tree=copy.deepcopy(document.tree), lines=dict(document.lines))
    found: list[Diagnostic] = []
    removed: set[Place] = set()
    unread: set[Place] = set()
    first, ports = True, dict[str, tuple[str, ...]]()
    while True:
        try:
            raw = model.model_validate(reading.tree)
        except ValidationError as error:
            details = error.errors(include_url=False)
            ports = free_ports(document.tree) if first else ports
            # Errors of later rounds are caused by the removals, except contradictions between fields.
            reported = _reported(model, details) if first else filter(_contradicts, details)
            found += [reading.mistake(_place(one), error_message(model, one, ports, examples)) for one in reported]
            first = False
            gone: set[Place] = set()
            for place in sorted({_place(one) for one in details}, key=_order, reverse=True):
                if not any(place[:length] in gone for length in range(1, len(place))):
                    gone.add(_put_aside(model, reading, place, unread))
            reading = replace(reading, lines=_moved_up(reading.lines, gone))
            known = unread | {place for place in gone if not isinstance(place[-1], int)}
            unread = set(_moved_up(dict.fromkeys(known, 0), gone))
            removed |= {place for place in gone if _may_hold_names(model, place)}
        else:
            mistakes = (*document.mistakes, *found)
            return Parsed(raw, reading, mistakes, frozenset(removed), frozenset(unread), document.tree)


def _place(error: ErrorDetails) -> Place:
    return tuple(key for key in error["loc"] if key != "[key]")


def _order(place: Place) -> list[tuple[bool, int, str]]:
    return [(isinstance(key, str), key if isinstance(key, int) else 0, str(key)) for key in place]


def _reported(model: type[Raw], details: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The errors to report: a key that is missing because it is misspelt is reported once, as the misspelling."""
    meant = {(*place[:-1], suggest_key(model, place)) for place in map(_place, details) if place}
    return [one for one in details if one["type"] != "missing" or _place(one) not in meant]


def _contradicts(error: ErrorDetails) -> bool:
    return isinstance(error.get("ctx", {}).get("error"), ContradictionError)


def _put_aside(model: type[Raw], reading: Document, place: Place, unread: Collection[Place]) -> Place:
    """Remove the entry at ``place``, or replace it by an example; if neither is possible, the entry around it.

    Returns the place that was removed or replaced. ``unread``: places that were replaced before, without success.
    """
    tree = cast("dict[str, Any]", reading.tree)
    container = _at(tree, place[:-1])
    field = field_at(model, place)
    if len(place) == 1 and (field is None or not field.is_required()):
        del tree[str(place[0])]
        return place
    if len(place) == 1:
        tree[str(place[0])] = copy.deepcopy(model.placeholders()[str(place[0])])
        return place
    if field is not None and field.is_required():
        if isinstance(container, dict) and place not in unread and (example := _example(field)) is not None:
            container[place[-1]] = example
            return place
    elif _holds(container, place[-1]):
        del container[place[-1]]
        return place
    return _put_aside(model, reading, place[:-1], unread)


def _example(field: FieldInfo) -> Any:
    """The placeholder of a required field: empty if it has entries, else its example."""
    kind = typing.get_origin(bare(field.annotation))
    if kind is dict:
        return {}
    if kind is list:
        return []
    if not field.examples:
        return None
    example = field.examples[0]
    return (compose_document(f"example: {example}", "").tree or {})["example"] if isinstance(example, str) else example


def _may_hold_names(model: type[Raw], place: Place) -> bool:
    """Whether the entry that was removed there may have declared or named something."""
    field = field_at(model, place)
    return len(place) == 1 or field is None or typing.get_origin(bare(field.annotation)) in (dict, list)


def _at(tree: Any, place: Place) -> Any:
    for key in place:
        if not _holds(tree, key):
            return None
        tree = tree[key]
    return tree


def _holds(container: Any, key: str | int) -> bool:
    if isinstance(container, dict):
        return key in container
    return isinstance(container, list) and isinstance(key, int) and key < len(cast("list[Any]", container))


def _moved_up(lines: Mapping[Place, int], gone: Collection[Place]) -> dict[Place, int]:
    """The lines, with indices of lists reduced by the number of entries removed before them."""
    entries = {place for place in gone if isinstance(place[-1], int)}
    out: dict[Place, list[int]] = {}  # their indices, ascending, by their list
    for place in sorted(entries, key=_order):
        out.setdefault(place[:-1], []).append(cast(int, place[-1]))
    if not out:
        return dict(lines)
    moved: dict[Place, int] = {}
    for place, line in lines.items():
        if not any(place[:length] in entries for length in range(1, len(place) + 1)):
            key = tuple(
                index - bisect_left(out[place[:at]], index) if isinstance(index, int) and place[:at] in out else index
                for at, index in enumerate(place)
            )
            moved[key] = line
    return moved
