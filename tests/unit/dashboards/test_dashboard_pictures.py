# SPDX-License-Identifier: Apache-2.0
"""Pictures of dashboards: every panel of every one has its place, its name and its unit."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from atoll_dashboards.grafana.grafana_client import dashboard_files
from screenshots.panels import Drawn, Line, draw, moment
from screenshots.picture import save

pytestmark = pytest.mark.long

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def pictured(file: Path, figures: float = 5e6, series: int = 3) -> Figure:
    """A dashboard whose queries all have been answered alike."""
    t_s = [float(second) for second in range(60)]
    lines = [Line(f"series {n}", t_s, [figures * (1 + math.sin(t / 9 + n)) for t in t_s]) for n in range(series)]
    panels = json.loads(file.read_text())["panels"]
    drawn = [
        Drawn(panel, rows=[(NOON, "whistle start")]) if panel["type"] == "table" else Drawn(panel, lines=lines)
        for panel in panels
    ]
    return draw(file.stem, drawn, [(20, "orange")], 60)


@pytest.mark.parametrize("file", dashboard_files(), ids=lambda file: file.stem)
def test_every_panel_has_its_place(file: Path, tmp_path: Path) -> None:
    """None upon another, none outside, each with its title; and the file is small enough for a repository."""
    figure = pictured(file)
    panels = json.loads(file.read_text())["panels"]
    boxes = [axes.get_position() for axes in figure.axes]
    assert len(boxes) == len(panels)
    assert all(0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1 for box in boxes)
    assert not [(one, other) for n, one in enumerate(boxes) for other in boxes[:n] if one.overlaps(other)]
    assert {panel["title"] for panel in panels} <= {text.get_text() for text in figure.texts}
    assert save(figure, tmp_path / "picture.png", 40).stat().st_size < 200_000


def panel(figure: Figure, file: Path, title: str) -> Axes:
    titles = [each["title"] for each in json.loads(file.read_text())["panels"]]
    return figure.axes[titles.index(title)]


def said(axes: Axes) -> set[str]:
    return {text.get_text() for text in axes.texts}


def test_units_fit_what_there_is() -> None:
    """5,000,000 bit/s are 5 Mbit/s, bytes 5 MB, ns 5 ms; figures are scaled with them."""
    file = next(each for each in dashboard_files() if each.stem == "satellite-link")
    figure = pictured(file)
    assert "Mbit/s" in said(panel(figure, file, "Rate"))
    assert "MB" in said(panel(figure, file, "Queue"))
    assert "ms" in said(panel(figure, file, "Lateness"))
    (line, *_) = panel(figure, file, "Lateness").get_lines()
    assert max(line.get_ydata()) == pytest.approx(10, rel=0.01)  # pyright: ignore[reportArgumentType]


def test_many_series_are_counted_and_few_are_named() -> None:
    """A key of forty names would hide what it explains."""
    file = next(each for each in dashboard_files() if each.stem == "satellite-link")
    assert panel(pictured(file), file, "Rate").get_legend() is not None
    crowded = panel(pictured(file, series=40), file, "Rate")
    assert crowded.get_legend() is None
    assert "40 series" in said(crowded)


def test_a_panel_without_data_says_so_and_one_of_nothing_but_zeros_stands_on_its_axis() -> None:
    file = next(each for each in dashboard_files() if each.stem == "overview")
    assert "no data" in said(panel(pictured(file, series=0), file, "Drops"))
    assert panel(pictured(file, figures=0.0), file, "Link rate").get_ylim() == (0, 1)


def test_instants_are_those_of_the_run() -> None:
    assert moment(NOON.timestamp() * 1e3) == NOON
