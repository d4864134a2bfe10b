# SPDX-License-Identifier: Apache-2.0
"""Pictures of the Grafana dashboards' data: every panel's queries put to a real Grafana, its answers drawn.

Not of Grafana's own page: `tools/servers` builds its back end only, which reads the provisioned dashboards and asks
the database. Colours and fonts are those of reports, panels, units, names and places are the dashboards'.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.metrics_spool import SPOOL, read_spool
from atoll_core.errors import AtollError
from atoll_dashboards.grafana.grafana_client import Grafana, dashboard_files
from atoll_dashboards.influx.influx_client import Database
from atoll_dashboards.influx.influx_load import ALIGNED_NS, Times, load_run
from screenshots.panels import Drawn, Line, Mark, draw, moment
from screenshots.picture import save
from tests.support.grafana_queries import annotations, chosen, frames
from tests.support.influx_servers import GrafanaServer, Influx2
from tests.support.sandbox import ATOLL, ROOT, Sandbox

GEO = ROOT / "examples" / "geo.yaml"
CHANGES = """
changes:
  - {at: 20 s, chain: [tap-w, coder-w, sat, coder-i, tap-i]}
  - {at: 40 s, latency: {w1: rtt-200}}
"""
QUEUES = ("50 kB", "100 kB", "250 kB")
COMPARISON = "run-comparison"
_DPI = 85
_COLOURS = {"whistle": "#0072B2", "change": "#E69F00", "swap": "#CC79A7", "note": "#D55E00"}


def make(run: Path, out: Path) -> list[Path]:
    """Write dashboard-NAME.png of each dashboard. Raises AtollError when a run cannot be made.

    ``run``: shown if it was made in real time. In virtual time switches and machines are asked for their counters too
    rarely to be a picture; a minute of the demo is then run, with a change of the chain and one of a latency.
    """
    with tempfile.TemporaryDirectory(prefix="atoll-dashboards-") as made:
        place = Path(made)
        shown = RunDir.open(run)
        if shown.manifest().get("virtual"):
            shown = RunDir.open(_real_run(place))
        compared = [RunDir.open(each) for each in _runs_to_compare(place)]
        with Influx2(place / "influx") as influx, GrafanaServer(place, influx, provisioned=True) as server:
            influx.start().wait().set_up()
            with Database(influx.settings) as database:
                load_run(shown, database.write)
                for each in compared:
                    load_run(each, database.write, Times.ALIGNED)
            server.start().wait()
            grafana = Grafana(server.url, server.token)
            return [_picture(grafana, file, shown, compared, out) for file in dashboard_files()]


def _real_run(place: Path) -> Path:
    experiment = place / "geo.yaml"
    experiment.write_text(GEO.read_text().replace("lab: ../", f"lab: {ROOT}/") + CHANGES)
    with Sandbox(place) as sandbox:
        done = sandbox.run(ATOLL, "run", experiment, "--no-analysis", "--json", limit_s=200)
    return _directory(done)


def _runs_to_compare(place: Path) -> Iterator[Path]:
    """The demo in virtual time with queues of several sizes."""
    for queue in QUEUES:
        words = ["--on", "virtual", "--no-analysis", "--json", "--set", f"links.sat.to_island.queue={queue}"]
        yield _directory(
            subprocess.run([ATOLL, "run", GEO, *words], cwd=place, capture_output=True, text=True, check=False)
        )


def _directory(done: subprocess.CompletedProcess[str]) -> Path:
    if done.returncode:
        raise AtollError(f"the demo could not be run: {done.stderr.strip().splitlines()[-1]}")
    return Path(json.loads(done.stdout)["run_dir"])


def _picture(grafana: Grafana, file: Path, shown: RunDir, compared: list[RunDir], out: Path) -> Path:
    page = json.loads(file.read_text())
    if file.stem == COMPARISON:
        runs, begin_ms, end_ms = [_name(each) for each in compared], ALIGNED_NS / 1e6, ALIGNED_NS / 1e6 + 60_000
        marks: list[Mark] = []
    else:
        stamps = [int(line.rpartition(" ")[2]) for line in read_spool(shown.path / SPOOL)]
        runs, begin_ms, end_ms = [_name(shown)], min(stamps) / 1e6, max(stamps) / 1e6
        marks = [
            ((at_ms - begin_ms) / 1e3, colour)
            for kind, marks in annotations(grafana, file, runs[0]).items()
            if (colour := _COLOURS.get(kind))
            for at_ms, _ in marks
        ]
    drawn = [_answered(grafana, panel, runs, begin_ms, end_ms) for panel in page["panels"]]
    figure = draw(f"{page['title']}   {', '.join(runs)}", drawn, marks, (end_ms - begin_ms) / 1e3)
    return save(figure, out / f"dashboard-{file.stem}.png", _DPI)


def _name(run: RunDir) -> str:
    return f"geo-{run.name}"


def _answered(grafana: Grafana, panel: dict[str, Any], runs: list[str], begin_ms: float, end_ms: float) -> Drawn:
    interval_ms = 2000 if panel.get("interval", "2s") == "2s" else 250
    frames_by_query = [
        (target["refId"], frame)
        for target in panel["targets"]
        for frame in frames(
            grafana, {**target, "query": chosen(target["query"], *runs)}, int(begin_ms), int(end_ms) + 1, interval_ms
        )
    ]
    if panel["type"] == "table":
        columns = {_column(frame): frame["data"]["values"] for _, frame in frames_by_query}
        times, texts = next(values for name, values in columns.items() if name.endswith("text"))
        return Drawn(panel, rows=[(moment(t), text) for t, text in zip(times, texts, strict=True)])
    lines: list[Line] = []
    dots = _in_dots(panel)
    for part, frame in frames_by_query:
        pairs = zip(*frame["data"]["values"], strict=True)
        kept = [((t - begin_ms) / 1e3, figure) for t, figure in pairs if figure is not None]
        if kept:
            lines.append(Line(_column(frame), [t for t, _ in kept], [figure for _, figure in kept], part in dots))
    return Drawn(panel, lines=lines)


def _in_dots(panel: dict[str, Any]) -> set[str]:
    """The queries (``refId``) whose figures Grafana shows as dots."""
    return {
        each["matcher"]["options"]
        for each in panel["fieldConfig"].get("overrides", [])
        if {"id": "custom.drawStyle", "value": "points"} in each["properties"]
    }


def _column(frame: dict[str, Any]) -> str:
    """Grafana's names of the figures of a frame."""
    return frame["schema"]["fields"][1]["config"]["displayNameFromDS"]
