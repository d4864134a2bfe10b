# SPDX-License-Identifier: Apache-2.0
"""How the frames of one chain are told apart from those of another version of it, or from themselves elsewhere.

Flow entries see ports, VLAN tags and IPv4 headers. Where two stretches of a way, or the old and the new version of a
chain, share a port, a VLAN tag makes the difference; a routed box, which loses tags, is passed by its spare legs.
"""

from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """Which way frames go."""

    TO_ISLAND = "to-island"
    TO_WORLD = "to-world"


@dataclass(frozen=True, slots=True, order=True)
class GapTag:
    """Frames of a chain cross the trunks of one gap with this tag.

    Gap 0 lies before the first box, gap 1 behind it; gap -1 between world hosts and their delay box.
    """

    chain: str
    direction: Direction
    gap: int
    vlan: int


@dataclass(frozen=True, slots=True, order=True)
class BoxTag:
    """Frames of a chain pass a transparent box with this tag, in both directions."""

    chain: str
    box: str
    vlan: int


@dataclass(frozen=True, slots=True)
class Layout:
    """What tells frames apart beyond ports and headers; without anything, every frame is untagged, as a rule."""

    gaps: tuple[GapTag, ...] = ()
    boxes: tuple[BoxTag, ...] = ()
    spare: tuple[tuple[str, str], ...] = ()  # (chain, routed box): passed by its spare legs

    @property
    def vlans(self) -> frozenset[int]:
        """The VLAN ids in use."""
        return frozenset(tag.vlan for tag in (*self.gaps, *self.boxes))

    def gap_vlan(self, chain: str, direction: Direction, gap: int) -> int | None:
        """The tag on the trunks of a gap; None: untagged."""
        named = (tag.vlan for tag in self.gaps if (tag.chain, tag.direction, tag.gap) == (chain, direction, gap))
        return next(named, None)

    def box_vlan(self, chain: str, box: str) -> int | None:
        """The tag with which a transparent box is passed; None: untagged."""
        return next((tag.vlan for tag in self.boxes if (tag.chain, tag.box) == (chain, box)), None)


UNTAGGED = Layout()
"""Where every experiment begins: nothing is tagged but what its own stretches need."""
