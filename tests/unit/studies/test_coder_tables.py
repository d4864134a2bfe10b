# SPDX-License-Identifier: Apache-2.0
"""The tables of the studies with coders are those of the committed figures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from atoll_studies.results.result_tables import reserved_columns

SCHEDULERS, COST = "coder-schedulers", "coder-cost"
CODED, UNCODED = "goodput_of_the_main_chain_mbit_s", "goodput_of_branches_mbit_s"


def middle(rows: pl.DataFrame, figure: str) -> float | None:
    found: Any = rows[figure].median()
    return found


def schedulers(runs: pl.DataFrame) -> Iterator[str]:
    """Rows of the first table: medians of each combination."""
    for (link, channels, remedy), rows in runs.group_by("link", "traffic.channels", "remedy"):
        ended = rows["transfer_time_s"].drop_nulls()
        some = f" ({len(ended)} of {len(rows)})" if len(ended) < len(rows) else ""
        yield (
            f"| {link} | {channels} | {remedy} | {ended.median():.1f} s{some} | {middle(rows, CODED):.1f} | "
            f"{middle(rows, UNCODED):.1f} | {middle(rows, 'loss_percent'):.1f} % | "
        )


def cost(runs: pl.DataFrame) -> Iterator[str]:
    """Rows of the second table: medians of goodput, and of the ratios to that without coders with the same seed."""
    for (queue, coding), rows in runs.group_by("queue", "coding"):
        alike = runs.filter(queue=queue, coding="off").select("seed", off="received_mbit_s")
        change_percent = 100 * (pl.col("received_mbit_s") / pl.col("off") - 1)
        pairs = rows.join(alike, on="seed").select(change=change_percent)["change"]
        low, high = (f"{each:+.1f}" for each in (pairs.min(), pairs.max()))
        change = "" if coding == "off" else f"{pairs.median():+.1f} % ({low} to {high})"
        yield f"| {queue} | {coding} | {middle(rows, 'received_mbit_s'):.2f} | {change} | "


@pytest.mark.parametrize(("study", "rows_of"), [(SCHEDULERS, schedulers), (COST, cost)])
def test_the_table_shows_the_committed_figures(project: Path, study: str, rows_of: Any) -> None:
    runs = pl.read_csv(project / f"docs/data/{study}.csv")
    lines = (project / f"benchmarks/figures/{study}.md").read_text(encoding="utf-8").splitlines()
    wanted = list(rows_of(runs))
    assert len(wanted) > 10
    assert [row for row in wanted if not any(line.startswith(row) for line in lines)] == []


@pytest.mark.parametrize("study", [SCHEDULERS, COST])
def test_the_committed_figures_are_columns_of_studies_and_all_runs_are_valid(project: Path, study: str) -> None:
    runs = pl.read_csv(project / f"docs/data/{study}.csv")
    own = {"remedy", "link", "traffic.channels", "queue", "coding", "received_mbit_s"}
    assert set(runs.columns) - own <= reserved_columns()
    assert not runs["verdict"].str.starts_with("invalid").any()
