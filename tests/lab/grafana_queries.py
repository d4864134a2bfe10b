# SPDX-License-Identifier: Apache-2.0
"""Every query of the dashboards as Grafana's page would put it to its back end, and what came of it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll_dashboards.grafana import Grafana


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
        query = _chosen(target["query"], run)
        asked = {
            "refId": "A",
            "datasource": {"type": "influxdb", "uid": "atoll"},
            "query": query,
            "rawQuery": True,
            "resultFormat": target["resultFormat"],
            "alias": target.get("alias", ""),
            "intervalMs": 1000,
            "maxDataPoints": 1000,
        }
        answer = grafana.query({"queries": [asked], "from": str(begin_ms), "to": str(end_ms)})
        result = answer["results"]["A"]
        assert "error" not in result, (where, query, result["error"])
        columns = [frame["data"]["values"] for frame in result["frames"]]
        found.append(Asked(where, query, sum(len(values[0]) for values in columns if values)))
    return found


def _chosen(query: str, run: str) -> str:
    """The query with its template variables filled in, as the page does."""
    query = query.replace("$run", re.escape(run))
    return re.sub(r"\$(testbed|box|host|switch)\b", ".*", query)
