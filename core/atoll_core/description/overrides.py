# SPDX-License-Identifier: Apache-2.0
"""Settings of the command line that replace values of a description: ``tcp.congestion_control=hybla``.

They change the tree before it is resolved, so that the same rules and messages apply to them.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from atoll_core.description.raw_experiment import RawExperiment
from atoll_core.description.validation_messages import model_at, suggest
from atoll_core.description.yaml_document import Document, Place, compose_document
from atoll_core.errors import PlanError, shown

_HOW = "write KEY=VALUE as in the description, such as 'tcp.congestion_control=hybla'"


def override(document: Document, settings: Sequence[str]) -> Document:
    """Apply settings to a document, later ones over earlier ones.

    A mistake in a setting has line 0 and names the setting. Raises PlanError when a setting cannot be read, leads
    through a value that is not a mapping, or into a link that is not described. A short form on its way is expanded.
    """
    if not settings or document.tree is None:
        return document
    tree, lines = copy.deepcopy(document.tree), dict(document.lines)
    given: dict[Place, str] = {}
    for setting in settings:
        place, value = _read(setting)
        _require_link(tree, place, setting)
        _put(tree, place, value, setting)
        for below in [known for known in lines if known[: len(place)] == place]:
            del lines[below]
        lines[place] = 0
        given = {known: by for known, by in given.items() if known[: len(place)] != place}
        given |= dict.fromkeys((place, _first_new(place, document)), shown(setting))
    return replace(document, tree=tree, lines=lines, given=given)


def _first_new(place: Place, document: Document) -> Place:
    """The first part of ``place`` that is not in the file: it may be misspelt."""
    parts = [place[:length] for length in range(1, len(place))]
    return next((part for part in parts if part not in document.lines), place)


def _read(setting: str) -> tuple[Place, Any]:
    key, equals, text = setting.partition("=")
    place = tuple(part.strip() for part in key.split("."))
    if not equals or not all(place):
        msg = f"--set {shown(setting)}: {_HOW}"
        raise PlanError(msg)
    given = compose_document(f"given: {text}\n", "--set")
    if given.tree is None or given.mistakes or list(given.tree) != ["given"]:
        why = given.mistakes[0].message if given.mistakes else "more than one thing"
        msg = f"--set {shown(setting)}: {why}"
        raise PlanError(msg)
    return place, given.tree["given"]


def _require_link(tree: dict[str, Any], place: Place, setting: str) -> None:
    """Refuse to set a key of a link that is not described: the link would have no other keys."""
    links: object = tree.get("links")
    if place[0] != "links" or len(place) < 3 or not isinstance(links, dict) or place[1] in links:
        return
    names = sorted(map(str, cast("dict[Any, Any]", links)))
    msg = f"--set {shown(setting)}: there is no link {place[1]!r}; {suggest(str(place[1]), names, 'links')}"
    raise PlanError(msg)


def _put(tree: dict[str, Any], place: Place, value: Any, setting: str) -> None:
    at = tree
    for length, key in enumerate(map(str, place[:-1]), start=1):
        model = model_at(RawExperiment, place[:length])
        if at.get(key) is None:
            at[key] = {}
        elif model is not None:
            at[key] = model.expanded(at[key])
        within: object = at[key]
        if not isinstance(within, dict):
            around = ".".join(map(str, place[:length]))
            msg = f"--set {shown(setting)}: {around} is {shown(within)} and has no keys; set {around} as a whole"
            raise PlanError(msg)
        at = cast("dict[str, Any]", within)
    at[str(place[-1])] = value
