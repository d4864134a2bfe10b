# SPDX-License-Identifier: Apache-2.0
"""The report is one page that needs nothing else, and says what the summary says."""

import base64
import html.parser
import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from rich.console import Console

from atoll_analysis import analyse
from atoll_analysis.run_directory import RunDir
from atoll_analysis.summary import Summary
from atoll_core.description.loader import load_experiment
from atoll_core.errors import RunError
from atoll_dashboards.report.key_figures import key_figures
from atoll_dashboards.report.plots import PLOTS
from atoll_dashboards.report.provenance import one_line_summary
from atoll_dashboards.report.report import write_report
from atoll_dashboards.report.terminal_summary import summary_text
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import START_NS, begin, experiment, network, simulate


class Page(html.parser.HTMLParser):
    """What a browser would fetch, and the text it would show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.images: list[bytes] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, content in attrs:
            if name in ("src", "href", "srcset", "data", "action") and content:
                head, _, body = content.partition(",")
                if head == "data:image/svg+xml;base64":
                    self.images.append(base64.b64decode(body))
                else:
                    self.fetched.append(content)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """Below a directory whose name would be a pattern of files to some: it is one directory."""
    simulated = simulate(tmp_path_factory.mktemp("report") / "runs of [today]*", seconds=10)
    analyse(simulated, find_binary())
    return simulated


@pytest.fixture(scope="module")
def page(run: RunDir) -> str:
    return write_report(run).read_text()


def test_a_page_fetches_nothing_and_runs_nothing(page: str) -> None:
    parsed = Page(page)
    assert parsed.fetched == []
    assert not {"script", "link", "iframe", "object"} & set(parsed.tags)
    assert "url(" not in page
    assert "@import" not in page


def test_every_figure_is_drawn_from_a_whole_run_as_well_formed_svg(page: str) -> None:
    images = Page(page).images
    assert len(images) == len(PLOTS) - 6  # one chain, one link, UDP and uploads that were not asked for have no figures
    for image in images:
        assert ET.fromstring(image).tag.endswith("svg")


def test_a_page_says_what_the_summary_says(run: RunDir, page: str) -> None:
    summary, text = run.summary(), Page(page).text
    assert summary["verdict"] == "valid"
    assert f"{summary['goodput_mbit_s']:.2f}\u00a0Mbit/s" in text
    assert f"{summary['sojourn_max_ms']:.1f}\u00a0ms" in text
    assert "full queues (8 x bytes / rate) 50.0 to the island + 200.0 back" in text
    assert "captures agree" in text
    assert run.manifest()["plan_sha256"] in text


def test_the_queue_was_full_as_long_as_its_table_says(run: RunDir) -> None:
    full = pl.read_parquet(run.tables / "queue.parquet", glob=False).filter("full")
    assert run.summary()["queue_full_s"] == pytest.approx(full["seconds"].sum())


def test_equal_runs_give_equal_pages(run: RunDir, page: str) -> None:
    assert write_report(run).read_text() == page


def test_reasons_are_shown_and_text_is_never_taken_for_html(run: RunDir, page: str) -> None:
    summary = run.summary()
    try:
        run.write_summary({**summary, "verdict": "invalid", "reasons": ["<script>alert(1)</script> & so on"]})
        shown = write_report(run).read_text()
    finally:
        run.write_summary(summary)
        (run.path / "report.html").write_text(page)
    assert "script" not in Page(shown).tags
    assert "<script>alert(1)</script> & so on" in Page(shown).text
    assert 'class="badge invalid"' in shown


def test_a_run_that_measured_nothing_has_a_report_too(tmp_path: Path) -> None:
    dead = begin(tmp_path, experiment(), network())
    dead.update_manifest({"outcome": "cancelled at step captures"})
    (dead.path / "events.jsonl").unlink()
    (dead.logs / "load-i1.out").write_text('{"type":"done","fairness":null,"channels_served":0,"longest_wait_ns":0}\n')
    summary = analyse(dead, find_binary())
    parsed = Page(write_report(dead).read_text())
    assert "cancelled at step captures" in parsed.text
    assert parsed.images == []
    shown = {known.name: known for known in key_figures(cast("Summary", summary))}
    assert "fairness" not in shown
    without = "the link reported no counts for the whole measurement"
    assert (shown["goodput"].text, shown["goodput"].remark) == ("\N{EN DASH}", "no capture shows it")
    assert shown["loss to the island"].remark == without
    # Marks without a measurement between them lost nothing in any account: nothing agrees with nothing.
    idle = cast("Summary", {**summary, "loss_bytes_link": 0, "loss_bytes_captures": 0})
    assert {known.name: known.remark for known in key_figures(idle)}[
        "loss to the island"
    ] == "no packet came to the link"
    captured = cast("Summary", {**summary, "arrival": "island"})
    assert {known.name: known.remark for known in key_figures(captured)}["goodput"] == (
        "the measurement did not begin or end"
    )


def test_a_run_that_was_not_analysed_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"not analysed yet .*atoll report"):
        write_report(begin(tmp_path, experiment(), network()))


def test_figures_share_their_time_axis(run: RunDir) -> None:
    from atoll_dashboards.report.report_data import read_sources

    sources = read_sources(run)
    boxes = set()
    for plot in PLOTS:
        if plot.name in ("rates", "queue", "loss", "concurrent"):
            figure = plot.figure(sources)
            assert figure is not None
            for axes in figure.axes:
                assert axes.get_xlim() == (0, 10)
                position = axes.get_position()
                boxes.add((round(position.x0, 6), round(position.x1, 6)))
    assert len(boxes) == 1


def shown(summary: dict[str, Any], width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(summary_text(summary))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_terminal_shows_verdict_reasons_and_key_figures(run: RunDir) -> None:
    found = {"reasons": ["a departure was late"], "caveats": ["two stalls"], "notes": ["no island tap"]}
    text = shown({**run.summary(), "verdict": "invalid", **found})
    assert re.search(r"synthetic\s+seed 1\s+invalid", text)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[1:4] == ["reason a departure was late", "caveat two stalls", "note no island tap"]
    for name in ("goodput", "utilisation", "largest ping sojourn", "transfer", "terrestrial RTT"):
        assert name in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100


def test_the_terminal_shows_what_was_asked_for_and_not_measured_as_a_dash(tmp_path: Path) -> None:
    """What a run could not measure at all is left out: lateness where the kernel's tc sees to departures, say."""
    dead = begin(tmp_path, experiment(transfer=None), network())
    dead.update_manifest({"outcome": f"failed at step check: {START_NS}"})
    text = shown(analyse(dead, find_binary()))
    assert re.search("goodput +\N{EN DASH}", text)
    assert "lateness at most" not in text
    assert "transfer" not in text


def test_importing_the_report_loads_no_heavy_library() -> None:
    code = (
        "import sys, atoll_analysis, atoll_analysis.run_directory;"
        "import atoll_dashboards.report.report, atoll_dashboards.report.terminal_summary;"
        "print(sorted({'polars', 'matplotlib', 'numpy', 'jinja2', 'zstandard', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_title_of_uploads_has_the_links_to_the_world(project: Path) -> None:
    for direction, rate in (("download", "16 Mbit/s"), ("upload", "4 Mbit/s")):
        _, described = load_experiment(
            project / "examples/geo.yaml", [f"traffic={{channels: 1, direction: {direction}}}", "transfer=null"]
        )
        assert one_line_summary(described).startswith(f"sat: {rate}, ")
