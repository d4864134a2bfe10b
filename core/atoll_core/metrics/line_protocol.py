# SPDX-License-Identifier: Apache-2.0
"""Metric points: writing and reading their line protocol.

Source of the escaping rules: InfluxDB's line protocol reference (v1.8 and v2 agree on the parts used here).
``atoll_core.metrics.metrics_schema`` has the names of a run's points.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

Field = float | int | bool | str

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
# A point is one line: control characters that would end or split it are written as two characters.
_CONTROL_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NAME_ESCAPES = str.maketrans({",": "\\,", " ": "\\ ", **_CONTROL_ESCAPES})
_TAG_ESCAPES = str.maketrans({",": "\\,", " ": "\\ ", "=": "\\=", **_CONTROL_ESCAPES})
_TEXT_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r"})
# The parts of a line with escaped or quoted characters.
_HEAD = re.compile(r"(?:\\.|[^\\ ])*")
_PART = re.compile(r"(?:\\.|[^\\,])+")
_TAG_PAIR = re.compile(r"((?:\\.|[^\\=])*)=(.*)", re.DOTALL)
_FIELD_PAIR = re.compile(r'((?:\\.|[^\\=,])+)=("(?:\\.|[^"\\])*"|[^,"]+)(?:,|$)')
_ESCAPED_NAME = re.compile(r"\\([,= ])")
_ESCAPED_TEXT = re.compile(r'\\(["\\])')
_CACHE_SIZE = 1 << 14  # series and field names: a laboratory of 140 hosts has a tenth of it


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """The fields of one series at one instant (``t_ns``: CLOCK_REALTIME, ns since 1970)."""

    measurement: str
    tags: Mapping[str, str] = field(hash=False)
    fields: Mapping[str, Field] = field(hash=False)
    t_ns: int

    def line(self) -> tuple[str | None, int]:
        """The point in line protocol, and the number of fields that could not be expressed and were left out.

        NaN, infinities and integers beyond 64 bits cannot be expressed; a point left without fields is None.
        Tags with an empty name or value are omitted, as the protocol has no empty tags.
        """
        texts = [text for name, value in self.fields.items() if (text := _field_text(name, value)) is not None]
        omitted = len(self.fields) - len(texts)
        if not texts:
            return None, omitted
        return f"{_series_text(self.measurement, tuple(self.tags.items()))} {','.join(texts)} {self.t_ns}", omitted

    @classmethod
    def parse(cls, line: str) -> "MetricPoint":
        """Parse a line that ``line`` wrote. Raises ValueError for anything else."""
        head = _HEAD.match(line)
        names = head.group() if head else ""
        values, _, instant = line[len(names) + 1 :].rpartition(" ")
        is_simple = "\\" not in line and '"' not in values
        fields = _parse_simple_fields(values) if is_simple else _parse_fields(values)
        measurement, tags = _parse_names(names)
        if not (measurement and fields):
            raise ValueError(f"not a line of line protocol: {line[:100]!r}")
        return cls(measurement, tags, fields, int(instant))

    def to_json(self) -> list[Any] | None:
        """The point as JSON: ``[measurement, tags, fields, t_ns]``; None when none of its fields can be expressed.

        It has the same tags and fields as its line.
        """
        fields = {name: value for name, value in self.fields.items() if _is_expressible(value)}
        tags = {name: tag for name, tag in self.tags.items() if tag}
        return [self.measurement, tags, fields, self.t_ns] if fields else None


@lru_cache(_CACHE_SIZE)
def _series_text(measurement: str, tags: tuple[tuple[str, str], ...]) -> str:
    escaped = ((_escape(name), _escape(tag)) for name, tag in sorted(tags))
    tag_text = "".join(f",{name}={tag}" for name, tag in escaped if name and tag)
    return _without_final_backslash(measurement.translate(_NAME_ESCAPES)) + tag_text


@lru_cache(_CACHE_SIZE)
def _escape(text: str) -> str:
    return _without_final_backslash(text.translate(_TAG_ESCAPES))


def _without_final_backslash(text: str) -> str:
    # A final backslash would escape the separator behind it, and the protocol has no way to write one.
    return text.rstrip("\\")


def _is_expressible(value: Field) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or _INT64_MIN <= value <= _INT64_MAX


def _field_text(name: str, value: Field) -> str | None:
    if not _is_expressible(value):
        return None
    if isinstance(value, bool):
        return f"{_escape(name)}={'true' if value else 'false'}"
    if isinstance(value, int):
        return f"{_escape(name)}={value}i"
    if isinstance(value, float):
        return f"{_escape(name)}={value!r}"
    return f'{_escape(name)}="{value.translate(_TEXT_ESCAPES)}"'


@lru_cache(_CACHE_SIZE)
def _parse_names(names: str) -> tuple[str, dict[str, str]]:
    """Measurement and tags; the dictionary is shared by all points of a series."""
    measurement, *tags = _PART.findall(names) or [""]
    pairs = [pair.groups() for tag in tags if (pair := _TAG_PAIR.fullmatch(tag))]
    return _unescape(measurement), {_unescape(name): _unescape(tag) for name, tag in pairs}


def _parse_simple_fields(text: str) -> dict[str, Field]:
    return {name: _parse_value(value) for name, _, value in (pair.partition("=") for pair in text.split(",")) if value}


def _parse_fields(values: str) -> dict[str, Field]:
    return {_unescape(name): _parse_value(value) for name, value in _FIELD_PAIR.findall(values)}


def _unescape(name: str) -> str:
    return _ESCAPED_NAME.sub(r"\1", name)


def _parse_value(value: str) -> Field:
    if value.startswith('"'):
        return _ESCAPED_TEXT.sub(r"\1", value[1:-1])
    if value in ("true", "false"):
        return value == "true"
    return int(value[:-1]) if value.endswith("i") else float(value)
