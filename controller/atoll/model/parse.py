# SPDX-License-Identifier: Apache-2.0
"""A document read as a raw model, as far as it goes.

One bad line must not hide the mistakes elsewhere. So what pydantic refuses is noted, taken out of the tree, and the
rest read again, until it is accepted; names that were taken out still count as known (``Parsed.knows``).
"""

import copy
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from atoll.model.document import Document, Place
from atoll.model.errors import Mistake
from atoll.model.raw import Raw
from atoll.model.wording import suggest_key, word

M = TypeVar("M", bound=Raw)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[M]):
    """What could be read of a document.

    ``raw`` lacks what ``removed`` names; ``document`` is what ``raw`` was read from, with the lines of the file.
    ``mistakes`` includes those of the YAML.
    """

    raw: M
    document: Document
    mistakes: tuple[Mistake, ...]
    removed: frozenset[Place]
    declared: dict[str, Any]  # the tree as written

    def whole(self, *sections: str) -> bool:
        """Whether nothing had to be taken out of these sections: only then does absence mean anything."""
        return not any(place[0] in sections for place in self.removed)

    def names(self, section: str) -> tuple[str, ...]:
        """Names that a section declares, those of unreadable entries included."""
        entries = self.declared.get(section)
        return tuple(cast("dict[str, Any]", entries)) if isinstance(entries, dict) else ()

    def knows(self, section: str, name: str) -> bool:
        """Whether ``name`` may be declared in ``section``: it is, or the section could not be read."""
        return (section,) in self.removed or name in self.names(section)


def parse(model: type[M], document: Document) -> Parsed[M] | None:
    """Read ``document`` as ``model``; None when it has no tree, and its own mistakes say everything."""
    if document.tree is None:
        return None
    reading = replace(document, tree=copy.deepcopy(document.tree), lines=dict(document.lines))
    found: list[Mistake] = []
    removed: set[Place] = set()
    first = True
    while True:
        try:
            raw = model.model_validate(reading.tree)
        except ValidationError as error:
            details = error.errors(include_url=False)
            if first:  # later rounds complain of what this function took out
                found = [document.mistake(_place(one), word(model, one)) for one in _telling(model, details)]
                first = False
            gone: set[Place] = set()
            for place in sorted({_place(one) for one in details}, key=_order, reverse=True):
                if not any(place[:length] in gone for length in range(1, len(place))):
                    gone.add(_remove(model, reading, place))
            reading = replace(reading, lines=_moved_up(reading.lines, gone))
            removed |= gone
        else:
            return Parsed(raw, reading, (*document.mistakes, *found), frozenset(removed), document.tree)


def _place(error: ErrorDetails) -> Place:
    return tuple(key for key in error["loc"] if key != "[key]")


def _order(place: Place) -> list[tuple[bool, int, str]]:
    return [(isinstance(key, str), key if isinstance(key, int) else 0, str(key)) for key in place]


def _telling(model: type[Raw], details: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The errors worth telling: a key that is missing because it is misspelt is told once, as the misspelling."""
    meant = {(*place[:-1], suggest_key(model, place)) for place in map(_place, details) if place}
    return [one for one in details if one["type"] != "missing" or _place(one) not in meant]


def _remove(model: type[Raw], reading: Document, place: Place) -> Place:
    """Take out what stands at ``place``, or around it if nothing does; the place that was taken out."""
    tree = cast("dict[str, Any]", reading.tree)
    container = _at(tree, place[:-1])
    if _holds(container, place[-1]):
        del container[place[-1]]
        return place
    if len(place) == 1:
        tree[str(place[0])] = copy.deepcopy(model.stand_ins()[str(place[0])])
        return place
    return _remove(model, reading, place[:-1])


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
    """The lines with those of lists' entries moved up by as many as were taken out before them."""
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
