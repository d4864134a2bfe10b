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
from atoll_core.description.validation_messages import ENTRY_NOUNS, model_at, suggest
from atoll_core.description.yaml_document import Document, KeyPath, compose_document
from atoll_core.errors import PlanError, shown

_LAB = "lab"
_MACHINE_SECTIONS = ("switches", "hosts", "boxes", "delay_boxes")
_SYNTAX = "write KEY=VALUE as in the description, such as 'tcp.congestion_control=hybla'"


def settings_of_lab(settings: Sequence[str]) -> tuple[str, ...]:
    """The settings whose keys are of the lab's description."""
    return tuple(setting for setting in settings_under_lab(settings) if len(_key_path(setting)) > 1)


def settings_under_lab(settings: Sequence[str]) -> tuple[str, ...]:
    """The settings whose keys are of the lab's description, and those that name another description: ``lab=PATH``."""
    return tuple(setting for setting in settings if _key_path(setting)[0] == _LAB)


def override(document: Document, settings: Sequence[str]) -> Document:
    """Apply settings to the document of an experiment, later ones over earlier ones; those of the lab are left out.

    A mistake in a setting has line 0 and names the setting. Raises PlanError when a setting cannot be read, leads
    through a value that is not a mapping, or into a link that is not described. A short form on its way is expanded.
    """
    lab = settings_of_lab(settings)
    return _override(document, [setting for setting in settings if setting not in lab], RawExperiment, ("links",), 0)


def override_lab(document: Document, settings: Sequence[str]) -> Document:
    """Apply those settings that are of the lab to its document; otherwise as :func:`override`."""
    return _override(document, settings_of_lab(settings), RawLab, _MACHINE_SECTIONS, 1)


def _override(
    document: Document, settings: Sequence[str], model: type[Raw], entry_sections: Sequence[str], prefix_length: int
) -> Document:
    """``entry_sections``: their keys need an entry. ``prefix_length``: parts before the keys of ``model``."""
    if not settings or document.tree is None:
        return document
    tree, lines = copy.deepcopy(document.tree), dict(document.lines)
    setting_by_path: dict[KeyPath, str] = {}
    for setting in settings:
        key_path, value = _parse(setting)
        key_path = key_path[prefix_length:]
        if key_path[0] in entry_sections:
            _require_entry(tree, key_path, setting)
        key_path = _set_value(tree, key_path, value, setting, model)
        for inner in [path for path in lines if path[: len(key_path)] == key_path]:
            del lines[inner]
        lines[key_path] = 0
        setting_by_path = {path: text for path, text in setting_by_path.items() if path[: len(key_path)] != key_path}
        setting_by_path |= dict.fromkeys((key_path, _first_missing(key_path, document)), shown(setting))
    return replace(document, tree=tree, lines=lines, settings=setting_by_path)


def _key_path(setting: str) -> KeyPath:
    return tuple(part.strip() for part in setting.partition("=")[0].split("."))


def _first_missing(key_path: KeyPath, document: Document) -> KeyPath:
    """The first part of ``key_path`` that is not in the file: it may be misspelt."""
    parts = [key_path[:length] for length in range(1, len(key_path))]
    return next((part for part in parts if part not in document.lines), key_path)


def _parse(setting: str) -> tuple[KeyPath, Any]:
    _, equals, text = setting.partition("=")
    key_path = _key_path(setting)
    if not equals or not all(key_path):
        msg = f"--set {shown(setting)}: {_SYNTAX}"
        raise PlanError(msg)
    parsed = compose_document(f"given: {text}\n", "--set")
    if parsed.tree is None or parsed.mistakes or list(parsed.tree) != ["given"]:
        reason = parsed.mistakes[0].message if parsed.mistakes else "more than one thing"
        msg = f"--set {shown(setting)}: {reason}"
        raise PlanError(msg)
    return key_path, parsed.tree["given"]


def _require_entry(tree: dict[str, Any], key_path: KeyPath, setting: str) -> None:
    """Refuse to set a key of a link, or of a machine of the lab, that is not described: it would have no other keys."""
    section = str(key_path[0])
    entries: object = tree.get(section)
    if len(key_path) < 3 or not isinstance(entries, dict) or key_path[1] in entries:
        return
    names = sorted(map(str, cast("dict[Any, Any]", entries)))
    suggestion = suggest(str(key_path[1]), names, section.replace("_", " "))
    msg = f"--set {shown(setting)}: there is no {ENTRY_NOUNS[section]} {str(key_path[1])!r}; {suggestion}"
    raise PlanError(msg)


def _set_value(tree: dict[str, Any], key_path: KeyPath, value: Any, setting: str, root_model: type[Raw]) -> KeyPath:
    """Set a value; returns its key path, in which entries of lists are numbers."""
    node: dict[str, Any] | list[Any] = tree
    for length, part in enumerate(map(str, key_path[:-1]), start=1):
        key = _key(node, part, setting)
        key_path = (*key_path[: length - 1], key, *key_path[length:])
        model = model_at(root_model, key_path[:length])
        child = node.get(key) if isinstance(node, dict) else node[key]
        if child is None:
            child = {}
        elif model is not None:
            child = model.expanded(child)
        if not isinstance(child, dict | list):
            parent = ".".join(map(str, _key_path(setting)[: length - len(key_path)]))
            msg = f"--set {shown(setting)}: {parent} is {shown(child)} and has no keys; set {parent} as a whole"
            raise PlanError(msg)
        node[key] = child
        node = cast("dict[str, Any] | list[Any]", child)
    key = _key(node, str(key_path[-1]), setting)
    node[key] = value
    return (*key_path[:-1], key)


def _key(node: dict[str, Any] | list[Any], part: str, setting: str) -> Any:
    """The key of a mapping, or the index of an entry of a list. Raises PlanError if the list has no such entry."""
    if isinstance(node, dict):
        return part
    if part.isdecimal() and int(part) < len(node):
        return int(part)
    numbers = f"its entries are 0 to {len(node) - 1}" if node else "it has no entries"
    msg = f"--set {shown(setting)}: there is no entry {shown(part)} in this list; {numbers}"
    raise PlanError(msg)
