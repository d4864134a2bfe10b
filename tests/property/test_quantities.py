# SPDX-License-Identifier: Apache-2.0
"""Quantities and the codec lose nothing, whatever the number."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll_core.codec import from_json, to_json
from atoll_core.units import Duration, Rate, Size

KINDS = st.sampled_from([Rate, Duration, Size])


@given(KINDS, st.integers(0, 2**63 - 1))
def test_what_a_quantity_shows_reads_back_as_itself(kind, base):
    assert kind.parse(str(kind(base))) == kind(base)


@given(KINDS, st.decimals(0, 10**6, allow_nan=False, places=4), st.data())
def test_parsing_is_exact_or_refuses(kind, number, data):
    unit = data.draw(st.sampled_from(list(kind.UNITS)))
    exact = Fraction(number) * kind.UNITS[unit]
    if exact.denominator == 1:
        assert kind.parse(f"{number:f} {unit}").base == exact
    else:
        with pytest.raises(ValueError, match="not a whole number"):
            kind.parse(f"{number:f} {unit}")


@given(
    KINDS,
    st.text(st.characters(exclude_categories=["Nd"])) | st.integers() | st.none() | st.floats() | st.lists(st.text()),
)
def test_anything_else_is_refused_as_a_value_error(kind, given_text):
    with pytest.raises(ValueError, match=r"\A.*\Z"):  # one line
        kind.parse(given_text)


@given(KINDS, st.integers(0, 2**63 - 1))
def test_the_codec_returns_a_quantity_as_it_was(kind, base):
    assert from_json(kind, to_json(kind(base))) == kind(base)
