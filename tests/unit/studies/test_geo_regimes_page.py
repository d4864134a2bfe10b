# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/geo-regimes.md are those of the committed figures."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import atoll
from atoll_studies.results.result_tables import reserved_columns

MEDIANS = (
    "utilisation_percent",
    "loss_percent",
    "queue_sojourn_p95_ms",
    "queue_full_and_empty_percent",
    "standing_queue_percent",
)


def cells(page: str, heading: str) -> list[list[str]]:
    """The cells of the rows below a heading, without units."""
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and line[2].isdigit()]
    return [[cell.strip().removesuffix(" %").removesuffix(" ms").removesuffix(" s") for cell in row.split("|")[1:-1]]
            for row in rows]  # fmt: skip


def test_the_rows_of_the_page_are_those_of_the_committed_figures(project: Path) -> None:
    runs = pl.read_csv(project / "docs/data/geo-regimes.csv")
    page = (project / "docs/geo-regimes.md").read_text()
    loads = dict.fromkeys(runs.filter(~pl.col("load").str.contains("doubled"))["load"])
    regimes = cells(page, "The regimes")
    assert [row[0] for row in regimes] == [load.split()[0] for load in loads]
    for load, row in zip(loads, regimes, strict=True):
        of_load = runs.filter(pl.col("load") == load)
        assert dict(each.rsplit(" ", 1) for each in row[1].split(", ")) == {
            name: str(count) for name, count in of_load["regime"].value_counts().iter_rows()
        }
        assert [float(cell) for cell in row[2:]] == [float(f"{of_load[name].median():.1f}") for name in MEDIANS]
    before, after = (
        runs.filter(pl.col("load") == load).sort("seed")["transfer_time_s"].to_list()
        for load in ("20 channels", "20 channels, doubled queue")
    )
    assert cells(page, "Twice the queue, at 20 channels") == [
        [str(seed), f"{one:.1f}", f"{two:.1f}", f"{two / one:.2f}"]
        for seed, (one, two) in enumerate(zip(before, after, strict=True), 1)
    ]


def test_the_committed_figures_are_what_the_pages_commands_select(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table that has all columns of ``runs`` and the committed values."""
    committed = project / "docs/data/geo-regimes.csv"
    values = pl.read_csv(committed)
    assert set(values.columns) - {"load"} <= reserved_columns()
    code = (project / "docs/geo-regimes.md").read_text().partition("```python\n")[2].partition("```")[0]

    class Opened:
        def __init__(self, path: Any) -> None:
            assert path == "runs/studies/geo-regimes"

        def runs(self) -> pl.DataFrame:
            return values.select(*reversed(values.columns), pl.lit("/somewhere").alias("run"))

    monkeypatch.setattr(atoll, "open_study", Opened)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs/data").mkdir(parents=True)
    exec(code)
    assert (tmp_path / "docs/data/geo-regimes.csv").read_bytes() == committed.read_bytes()
