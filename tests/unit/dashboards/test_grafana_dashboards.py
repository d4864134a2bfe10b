# SPDX-License-Identifier: Apache-2.0
"""The dashboards as shipped: those that their builder makes, on names that the metrics have."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from atoll_cli.commands.metrics import install
from atoll_core.errors import UsageError
from atoll_core.lab.network import measurements_of_kinds
from atoll_core.metrics.metrics_schema import COMMON_TAGS, MEASUREMENT_BY_NAME
from atoll_dashboards.grafana.grafana_client import DATA_SOURCE, FOLDER, Grafana, data_source
from atoll_dashboards.grafana.grafana_dashboards import files
from atoll_dashboards.grafana.influxql import Series
from atoll_dashboards.influx.influx_settings import InfluxSettings

_NAME = re.compile(r'"([a-z_0-9]+)"')


def test_the_committed_dashboards_are_those_the_builder_makes() -> None:
    """`make dashboards` writes them anew; no other file is among them."""
    assert {file.name: file.read_text() for file in FOLDER.glob("*")} == files()


@pytest.fixture(params=sorted(files()))
def page(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One dashboard."""
    return json.loads(files()[request.param])


def test_queries_use_names_of_the_table_only(page: dict[str, Any]) -> None:
    """Measurements, tags and fields, whatever the panel."""
    measurements = {**MEASUREMENT_BY_NAME, **measurements_of_kinds()}
    known = {*COMMON_TAGS, *measurements}
    for measurement in measurements.values():
        known |= {name for name, _ in measurement.tags} | {figure.name for figure in measurement.fields}
    texts = [target["query"] for panel in page["panels"] for target in panel["targets"]]
    texts += [each["query"] for each in (*page["annotations"]["list"], *page["templating"]["list"])]
    assert texts
    for text in texts:
        assert set(_NAME.findall(text)) <= known


def test_a_dashboard_is_whole(page: dict[str, Any]) -> None:
    """Every panel has a title, a unit or table, an explanation and queries on the one data source; none overlap."""
    assert {each["name"] for each in page["templating"]["list"]} >= {"testbed", "run"}
    assert {each["name"] for each in page["annotations"]["list"]} >= {"whistle", "change", "swap"}
    taken: set[tuple[int, int]] = set()
    for panel in page["panels"]:
        assert panel["title"]
        assert panel["description"]
        assert panel["type"] == "table" or panel["fieldConfig"]["defaults"]["unit"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {DATA_SOURCE}
        at = panel["gridPos"]
        cells = {(at.get("x", 0) + x, at.get("y", 0) + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        taken |= cells
    assert max(x for x, _ in taken) < 24


def test_dashboards_have_names_of_their_own() -> None:
    """By which links and installations know them."""
    pages = [json.loads(text) for text in files().values()]
    assert len({each["uid"] for each in pages}) == len({each["title"] for each in pages}) == len(pages) == 8


def test_what_is_provisioned_is_what_is_installed(project: Path) -> None:
    """The same data source, whether Grafana reads it from a file or is told by its API."""
    file = project / "dashboards/provisioning/datasources/atoll.yaml"
    (provisioned,) = YAML(typ="safe").load(file)["datasources"]
    assert provisioned == data_source(
        InfluxSettings("${ATOLL_INFLUX_URL}", "${ATOLL_INFLUX_TOKEN}", bucket="${ATOLL_INFLUX_BUCKET}")
    )


def test_images_are_pinned(project: Path) -> None:
    """To a version with all its numbers: `latest` of InfluxDB has become another product."""
    services = YAML(typ="safe").load(project / "dashboards/compose.yaml")["services"]
    for service in services.values():
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+", service["image"])


def test_names_that_the_table_lacks_are_refused() -> None:
    """A dashboard cannot be built on a misspelt name."""
    with pytest.raises(ValueError, match="link has no tag 'boxx'"):
        Series("link", ("boxx",))
    with pytest.raises(ValueError, match="link has no field 'queue'"):
        Series("link").level("queue")


@pytest.mark.parametrize("wrong", ["nonsense", "http://", "http://[::1", "ftp://influxdb"])
def test_what_is_no_url_is_refused_before_anything_is_asked(wrong: str) -> None:
    with pytest.raises(UsageError, match=rf"^--influx: the database's URL is wanted, .* {re.escape(repr(wrong))}$"):
        install(token="x", influx=wrong)
    with pytest.raises(UsageError, match=rf"^--url: Grafana's URL is wanted, .* {re.escape(repr(wrong))}$"):
        Grafana(wrong, "x")
