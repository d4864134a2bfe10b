# SPDX-License-Identifier: Apache-2.0
"""The kinds of chain boxes: what each does with packets, declared once.

What depends on a kind asks its traits, not its name. A trait that is None is not the kind's: each box declares it in
lab.yaml.
"""

from dataclasses import dataclass
from enum import StrEnum


class Forwarding(StrEnum):
    """How a box passes on what it takes in."""

    TRANSPARENT = "transparent"  # frames leave as they came, VLAN tag included
    ROUTED = "routed"  # packets leave in frames of the box's own, untagged


@dataclass(frozen=True, slots=True)
class KindTraits:
    """What boxes of a kind have in common.

    ``conserves_packets``: each packet leaves the box once and with the bytes with which it came in; only what the box
    counts as dropped does not leave it, and none is added, split, merged or encoded.
    """

    forwarding: Forwarding | None
    conserves_packets: bool | None
    is_link: bool = False  # a satellite link: has settings in the experiment, counts what it drops
    is_managed: bool = True  # an agent sets it up and starts programs there
    has_program: bool = False  # its program is the user's

    @property
    def is_foreign(self) -> bool:
        """Whether what the box does with packets is not this project's work, so that the box has to declare it."""
        return self.forwarding is None


class BoxKind(StrEnum):
    """What a chain box is."""

    LINK = "link"  # satellite emulator
    ROUTER = "router"  # plain router in the place of a PEP or coder: sends with true MAC addresses
    PROGRAM = "program"  # whatever its program does: bring your own
    EXTERNAL = "external"  # a device with two ports on which nothing is started: a modem, a hardware emulator

    @property
    def traits(self) -> KindTraits:
        """What boxes of this kind have in common."""
        return _TRAITS[self]


_TRAITS = {
    BoxKind.LINK: KindTraits(Forwarding.TRANSPARENT, conserves_packets=True, is_link=True),
    BoxKind.ROUTER: KindTraits(Forwarding.ROUTED, conserves_packets=True),
    BoxKind.PROGRAM: KindTraits(None, conserves_packets=None, has_program=True),
    BoxKind.EXTERNAL: KindTraits(None, conserves_packets=None, is_managed=False),
}
