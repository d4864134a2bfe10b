# SPDX-License-Identifier: Apache-2.0
"""Settings of the command line that replace values of a description: ``tcp.congestion_control=hybla``.

They change the tree before it is resolved, so that the same rules and messages apply to them. A key that begins with
``lab.`` is one of the lab's description: ``lab.delay_boxes.delay.rate=100 Mbit/s``.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from atoll_core.description.raw_experiment import RawExperiment
from atoll_core.description.raw_lab import RawLab
from atoll_core.description.raw_types import Raw
from atoll_core.description.validation_messages import ENTRY, model_at, suggest
from atoll_core.description.yaml_document import Document, Place, compose_document
from atoll_core.errors import PlanError, shown

_LAB = "lab"
_MACHINES = ("switches", "hosts", "boxes", "delay_boxes")
_HOW = "write KEY=VALUE as in the description, such as 'tcp.congestion_control=hybla'"


def of_lab(settings: Sequence[str]) -> tuple[str, ...]:
    """The settings whose keys are of the lab's description."""
    return tuple(setting for setting in about_lab(settings) if len(_place(setting)) > 1)


def about_lab(settings: Sequence[str]) -> tuple[str, ...]:
    """The settings whose keys are of the lab's description, and those that name another description: ``lab=PATH``."""
    return tuple(setting for setting in settings if _place(setting)[0] == _LAB)


def override(document: Document, settings: Sequence[str]) -> Document:
    """Apply settings to the document of an experiment, later ones over earlier ones; those of the lab are left out.

    A mistake in a setting has line 0 and names the setting. Raises PlanError when a setting cannot be read, leads
    through a value that is not a mapping, or into a link that is not described. A short form on its way is expanded.
    """
    lab = of_lab(settings)
    return _overridden(document, [setting for setting in settings if setting not in lab], RawExperiment, ("links",), 0)


def override_lab(document: Document, settings: Sequence[str]) -> Document:
    """Apply those settings that are of the lab to its document; otherwise as :func:`override`."""
    return _overridden(document, of_lab(settings), RawLab, _MACHINES, 1)


def _overridden(
    document: Document, settings: Sequence[str], model: type[Raw], declared: Sequence[str], skipped: int
) -> Document:
    """``declared``: sections in which a key needs its entry. ``skipped``: parts in front of the keys of ``model``."""
    if not settings or document.tree is None:
        return document
    tree, lines = copy.deepcopy(document.tree), dict(document.lines)
    given: dict[Place, str] = {}
    for setting in settings:
        place, value = _read(setting)
        place = place[skipped:]
        if place[0] in declared:
            _require_entry(tree, place, setting)
        place = _put(tree, place, value, setting, model)
        for below in [known for known in lines if known[: len(place)] == place]:
            del lines[below]
        lines[place] = 0
        given = {known: by for known, by in given.items() if known[: len(place)] != place}
        given |= dict.fromkeys((place, _first_new(place, document)), shown(setting))
    return replace(document, tree=tree, lines=lines, given=given)


def _place(setting: str) -> Place:
    return tuple(part.strip() for part in setting.partition("=")[0].split("."))


def _first_new(place: Place, document: Document) -> Place:
    """The first part of ``place`` that is not in the file: it may be misspelt."""
    parts = [place[:length] for length in range(1, len(place))]
    return next((part for part in parts if part not in document.lines), place)


def _read(setting: str) -> tuple[Place, Any]:
    _, equals, text = setting.partition("=")
    place = _place(setting)
    if not equals or not all(place):
        msg = f"--set {shown(setting)}: {_HOW}"
        raise PlanError(msg)
    given = compose_document(f"given: {text}\n", "--set")
    if given.tree is None or given.mistakes or list(given.tree) != ["given"]:
        why = given.mistakes[0].message if given.mistakes else "more than one thing"
        msg = f"--set {shown(setting)}: {why}"
        raise PlanError(msg)
    return place, given.tree["given"]


def _require_entry(tree: dict[str, Any], place: Place, setting: str) -> None:
    """Refuse to set a key of a link, or of a machine of the lab, that is not described: it would have no other keys."""
    section = str(place[0])
    entries: object = tree.get(section)
    if len(place) < 3 or not isinstance(entries, dict) or place[1] in entries:
        return
    names = sorted(map(str, cast("dict[Any, Any]", entries)))
    known = suggest(str(place[1]), names, section.replace("_", " "))
    msg = f"--set {shown(setting)}: there is no {ENTRY[section]} {str(place[1])!r}; {known}"
    raise PlanError(msg)


def _put(tree: dict[str, Any], place: Place, value: Any, setting: str, described: type[Raw]) -> Place:
    """Set a value; returns its place, in which entries of lists are numbers."""
    at: dict[str, Any] | list[Any] = tree
    for length, word in enumerate(map(str, place[:-1]), start=1):
        key = _key(at, word, setting)
        place = (*place[: length - 1], key, *place[length:])
        model = model_at(described, place[:length])
        within = at.get(key) if isinstance(at, dict) else at[key]
        if within is None:
            within = {}
        elif model is not None:
            within = model.expanded(within)
        if not isinstance(within, dict | list):
            around = ".".join(map(str, _place(setting)[: length - len(place)]))
            msg = f"--set {shown(setting)}: {around} is {shown(within)} and has no keys; set {around} as a whole"
            raise PlanError(msg)
        at[key] = within
        at = cast("dict[str, Any] | list[Any]", within)
    key = _key(at, str(place[-1]), setting)
    at[key] = value
    return (*place[:-1], key)


def _key(at: dict[str, Any] | list[Any], word: str, setting: str) -> Any:
    """The key of a mapping, or the index of an entry of a list. Raises PlanError if the list has no such entry."""
    if isinstance(at, dict):
        return word
    if word.isdecimal() and int(word) < len(at):
        return int(word)
    numbers = f"its entries are 0 to {len(at) - 1}" if at else "it has no entries"
    msg = f"--set {shown(setting)}: there is no entry {shown(word)} in this list; {numbers}"
    raise PlanError(msg)
