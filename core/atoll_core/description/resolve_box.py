# SPDX-License-Identifier: Apache-2.0
"""Check the keys of a chain box against its kind, resolve its settings, check placeholders in its commands."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from atoll_core.codec import to_json
from atoll_core.description.validation_messages import error_message
from atoll_core.lab.box_kind import BoxKind
from atoll_core.lab.network import ChainBox, Program

_PLACEHOLDERS = ("world", "island")
_BRACES = re.compile(r"(?<![${])\{([A-Za-z_][A-Za-z0-9_-]*)\}(?!\})")  # not a shell's ${name}, not {{name}}
_LEAST_SIMILARITY = 0.8  # of two letters swapped in a word of five; less similar words also occur in scripts


def unfit_keys(box: ChainBox) -> Iterator[tuple[str, str]]:
    """Keys of a box that do not fit its kind, each with a message."""
    name = box.kind.name
    if box.kind.is_foreign and box.forwarding is None:
        remedy = "transparent if it forwards frames unchanged, routed if it forwards IP packets in new frames"
        yield "forwarding", f"a box of kind {name} needs `forwarding`; write {remedy}"
    if not box.kind.is_foreign:
        declared = {
            "forwarding": box.forwarding is not None,
            "stateful": box.stateful and not box.kind.stateful,
            "conserves_packets": box.conserves_packets is not None,
            "conserves_payload": not box.conserves_payload,
            "residence_max": bool(box.residence_max.ns),
        }
        for key, is_declared in declared.items():
            if is_declared:
                kinds = " or ".join(kind.name for kind in BoxKind.registered.values() if kind.is_foreign)
                yield key, f"kind {name} fixes this value; remove the key, or use kind {kinds}"
    if box.kind.has_program and not (box.program and box.program.start):
        yield "program", f"a box of kind {name} has one; add 'program: {{start: [...]}}'"
    if box.program and not box.kind.has_program:
        kinds = " or ".join(f"kind: {kind.name}" for kind in BoxKind.registered.values() if kind.has_program)
        yield "program", f"nothing is started on a box of kind {name}; remove it, or write {kinds}"
    if box.spare and not box.routed:
        yield "spare", "a transparent box keeps VLAN tags, which distinguish versions; remove spare"


def resolve_settings(box: ChainBox, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The settings of a box, and the mistakes: a key and its message.

    ``overrides``: those of the experiment, which override the box's own. Values are JSON's; quantities in base units.
    """
    settings, section = box.kind.settings and box.kind.settings(), ("boxes", box.name)
    merged = {**dict(box.settings), **overrides}
    if settings is None:
        reason = "its settings belong to links" if box.is_link else f"boxes of kind {box.kind.name} have none"
        return {}, [(key, f"box {box.name!r}: unknown setting {key!r}; {reason}; remove it") for key in merged]
    try:
        resolved = settings.model_validate(merged)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        return {}, [(str(detail["loc"][0]), error_message(settings, detail, base_path=section)) for detail in errors]
    return {key: to_json(getattr(resolved, key)) for key in settings.model_fields}, []


def pair_disagreements(
    world: ChainBox, island: ChainBox, settings: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, str, str]]:
    """Settings in which the two boxes of a pair must agree and do not: a box, the key, and the message.

    ``settings``: by box. A box that is off agrees with every other one unless the kind encapsulates packets.
    """
    ends = [(box, settings.get(box.name, {})) for box in (world, island)]
    off_boxes = [box for box, box_settings in ends if box_settings.get("mode") == "off"]
    if len(off_boxes) == 1 and world.kind.encapsulates:
        (on,) = (box for box in (world, island) if box not in off_boxes)
        text = f"{on.name!r}, which carries packets to it in {world.kind.encapsulates}, is on"
        yield off_boxes[0].name, "mode", f"box {off_boxes[0].name!r} is off, but {text}; write the same mode for both"
    for key in world.kind.settings().SAME_IN_PAIR if world.kind.settings and not off_boxes else ():
        world_value, island_value = (box_settings.get(key) for _, box_settings in ends)
        if world_value != island_value:
            text = f"{key} is not the same for {world.name!r} and {island.name!r}, which are a pair"
            yield island.name, key, f"{text}; write one value for both"


def unknown_placeholders(program: Program) -> Iterator[tuple[str, str]]:
    """Keys of a program whose commands have unknown placeholders, each with a message.

    Inside an argument only a word that resembles a known placeholder counts: scripts, JSON and awk have braces, too.
    """
    commands = {"start": program.start, "stop": program.stop, "report": program.report}
    for key, argument in ((key, argument) for key, argv in commands.items() for argument in argv):
        placeholders = (*_PLACEHOLDERS, "run") if key == "report" else _PLACEHOLDERS
        for placeholder in _BRACES.finditer(argument):
            name = placeholder[1]
            if name in placeholders:
                continue
            if matches := difflib.get_close_matches(name.lower(), placeholders, 1, _LEAST_SIMILARITY):
                yield key, f"unknown placeholder {placeholder[0]!r}; did you mean '{{{matches[0]}}}'?"
            elif placeholder[0] == argument:
                names = " and ".join(f"'{{{placeholder_name}}}'" for placeholder_name in _PLACEHOLDERS)
                text = f"unknown placeholder {argument!r}; known are {names}"
                yield key, f"{text}; for the text itself write '{{ {name} }}'"
