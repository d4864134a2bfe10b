# SPDX-License-Identifier: Apache-2.0
"""Figures of groups of clients that have a load of their own."""

from collections.abc import Mapping

import polars as pl

from atoll_analysis.figures.flows import flow_classes
from atoll_analysis.figures.observables import channel_flows
from atoll_analysis.summary import GroupFigures, Volume
from atoll_analysis.tables.directions import Direction
from atoll_analysis.tables.run_data import RunData
from atoll_analysis.tables.tables import Tables


def group_figures(
    tables: Tables, data: RunData, volumes_by_direction: Mapping[Direction, Mapping[str, Volume]]
) -> dict[str, GroupFigures]:
    """Return the figures of each group by name; empty without groups. Volumes are by client, empty: not known."""
    figures: dict[str, GroupFigures] = {}
    for load in data.experiment.traffic.groups:
        flows = tables.scan("channel_flows").filter(pl.col("client").is_in(load.clients))
        counts, mean_bytes = channel_flows(flows)
        volumes = volumes_by_direction.get(Direction(load.direction.of_link), {})
        goodput = [volumes[client].get("goodput_mbit_s") for client in load.clients if client in volumes]
        figures[load.name] = GroupFigures(
            clients=list(load.clients),
            channels=max(
                each.channels for traffic in data.experiment.loads for each in traffic.groups if each.name == load.name
            ),
            flows_completed=counts["flows_completed"],
            flows_cut=counts["flows_cut"],
            flows_failed=counts["flows_failed"],
            mean_flow_bytes=mean_bytes,
            goodput_mbit_s=sum(rate or 0.0 for rate in goodput) if goodput and None not in goodput else None,
            flow_classes=flow_classes(flows),
        )
    return figures
