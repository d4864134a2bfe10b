# SPDX-License-Identifier: Apache-2.0
"""Directions of packets.

Tables and figures are of the direction to the island; of runs with uploads there are also those of the direction to the
world, in tables of their own (``queue-to-world``).
"""

from collections.abc import Collection

import polars as pl

from atoll_core.experiment.experiment import Link, LinkDirection
from atoll_core.plan.tag_layout import Direction

__all__ = ("TO_ISLAND", "TO_WORLD", "Direction", "bound", "direction_of", "flows_of", "table_name", "world_port")

TO_ISLAND, TO_WORLD = Direction.TO_ISLAND, Direction.TO_WORLD


def table_name(name: str, direction: Direction) -> str:
    """Return the name of a table of a direction."""
    return name if direction is TO_ISLAND else f"{name}-to-world"


def bound(direction: Direction) -> pl.Expr:
    """Whether a row of packets has this direction."""
    return pl.col("to_island") == (1 if direction is TO_ISLAND else 0)


def direction_of(link: Link, direction: Direction) -> LinkDirection:
    """Return a direction of a link."""
    return link.to_island if direction is TO_ISLAND else link.to_world


def flows_of(direction: Direction, uploading: Collection[str]) -> pl.Expr:
    """Whether a client's flow has this direction. ``uploading``: the clients whose flows are uploads."""
    is_upload = pl.col("client").is_in([*uploading])
    return is_upload if direction is TO_WORLD else ~is_upload


def world_port(direction: Direction) -> str:
    """Return the column of packets that has the port of the world's host."""
    return "sport" if direction is TO_ISLAND else "dport"
