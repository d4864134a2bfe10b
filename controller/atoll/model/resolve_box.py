# SPDX-License-Identifier: Apache-2.0
"""Which keys of a chain box go together."""

from collections.abc import Iterator

from atoll.model.network import BoxKind, ChainBox

_FOREIGN = (BoxKind.PROGRAM, BoxKind.EXTERNAL)


def unfit(box: ChainBox) -> Iterator[tuple[str, str]]:
    """Keys of a box that do not fit its kind, each with what is wrong and what would be right."""
    kind = box.kind.value
    if box.kind in _FOREIGN and box.forwarding is None:
        what = "transparent if frames leave it as they came, routed if it sends packets in frames of its own"
        yield "forwarding", f"a box of kind {kind} must say how it forwards; write {what}"
    if box.kind not in _FOREIGN:
        for key, given in (("forwarding", box.forwarding), ("stateful", box.stateful)):
            if given:
                yield key, f"a box of kind {kind} is known in this; remove the key, or make it a program or external"
    if box.kind is BoxKind.PROGRAM and not (box.program and box.program.start):
        yield "program", "a box of kind program has one; add 'program: {start: [...]}'"
    if box.kind is not BoxKind.PROGRAM and box.program:
        yield "program", f"nothing is started on a box of kind {kind}; remove it, or write kind: program"
    if box.spare and not box.routed:
        yield "spare", "a transparent box keeps VLAN tags, which tell versions apart; remove its spare legs"
