# SPDX-License-Identifier: Apache-2.0
"""Quantities: what they read, how they show themselves, and what they say when they refuse."""

import re

import pytest

from atoll_core.units import Duration, Rate, Size


@pytest.mark.parametrize(
    ("kind", "text", "base"),
    [
        (Rate, "16 Mbit/s", 16_000_000),
        (Rate, "16Mbit/s", 16_000_000),
        (Rate, "1.5 Gbit/s", 1_500_000_000),
        (Rate, "9600 bit/s", 9600),
        (Duration, "62.5 ms", 62_500_000),
        (Duration, " 250 ms ", 250_000_000),
        (Duration, "0 s", 0),
        (Duration, "2 min", 120_000_000_000),
        (Duration, "1.5 h", 5_400_000_000_000),
        (Size, "100 kB", 100_000),
        (Size, "1500 B", 1500),
        (Size, "0.001 MB", 1000),
    ],
)
def test_a_quantity_is_read_exactly(kind, text, base):
    assert kind.parse(text) == kind(base)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (
            Rate,
            "16 Mbps",
            "'16 Mbps' is not a rate; did you mean 16 Mbit/s?",
        ),
        (
            Rate,
            16,
            "the number 16 is not a rate; write a number and one of bit/s, kbit/s, Mbit/s, Gbit/s, such as '16 Mbit/s'",
        ),
        (Rate, "16,5 Mbit/s", "'16,5 Mbit/s' is not a rate; decimals follow a point, as in '16.5 Mbit/s'"),
        (
            Duration,
            "-1 ms",
            "'-1 ms' is not a duration; it is never negative; write one such as '250 ms'",
        ),
        (
            Duration,
            None,
            "nothing is not a duration; write a number and one of ns, us, ms, s, min, h, such as '250 ms'",
        ),
        (Duration, True, "true is not a duration; write a number and one of ns, us, ms, s, min, h, such as '250 ms'"),
        (Duration, "0.5 ns", "'0.5 ns' is not a whole number of ns; write fewer decimals"),
        (Size, [], "an empty list is not a size; write a number and one of B, kB, MB, GB, such as '100 kB'"),
        (Size, "100 KB", "'100 KB' is not a size; did you mean 100 kB?"),
        (Duration, "1.5 sec", "'1.5 sec' is not a duration; did you mean 1.5 s?"),
        (
            Rate,
            "2 MBps",  # megabytes a second, of which there is no unit here
            "'2 MBps' is not a rate; write a number and one of bit/s, kbit/s, Mbit/s, Gbit/s, such as '16 Mbit/s'",
        ),
        (Size, "1e3 B", "'1e3 B' is not a size; write a number and one of B, kB, MB, GB, such as '100 kB'"),
        (Size, "٣ B", "'٣ B' is not a size; write a number and one of B, kB, MB, GB, such as '100 kB'"),
        (
            Size,
            "10000000000 GB",
            "'10000000000 GB' is too large; write less than 9223372036.854775807 GB",
        ),
    ],
)
def test_what_is_no_quantity_is_refused_with_the_remedy(kind, given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        kind.parse(given)


def test_thousands_of_digits_are_refused_and_not_repeated():
    with pytest.raises(ValueError, match="is not a rate") as refused:
        Rate.parse("9" * 5000 + " bit/s")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (Rate(16_000_000), "16 Mbit/s"),
        (Rate(1_500_000_000), "1.5 Gbit/s"),
        (Rate(0), "0 bit/s"),
        (Duration(62_500_000), "62.5 ms"),
        (Duration(100 * 10**9), "100 s"),  # 1.666... min is not exact
        (Duration(90 * 10**9), "1.5 min"),
        (Duration(1), "1 ns"),
        (Size(1_400_000), "1.4 MB"),
        (Size(1500), "1.5 kB"),
    ],
)
def test_a_quantity_shows_itself_in_the_largest_exact_unit(quantity, text):
    assert str(quantity) == text


def test_quantities_of_different_kinds_are_neither_equal_nor_ordered():
    assert Rate(5) != Size(5)
    with pytest.raises(TypeError):
        _ = Rate(5) < Size(6)  # pyright: ignore[reportOperatorIssue]
    assert Rate(5) < Rate(6)


def test_a_quantity_that_was_read_is_shown_as_written() -> None:
    """Equal ones are equal in whatever units."""
    written = Size.parse(" 1500\n B")
    assert (str(written), str(Size(1500))) == ("1500 B", "1.5 kB")
    assert written == Size(1500)
    assert hash(written) == hash(Size(1500))
