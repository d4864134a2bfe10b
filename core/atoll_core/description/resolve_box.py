# SPDX-License-Identifier: Apache-2.0
"""Check the keys of a chain box against its kind, and the placeholders in its commands."""

import difflib
import re
from collections.abc import Iterator

from atoll_core.lab.network import ChainBox, Program

_PLACEHOLDERS = ("world", "island")
_BRACES = re.compile(r"(?<![${])\{([A-Za-z_][A-Za-z0-9_-]*)\}(?!\})")  # not a shell's ${name}, not {{name}}
_ALIKE = 0.8  # two letters swapped in a word of five; such text also occurs in scripts, so that less is no misspelling


def unfit_keys(box: ChainBox) -> Iterator[tuple[str, str]]:
    """Keys of a box that do not fit its kind, each with a message."""
    kind, traits = box.kind.value, box.kind.traits
    if traits.is_foreign and box.forwarding is None:
        what = "transparent if frames leave it as they came, routed if it sends packets in frames of its own"
        yield "forwarding", f"a box of kind {kind} must say how it forwards; write {what}"
    if not traits.is_foreign:
        declared = {
            "forwarding": box.forwarding is not None,
            "stateful": box.stateful,
            "conserves_packets": box.conserves_packets is not None,
        }
        for key, given in declared.items():
            if given:
                yield (
                    key,
                    f"its value is fixed for kind {kind}; remove the key, or make the box a program or external",
                )
    if traits.has_program and not (box.program and box.program.start):
        yield "program", "a box of kind program has one; add 'program: {start: [...]}'"
    if box.program and not traits.has_program:
        yield "program", f"nothing is started on a box of kind {kind}; remove it, or write kind: program"
    if box.spare and not box.routed:
        yield "spare", "a transparent box keeps VLAN tags, which distinguish versions; remove spare"


def unknown_placeholders(program: Program) -> Iterator[tuple[str, str]]:
    """Keys of a program whose commands have unknown placeholders, each with a message.

    Inside an argument only a word that resembles a known placeholder counts: scripts, JSON and awk have braces, too.
    """
    commands = {"start": program.start, "stop": program.stop, "report": program.report}
    for key, argument in ((key, argument) for key, argv in commands.items() for argument in argv):
        known = (*_PLACEHOLDERS, "run") if key == "report" else _PLACEHOLDERS
        for found in _BRACES.finditer(argument):
            name = found[1]
            if name in known:
                continue
            if near := difflib.get_close_matches(name.lower(), known, 1, _ALIKE):
                yield key, f"unknown placeholder {found[0]!r}; did you mean '{{{near[0]}}}'?"
            elif found[0] == argument:
                listed = " and ".join(f"'{{{each}}}'" for each in _PLACEHOLDERS)
                yield (
                    key,
                    f"unknown placeholder {argument!r}; known are {listed}; for the text itself write '{{ {name} }}'",
                )
