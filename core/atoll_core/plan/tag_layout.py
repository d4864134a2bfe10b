# SPDX-License-Identifier: Apache-2.0
"""VLAN tags that distinguish frames of two versions of a chain, or of one chain at two places.

Flow entries match ports, VLAN tags and IPv4 headers. Where two segments of a path, or the old and the new version of a
chain, share a port, a VLAN tag distinguishes their frames. A routed box removes tags; its spare ports are used instead.
"""

from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """The direction of frames, by the names that links' directions have (``experiment.DIRECTIONS``)."""

    TO_ISLAND = "to_island"
    TO_WORLD = "to_world"

    @classmethod
    def _missing_(cls, value: object) -> "Direction | None":
        """Plans of older runs have a hyphen."""
        return cls(value.replace("-", "_")) if isinstance(value, str) and "-" in value else None


@dataclass(frozen=True, slots=True, order=True)
class GapTag:
    """The tag of a chain's frames on the trunks of one gap.

    Gap 0 is before the first box, gap 1 behind it, gap -1 between world hosts and their delay box.
    """

    chain: str
    direction: Direction
    gap: int
    vlan: int


@dataclass(frozen=True, slots=True, order=True)
class BoxTag:
    """The tag of a chain's frames in a transparent box, in both directions."""

    chain: str
    box: str
    vlan: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The tags and spare ports in use; frames without an entry here are untagged."""

    gaps: tuple[GapTag, ...] = ()
    boxes: tuple[BoxTag, ...] = ()
    spare: tuple[tuple[str, str], ...] = ()  # (chain, routed box): passed by its spare ports

    @property
    def vlans(self) -> frozenset[int]:
        """The VLAN ids in use."""
        return frozenset(tag.vlan for tag in (*self.gaps, *self.boxes))

    def gap_vlan(self, chain: str, direction: Direction, gap: int) -> int | None:
        """The tag on the trunks of a gap; None: untagged."""
        vlans = (tag.vlan for tag in self.gaps if (tag.chain, tag.direction, tag.gap) == (chain, direction, gap))
        return next(vlans, None)

    def box_vlan(self, chain: str, box: str) -> int | None:
        """The tag with which a transparent box is passed; None: untagged."""
        return next((tag.vlan for tag in self.boxes if (tag.chain, tag.box) == (chain, box)), None)


UNTAGGED = Layout()
"""The layout of a first version: only segments that need a tag have one."""
