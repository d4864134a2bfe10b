# SPDX-License-Identifier: Apache-2.0
"""Whatever names and texts a point holds, its line is one line and says the same to a reader of line protocol."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_core.metrics.line_protocol import Field, MetricPoint

# Control characters become two characters on the way, and a final backslash cannot be written: see the escaping rules.
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc"))).filter(
    lambda name: name != "" and name.rstrip("\\") == name
)
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")))
FIGURES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


def unescape_name(text: str) -> str:
    return re.sub(r"\\([,= ])", r"\1", text)


def read_field(text: str) -> Field:
    if text.startswith('"'):
        return re.sub(r'\\(["\\])', r"\1", text[1:-1])
    if text in ("true", "false"):
        return text == "true"
    return int(text[:-1]) if text.endswith("i") else float(text)


PLAIN = st.text(st.characters(whitelist_categories=("L", "Nd"), whitelist_characters="-_.,= \"'"), min_size=1)


@given(PLAIN, st.dictionaries(PLAIN, PLAIN, max_size=3), st.dictionaries(PLAIN, FIGURES, min_size=1, max_size=3))
def test_a_line_reads_back_as_the_point(measurement: str, tags: dict[str, str], fields: dict[str, Field]) -> None:
    line, left_out = MetricPoint(measurement, tags, fields, 17).line()
    assert line is not None
    assert left_out == 0
    names, figures, instant = split_line(line)
    head, *read_tags = re.findall(r"(?:\\.|[^\\,])+", names)
    assert re.sub(r"\\([, ])", r"\1", head) == measurement
    pairs = [re.findall(r"(?:\\.|[^\\=])+", tag) for tag in read_tags]
    assert {unescape_name(name): unescape_name(tag) for name, tag in pairs} == tags
    assert {unescape_name(name): read_field(figure) for name, figure in split_fields(figures)} == fields
    assert instant == "17"


@given(PLAIN, st.dictionaries(PLAIN, PLAIN, max_size=3), st.dictionaries(PLAIN, FIGURES, min_size=1, max_size=3))
def test_what_is_written_parses_to_the_same_point(
    measurement: str, tags: dict[str, str], fields: dict[str, Field]
) -> None:
    """Figures keep their types, too: the point writes the same line again."""
    point = MetricPoint(measurement, tags, fields, 17)
    line, _ = point.line()
    assert line is not None
    assert MetricPoint.parse(line) == point
    assert MetricPoint.parse(line).line() == (line, 0)


@pytest.mark.parametrize("text", ["", "link", "link,a=b", "link a=1i", "link a=1i x", "link  17"])
def test_what_is_no_line_of_a_point_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - int() has words of its own
        MetricPoint.parse(text)


@given(st.dictionaries(st.text(), st.text(), max_size=3), st.dictionaries(st.text(), FIGURES | st.floats(), max_size=3))
def test_as_json_a_point_is_json_whatever_it_holds(tags: dict[str, str], fields: dict[str, Field]) -> None:
    """Figures that JSON cannot express either (not a number, infinities) are left out."""
    answer = MetricPoint("m", tags, fields, 17).to_json()
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert (answer is None) == (MetricPoint("m", tags, fields, 17).line()[0] is None)


def split_line(line: str) -> tuple[str, str, str]:
    """Names, figures and instant: parted by the first unescaped space and the last space."""
    end_of_names = re.match(r"(?:\\.|[^\\ ])*", line)
    assert end_of_names is not None
    rest = line[end_of_names.end() + 1 :]
    figures, instant = rest.rsplit(" ", 1)
    return end_of_names.group(), figures, instant


def split_fields(figures: str) -> list[tuple[str, str]]:
    """Name and figure of each field."""
    pattern = re.compile(r'((?:\\.|[^\\=,])+)=("(?:\\.|[^"\\])*"|[^,"]+)(?:,|$)')
    return [(name, figure) for name, figure in pattern.findall(figures)]


@given(
    st.text(),
    st.dictionaries(st.text(), st.text(), max_size=3),
    st.dictionaries(st.text(), st.text() | st.floats(), max_size=3),
)
def test_no_text_can_break_a_line_in_two(measurement: str, tags: dict[str, str], fields: dict[str, Field]) -> None:
    line, _ = MetricPoint(measurement, tags, fields, 0).line()
    assert line is None or ("\n" not in line and "\r" not in line)


@given(st.dictionaries(NAMES, st.floats(), max_size=4))
def test_exactly_the_figures_that_are_no_numbers_are_left_out(fields: dict[str, float]) -> None:
    _, left_out = MetricPoint("m", {}, fields, 0).line()
    assert left_out == sum(not math.isfinite(figure) for figure in fields.values())
