# SPDX-License-Identifier: Apache-2.0
"""The kinds of chain boxes and the traits of each kind.

Other code uses the traits of a kind, not its name. A trait that is None is declared for each box in lab.yaml.
"""

from dataclasses import dataclass
from enum import StrEnum


class Forwarding(StrEnum):
    """How a box forwards frames."""

    TRANSPARENT = "transparent"  # frames leave as they came, VLAN tag included
    ROUTED = "routed"  # packets leave in frames of the box's own, untagged


@dataclass(frozen=True, slots=True)
class KindTraits:
    """The properties of all boxes of a kind.

    ``conserves_packets``: each packet leaves the box once and unchanged, or is counted as dropped. The box adds no
    packets and does not split, merge or encode any.
    """

    forwarding: Forwarding | None
    conserves_packets: bool | None
    is_link: bool = False  # a satellite link: has settings in the experiment, counts dropped packets
    is_managed: bool = True  # an agent sets it up and starts programs there
    has_program: bool = False  # its program is the user's

    @property
    def is_foreign(self) -> bool:
        """Whether the program or device is not this project's, so that each box has to declare its properties."""
        return self.forwarding is None


class BoxKind(StrEnum):
    """The kind of a chain box."""

    LINK = "link"  # satellite emulator
    ROUTER = "router"  # plain router in the place of a PEP or coder: sends with true MAC addresses
    PROGRAM = "program"  # a machine that runs the user's program
    EXTERNAL = "external"  # a device with two ports on which nothing is started: a modem, a hardware emulator

    @property
    def traits(self) -> KindTraits:
        """The properties of all boxes of this kind."""
        return _TRAITS[self]


_TRAITS = {
    BoxKind.LINK: KindTraits(Forwarding.TRANSPARENT, conserves_packets=True, is_link=True),
    BoxKind.ROUTER: KindTraits(Forwarding.ROUTED, conserves_packets=True),
    BoxKind.PROGRAM: KindTraits(None, conserves_packets=None, has_program=True),
    BoxKind.EXTERNAL: KindTraits(None, conserves_packets=None, is_managed=False),
}
