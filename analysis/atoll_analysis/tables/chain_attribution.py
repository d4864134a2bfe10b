# SPDX-License-Identifier: Apache-2.0
"""Attribute packets to chains by addresses, protocol and the version that was active at that instant.

A packet in flight when a version became active counts for the new version, though the old one carried it: at the
arrival capture these are the packets of one round trip.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from ipaddress import IPv4Network

import polars as pl

from atoll_analysis.tables.change_timeline import SteeringPeriod
from atoll_core.experiment.experiment import Chain


def by_chain(
    standing: Sequence[SteeringPeriod],
    label: Callable[[Chain], str],
    world: str,
    island: str,
    proto: pl.Expr,
    t_ns: str,
) -> pl.Expr:
    """``label`` of the chain that carries a row; its ends' addresses (UInt32) and its instant are columns.

    ``proto``: the number of its protocol.
    """

    def in_version(each: SteeringPeriod) -> pl.Expr:
        *branches, rest = each.experiment.chains
        found: pl.Expr = pl.lit(label(rest))
        for branch in reversed(branches):
            found = pl.when(_takes(branch, world, island, proto)).then(pl.lit(label(branch))).otherwise(found)
        return found

    return reduce(
        lambda before, each: pl.when(pl.col(t_ns) < each.since_ns).then(before).otherwise(in_version(each)),
        standing[1:],
        in_version(standing[0]),
    )


def _takes(branch: Chain, world: str, island: str, proto: pl.Expr) -> pl.Expr:
    carries = branch.carries
    takes: pl.Expr = pl.lit(value=True)
    if carries.world is not None:
        takes &= _within(world, carries.world)
    if carries.island is not None:
        takes &= _within(island, carries.island)
    if carries.protocol is not None:
        takes &= proto == carries.protocol.number
    return takes


def _within(column: str, prefix: IPv4Network) -> pl.Expr:
    return pl.col(column).is_between(int(prefix.network_address), int(prefix.broadcast_address))
