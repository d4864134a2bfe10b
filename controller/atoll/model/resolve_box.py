# SPDX-License-Identifier: Apache-2.0
"""Which keys of a chain box go together."""

from collections.abc import Iterator

from atoll.model.network import ChainBox


def unfit(box: ChainBox) -> Iterator[tuple[str, str]]:
    """Keys of a box that do not fit its kind, each with what is wrong and what would be right."""
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
                yield key, f"a box of kind {kind} is known in this; remove the key, or make it a program or external"
    if traits.has_program and not (box.program and box.program.start):
        yield "program", "a box of kind program has one; add 'program: {start: [...]}'"
    if box.program and not traits.has_program:
        yield "program", f"nothing is started on a box of kind {kind}; remove it, or write kind: program"
    if box.spare and not box.routed:
        yield "spare", "a transparent box keeps VLAN tags, which tell versions apart; remove its spare legs"
