# SPDX-License-Identifier: Apache-2.0
"""Metric points and their line protocol.

Source of the escaping rules: InfluxDB's line protocol reference (v1.8 and v2 agree on what is used here). What the
points of a run are called stands in ``atoll.model.measurements``.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

Field = float | int | bool | str

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
# A point is one line: control characters that would end or split it are written as two characters.
_CONTROL = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NAME = str.maketrans({",": "\\,", " ": "\\ ", **_CONTROL})
_TAG = str.maketrans({",": "\\,", " ": "\\ ", "=": "\\=", **_CONTROL})
_TEXT = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r"})
_REMEMBERED = 1 << 14  # series and field names: a laboratory of 140 hosts has a tenth of it


@dataclass(frozen=True, slots=True)
class Point:
    """Some figures of one thing at one instant (``t_ns``: CLOCK_REALTIME, ns since 1970)."""

    measurement: str
    tags: Mapping[str, str] = field(hash=False)
    fields: Mapping[str, Field] = field(hash=False)
    t_ns: int

    def line(self) -> tuple[str | None, int]:
        """The point in line protocol, and how many fields could not be expressed and were left out.

        NaN, infinities and integers beyond 64 bits cannot be expressed; a point left without fields is None.
        Tags with an empty name or value are omitted, as the protocol has no empty tags.
        """
        written = [text for name, figure in self.fields.items() if (text := _field(name, figure)) is not None]
        left_out = len(self.fields) - len(written)
        if not written:
            return None, left_out
        return f"{_series(self.measurement, tuple(self.tags.items()))} {','.join(written)} {self.t_ns}", left_out


@lru_cache(_REMEMBERED)
def _series(measurement: str, tags: tuple[tuple[str, str], ...]) -> str:
    written = "".join(f",{_tag(name)}={_tag(tag)}" for name, tag in sorted(tags) if _tag(name) and _tag(tag))
    return _unfinished(measurement.translate(_NAME)) + written


@lru_cache(_REMEMBERED)
def _tag(text: str) -> str:
    return _unfinished(text.translate(_TAG))


def _unfinished(text: str) -> str:
    # A final backslash would escape the separator behind it, and the protocol has no way to write one.
    return text.rstrip("\\")


def _field(name: str, figure: Field) -> str | None:
    if isinstance(figure, bool):
        return f"{_tag(name)}={'true' if figure else 'false'}"
    if isinstance(figure, int):
        return f"{_tag(name)}={figure}i" if _INT64_MIN <= figure <= _INT64_MAX else None
    if isinstance(figure, float):
        return f"{_tag(name)}={figure!r}" if math.isfinite(figure) else None
    return f'{_tag(name)}="{figure.translate(_TEXT)}"'
