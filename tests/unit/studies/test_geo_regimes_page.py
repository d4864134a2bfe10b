# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/geo-regimes.md are those of the committed figures."""

from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import pytest

import atoll
from atoll_studies.results.result_tables import columns


def test_the_page_shows_the_committed_figures(project: Path) -> None:
    runs = pl.read_csv(project / "docs/data/geo-regimes.csv")
    page = (project / "docs/geo-regimes.md").read_text()
    for (load,), rows in runs.group_by("load"):
        if "doubled" not in str(load):
            cells = [f"| {str(load).split()[0]} |"]
            cells += [f"{name} {count}" for name, count in rows["regime"].value_counts().iter_rows()]
            cells += [f"{rows['utilisation_percent'].median():.1f} %", f"{rows['loss_percent'].median():.1f} %"]
            cells += [f"{rows['queue_sojourn_p95_ms'].median():.1f} ms"]
            (line,) = [each for each in page.splitlines() if (each.startswith(cells[0]) and "oscillation" in each)
                       or (each.startswith(cells[0]) and "congestion" in each)]  # fmt: skip
            assert [cell for cell in cells if cell not in line] == []
    before, after = (
        runs.filter(pl.col("load") == load).sort("seed")["transfer_time_s"].to_list()
        for load in ("20 channels", "20 channels, doubled queue")
    )
    factors = [two / one for one, two in zip(before, after, strict=True)]
    for seed, (one, two, factor) in enumerate(zip(before, after, factors, strict=True), 1):
        assert f"| {seed} | {one:.1f} s | {two:.1f} s | {factor:.2f} |" in page
    assert f"takes {median(factors):.2f} of the time" in page
    assert f"interval {min(factors):.2f}\nto {max(factors):.2f}" in page


def test_the_committed_figures_are_what_the_pages_commands_select(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table that has all columns of ``runs`` and the committed values."""
    committed = project / "docs/data/geo-regimes.csv"
    values = pl.read_csv(committed)
    assert set(values.columns) - {"load"} <= columns()
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
