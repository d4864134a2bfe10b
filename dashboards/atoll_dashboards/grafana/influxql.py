# SPDX-License-Identifier: Apache-2.0
"""The queries of the Grafana dashboards, in InfluxQL: it is what InfluxDB 1.8 and 2 both understand.

``$run``, ``$switch`` and the like are Grafana's template variables, ``$timeFilter`` and ``$__interval`` its macros.
Rates come from neighbouring points first and are averaged then, so that a point that falls into the next interval
makes no spike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from atoll_core.lab.network import measurements_of_kinds
from atoll_core.metrics.metrics_schema import COMMON_TAGS, MEASUREMENT_BY_NAME, Measurement


class Query(NamedTuple):
    """A query and the name of its series in the legend."""

    text: str
    legend: str


@dataclass(frozen=True, slots=True)
class Series:
    """Points of a measurement: those of the chosen runs and of ``where``, a series for each combination of ``by``.

    ``where``: regular expressions by tag. ``label``: in the legend, instead of the tags ``by``; ``legend`` of a query
    follows it. Raises ValueError for what the table of measurements does not have.
    """

    measurement: str
    by: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    label: str = ""

    def __post_init__(self) -> None:
        tags = {*COMMON_TAGS, *(name for name, _ in self._declared.tags)}
        if unknown := {*self.by, *self.where} - tags:
            raise ValueError(f"{self.measurement} has no tag {min(unknown)!r}")

    @property
    def _declared(self) -> Measurement:
        return {**MEASUREMENT_BY_NAME, **measurements_of_kinds()}[self.measurement]

    @property
    def condition(self) -> str:
        """The condition behind WHERE."""
        patterns = {"run": "$run", **self.where}
        parts = (f'"{tag}" =~ /^{pattern}$/' for tag, pattern in patterns.items())
        return " AND ".join((*parts, "$timeFilter"))

    def level(self, name: str, aggregate: str = "mean", *, legend: str = "") -> Query:
        """A figure that holds at an instant, aggregated over each interval."""
        column = f'{aggregate}("{self._field(name)}")'
        return self._over_time(column, f'"{self.measurement}"', self.condition, legend)

    def rate(self, name: str, factor: float = 1, *, legend: str = "") -> Query:
        """The increase of a sum per second, times a factor; each series of the measurement by itself."""
        growth = f'non_negative_derivative("{self._field(name)}", 1s) * {_number(factor)}'
        subquery = f'SELECT {growth} AS rate FROM "{self.measurement}" WHERE {self.condition} GROUP BY *'
        return self._over_time("mean(rate)", f"({subquery})", "$timeFilter", legend)

    def total_rate(self, name: str, factor: float = 1, *, legend: str = "") -> Query:
        """The rates of all series of one ``by`` added up; for intervals in which each of them has a point."""
        growth = f'non_negative_derivative(last("{self._field(name)}"), 1s) * {_number(factor)}'
        return self._sum_of(growth, "rate", legend)

    def total(self, name: str, *, legend: str = "") -> Query:
        """The levels of all series of one ``by`` added up; for intervals in which each of them has a point."""
        return self._sum_of(f'last("{self._field(name)}")', "level", legend)

    def points(self, *columns: str) -> str:
        """The points themselves: these fields and tags of each."""
        column_list = ", ".join(f'"{name}"' for name in columns)
        return f'SELECT {column_list} FROM "{self.measurement}" WHERE {self.condition}'

    def _sum_of(self, expression: str, name: str, legend: str) -> Query:
        subquery = (
            f'SELECT {expression} AS {name} FROM "{self.measurement}" '
            f"WHERE {self.condition} GROUP BY time($__interval), * fill(none)"
        )
        return self._over_time(f"sum({name})", f"({subquery})", "$timeFilter", legend)

    def _over_time(self, column: str, source: str, condition: str, legend: str) -> Query:
        groups = ", ".join(("time($__interval)", *(f'"{tag}"' for tag in self.by)))
        label = self.label or " ".join(f"$tag_{tag}" for tag in self.by)
        text = f"SELECT {column} FROM {source} WHERE {condition} GROUP BY {groups} fill(none)"
        return Query(text, f"{label} {legend}".strip())

    def _field(self, name: str) -> str:
        if name not in {figure.name for figure in self._declared.fields}:
            raise ValueError(f"{self.measurement} has no field {name!r}")
        return name


def _number(factor: float) -> str:
    """A number as InfluxQL takes it: without an exponent."""
    return f"{factor:.12f}".rstrip("0").rstrip(".")


def tag_values(measurement: str, tag: str, **where: str) -> str:
    """The values of a tag, for a template variable."""
    condition = " AND ".join(f'"{name}" =~ /^{pattern}$/' for name, pattern in where.items())
    return f'SHOW TAG VALUES FROM "{measurement}" WITH KEY = "{tag}"' + (f" WHERE {condition}" if where else "")
