# SPDX-License-Identifier: Apache-2.0
"""The fate of a link's packets one after another, of a run that was analysed."""

from dataclasses import dataclass
from typing import cast

import polars as pl

from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_analysis.tables.table_schemas import scan_table
from atoll_core.description.link_trace import MAX_TRACE_PACKETS
from atoll_core.errors import RunError, UsageError


@dataclass(frozen=True, slots=True)
class _PacketFates:
    """Of packets to the island that came to a link within the measurement, in their order: whether it lost them."""

    link: str
    lost: tuple[bool, ...]
    total: int  # of which these are the first


def fates_of_packets(run: RunDir, link: str | None = None) -> _PacketFates:
    """Return what became of the packets at a link, by default the slowest one; at most those of one loss trace.

    Raises RunError if the run was not analysed or its captures do not show this, UsageError if there is no such link.
    """
    summary = cast("Summary", run.summary())
    if "loss_bursts" not in summary:
        raise RunError(f"{run.path}: analysed by an older version; run `atoll report {run.path}` to analyse it again")
    bursts, box = summary["loss_bursts"], link or summary["bottleneck"]
    if box is None:
        raise RunError(f"{run.path}: the run has no link")
    if box not in summary["links"]:
        from atoll_core.description.validation_messages import suggest  # imports pydantic

        raise UsageError(f"--link: unknown link {box!r}; {suggest(box, summary['links'], 'links')}")
    if box not in bursts:
        raise RunError(
            f"{run.path}: no captures before and behind {box} show which packets it lost; put a tap on each side of it"
        )
    if not bursts[box]["packets"]:
        raise RunError(f"{run.path}: no packet to the island came to {box} within the measurement")
    total = bursts[box]["packets"]
    count = min(total, MAX_TRACE_PACKETS)
    is_lost_here = (pl.col("link") == box) & (pl.col("number") < count)
    numbers = scan_table(run.tables / "losses.parquet").filter(is_lost_here).select("number").collect()
    lost = pl.Series(values=[False]).new_from_index(0, count).scatter(numbers["number"], values=True)
    return _PacketFates(box, tuple(lost), total)
