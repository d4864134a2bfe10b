# SPDX-License-Identifier: Apache-2.0
"""Links of a few kbit/s or of a minute of delay: tests before a run and the drain after it take their time."""

from pathlib import Path

import pytest

from tests.support.documented_ranges import Extreme
from tests.support.range_runs import failure

pytestmark = pytest.mark.virtual

SLOW = [
    {"to_island.rate": "1 kbit/s", "to_world.rate": "1 kbit/s"},
    {"to_island.rate": "16 kbit/s"},
    {"to_world.delay": "60 s"},
]


@pytest.mark.parametrize("settings", SLOW, ids=["1 kbit/s", "16 kbit/s one way", "60 s one way"])
def test_a_slow_link_passes_the_tests_before_a_run(tmp_path: Path, settings: dict[str, str]) -> None:
    """Pings of the tests neither fill the link nor wait in coders; a direction has 8 Mbit/s if not named."""
    ends = [Extreme("experiment", ("links", "sat", *key.split(".")), value) for key, value in settings.items()]
    assert not failure(tmp_path, ends)


def test_a_run_ends_after_a_change_to_a_minute_of_delay(tmp_path: Path) -> None:
    """Hosts send again until they get an acknowledgement; these packets take a minute, too, and so do the answers."""
    delay = Extreme("experiment", ("changes", 0, "links", "sat", "to_world", "delay"), "60 s")
    assert not failure(tmp_path, [delay])
