# SPDX-License-Identifier: Apache-2.0
"""Links of a few kbit/s: the tests before a run neither fill them nor take their own pings for an error."""

from pathlib import Path

import pytest

from tests.support.documented_ranges import Extreme
from tests.support.range_runs import failure

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize(
    "rates", [{"to_island": "1 kbit/s", "to_world": "1 kbit/s"}, {"to_island": "16 kbit/s"}], ids=["1 both", "16 one"]
)
def test_a_slow_link_passes_the_tests_before_a_run(tmp_path: Path, rates: dict[str, str]) -> None:
    """In the small lab of documented ranges, whose chain has coders and PEPs; a direction has 8 Mbit/s if not named."""
    ends = [Extreme("experiment", ("links", "sat", way, "rate"), rate) for way, rate in rates.items()]
    assert not failure(tmp_path, ends)
