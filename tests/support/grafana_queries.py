# SPDX-License-Identifier: Apache-2.0
"""Every query of the dashboards as Grafana's page would put it to its back end, and what came of it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_dashboards.grafana.grafana_client import Grafana


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of a dashboard: where it stands, its text, and the points that came back."""

    where: str
    query: str
    points: int


def queries(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The queries of a dashboard's panels, annotations and variables, and where each stands."""
    page = json.loads(file.read_text())
    for panel in page["panels"]:
        for target in panel["targets"]:
            yield f"{file.stem}: {panel['title']} {target['refId']}", target
    for mark in page["annotations"]["list"]:
        yield f"{file.stem}: annotation {mark['name']}", {"query": mark["query"], "resultFormat": "table"}
    for each in page["templating"]["list"]:
        yield f"{file.stem}: variable {each['name']}", {"query": each["query"], "resultFormat": "table"}


def ask(grafana: Grafana, file: Path, run: str, begin_ms: int, end_ms: int) -> list[Asked]:
    """Put each of a dashboard's queries for one run, all its boxes, hosts and switches."""
    found: list[Asked] = []
    for where, target in queries(file):
        query = chosen(target["query"], run)
        columns = [frame["data"]["values"] for frame in frames(grafana, {**target, "query": query}, begin_ms, end_ms)]
        found.append(Asked(where, query, sum(len(values[0]) for values in columns if values)))
    return found


def annotations(grafana: Grafana, file: Path, run: str) -> dict[str, list[tuple[float, str]]]:
    """The marks of a dashboard for one run: by kind of event the instants (ms since 1970), in order, and texts."""
    found: dict[str, list[tuple[float, str]]] = {}
    for mark in json.loads(file.read_text())["annotations"]["list"]:
        target = {"query": chosen(mark["query"], run), "resultFormat": "table"}
        (frame,) = frames(grafana, target, 0, 2**42)
        times, texts = frame["data"]["values"]
        found[mark["name"]] = list(zip(times, texts, strict=True))
        assert frame["schema"]["fields"][1]["config"]["displayNameFromDS"] == f"event.{mark['textColumn']}"
    return found


def frames(
    grafana: Grafana, target: dict[str, Any], begin_ms: int, end_ms: int, interval_ms: int = 1000
) -> list[dict[str, Any]]:
    """What a query finds whose template variables are :func:`chosen`: data frames. ``interval_ms``: of its panel."""
    asked = {
        "refId": "A",
        "datasource": {"type": "influxdb", "uid": "atoll"},
        "query": target["query"],
        "rawQuery": True,
        "resultFormat": target["resultFormat"],
        "alias": target.get("alias", ""),
        "intervalMs": interval_ms,
        "maxDataPoints": 1000,
    }
    answer = grafana.query({"queries": [asked], "from": str(begin_ms), "to": str(end_ms)})
    result = answer["results"]["A"]
    assert "error" not in result, (target["query"], result["error"])
    return result["frames"]


def chosen(query: str, *runs: str) -> str:
    """The query with its template variables filled in, as the page does: some runs, all boxes, hosts and switches."""
    escaped = [re.escape(run) for run in runs]
    query = query.replace("$run", escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})")
    return re.sub(r"\$(testbed|experiment|box|host|switch)\b", ".*", query)
