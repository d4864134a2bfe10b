# SPDX-License-Identifier: Apache-2.0
"""The parts of the Grafana dashboards: panels, variables, annotations, by Grafana's own builders.

Only for making dashboards/atoll_dashboards/grafana/files/*.json; what installs them reads those files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard

from atoll_dashboards.grafana.grafana_client import DATA_SOURCE
from atoll_dashboards.grafana.influxql import Query, Series, tag_values
from atoll_dashboards.influx.influx_load import ALIGNED_NS

SOURCE = dashboard.DataSourceRef(type_val="influxdb", uid=DATA_SOURCE)
TAG = "atoll"
WIDTH = 24  # columns of Grafana's grid
_HEIGHT = 8

_EVENTS = {  # kind: colour of its line
    "whistle": "blue",
    "change": "orange",
    "swap": "purple",
    "step": "rgba(128, 128, 128, 0.6)",
    "note": "red",
}


@dataclass(frozen=True, slots=True)
class _InfluxQuery(Dataquery, Builder[Dataquery]):
    """A query in InfluxQL, for which the SDK has no builder."""

    query: str
    alias: str = ""
    as_table: bool = False
    ref_id: str = "A"

    def build(self) -> Dataquery:
        """Itself."""
        return self

    def to_json(self) -> dict[str, Any]:
        """As Grafana's InfluxDB data source stores it."""
        return {
            "refId": self.ref_id,
            "datasource": SOURCE.to_json(),
            "query": self.query,
            "rawQuery": True,
            "resultFormat": "table" if self.as_table else "time_series",
            "alias": self.alias,
        }


class _EventMarks(dashboard.AnnotationQuery, Builder[dashboard.AnnotationQuery]):
    """Events of one kind as marks in all panels."""

    def build(self) -> dashboard.AnnotationQuery:
        """Itself."""
        return self

    def to_json(self) -> dict[str, object]:
        """As Grafana's InfluxDB data source stores it, with the column of the mark's text."""
        return {
            **super().to_json(),
            "query": Series("event", where={"kind": self.name}).points("text"),
            "fromAnnotations": True,
            "textColumn": "text",
            "tagsColumn": "kind",  # there is none: older Grafanas take all columns for tags if none is named
        }


def plot(
    title: str,
    unit: str,
    *queries: Query,
    text: str,
    interval: str = "2s",
    span: int = 12,
    stacked: bool = False,
    axis: str = "",
) -> timeseries.Panel:
    """A panel of figures over time. ``interval``: the shortest interval, which is not below the points' own period.

    ``axis``: axis label of a panel whose values may be negative or vary little compared to their size. The axis then
    reaches from the least to the greatest value; otherwise it begins at 0.
    """
    legend = common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
    panel = (
        timeseries.Panel()
        .title(title)
        .description(text)
        .unit(unit)
        .datasource(SOURCE)
        .interval(interval)
        .span(span)
        .height(_HEIGHT)
        .line_width(1)
        .fill_opacity(30 if stacked else 8)
        .show_points(common.VisibilityMode.NEVER)
        .legend(legend.placement(common.LegendPlacement.BOTTOM).show_legend(True))
        .tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )
    if axis:
        panel.axis_label(axis)
    else:
        panel.min(0)
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    for ref_id, query in zip("ABCDEFGH", queries, strict=False):
        panel.with_target(_InfluxQuery(*query, ref_id=ref_id))
    return panel


def setting_panel(
    title: str, unit: str, configured: Query, measured: Query, *, text: str, no_data: str, interval: str
) -> timeseries.Panel:
    """A panel of a setting, which changes in steps, and of measurements of it, as dots.

    A step may be shown too early by up to ``interval``. ``no_data``: text where there is neither.
    """
    panel = plot(title, unit, configured, measured, text=text, interval=interval, span=WIDTH)
    dots = [
        dashboard.DynamicConfigValue("custom.drawStyle", common.GraphDrawStyle.POINTS),
        dashboard.DynamicConfigValue("custom.pointSize", 8),
        dashboard.DynamicConfigValue("custom.showPoints", common.VisibilityMode.ALWAYS),
    ]
    return panel.line_interpolation(common.LineInterpolation.STEP_AFTER).no_value(no_data).override_by_query("B", dots)


def figure_panel(title: str, unit: str, query: Query, *, text: str, interval: str = "2s") -> stat.Panel:
    """A panel of one figure: the last of a series, with the series behind it."""
    return (
        stat.Panel()
        .title(title)
        .description(text)
        .unit(unit)
        .datasource(SOURCE)
        .interval(interval)
        .span(4)
        .height(4)
        .graph_mode(common.BigValueGraphMode.AREA)
        .with_target(_InfluxQuery(query.text, title))
    )


def event_table(title: str, text: str) -> table.Panel:
    """A table of the last events."""
    query = Series("event").points("kind", "state", "text") + " ORDER BY time DESC LIMIT 200"
    panel = table.Panel().title(title).description(text).datasource(SOURCE).span(WIDTH).height(_HEIGHT)
    return panel.with_target(_InfluxQuery(query, as_table=True))


def _variable(name: str, label: str, query: str, *, multi: bool) -> Any:
    template = builders.QueryVariable(name).label(label).query(query).datasource(SOURCE).multi(multi)
    return template.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)


def variable(name: str, label: str, query: str, *, multi: bool = True) -> Any:
    """A template variable: all values that a query returns, or some (``multi``) or one of them, in natural order."""
    template = _variable(name, label, query, multi=multi).include_all(True).all_value(".*")
    all_values = dashboard.VariableOption(text="All", value="$__all")
    return template.current(all_values).sort(dashboard.VariableSort.NATURAL_ASC)


def _run_variable(query: str, *, multi: bool) -> Any:
    """The template variable of the runs that a query returns, newest first.

    Grafana sorts by the text that it shows: of ``geo-20260102T030405Z-1`` the instant and the number behind it; its
    experiment is chosen next to it. A name without an instant is shown as it is.
    """
    regex = r"/^(?<value>(?:.*-(?=\d{8}T\d{6}Z))?(?<text>.*))$/"
    help_text = (
        "Newest first. Also set the time range to that of the run: `atoll metrics load` prints a link that sets both."
    )
    template = _variable("run", "Run", query, multi=multi).include_all(False).regex(regex).description(help_text)
    return template.sort(dashboard.VariableSort.ALPHABETICAL_DESC)


def _aligned_runs_link(uid: str) -> Any:
    """A link to the same dashboard at the time range of aligned runs, which includes those in virtual time."""
    begin_ms = ALIGNED_NS // 1_000_000
    time_range = f"from={begin_ms - 30_000}&to={begin_ms + 600_000}"
    return (
        builders.DashboardLink("Aligned runs")
        .type(dashboard.DashboardLinkType.LINK)
        .url(f"/d/{uid}?{time_range}")
        .tooltip("2026-01-01: start of the measurement of aligned runs and of runs in virtual time")
        .include_vars(True)
        .keep_time(False)
    )


def dashboard_page(
    uid: str,
    title: str,
    text: str,
    panels: Sequence[Any],
    variables: Sequence[Any] = (),
    *,
    runs: bool = False,
    begin: str = "now-15m",
    end: str = "now",
) -> dashboard.Dashboard:
    """A dashboard of a run (``runs``: of several), with variables, annotations and links to the other dashboards."""
    board = (
        builders.Dashboard(title)
        .uid(uid)
        .description(text)
        .tags([TAG])
        .timezone("utc")
        .time(begin, end)
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink(TAG)
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(False)
            .include_vars(True)
            .keep_time(not runs)
        )
    )
    experiments = tag_values("link", "experiment", testbed="$testbed")
    run_names = tag_values("link", "run", testbed="$testbed", experiment="$experiment")
    for template in (
        variable("testbed", "Testbed", tag_values("link", "testbed"), multi=False),
        variable("experiment", "Experiment", experiments, multi=False),
        _run_variable(run_names, multi=runs),
        *variables,
    ):
        board.with_variable(template)
    if end == "now":
        board.refresh("5s").link(_aligned_runs_link(uid))
    for kind, colour in _EVENTS.items():
        board.annotation(_EventMarks(name=kind, datasource=SOURCE, enable=kind != "step", icon_color=colour))
    for panel in panels:
        board.with_panel(panel)
    return board.build()
