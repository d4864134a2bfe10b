# SPDX-License-Identifier: Apache-2.0
"""Numeric keys at the ends of their documented ranges run, unless ``atoll check`` refuses them.

``make test-ranges`` (ATOLL_RANGES=all): every end in groups of independent keys, and 50 random pairs instead of 20.
"""

import os
from pathlib import Path

import pytest

from tests.support.documented_ranges import extremes, shuffled
from tests.support.range_runs import NOT_RUN, batches, failures

pytestmark = pytest.mark.virtual

ALL = os.environ.get("ATOLL_RANGES") == "all"
PAIRS, DRAWN, GROUP = 50, 20, 12
TOGETHER = 4
"""Pairs that run at once where their keys are independent: fewer runs take less time; a failure is bisected."""


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("first", range(0, PAIRS if ALL else DRAWN, TOGETHER))
def test_random_pairs_of_extremes_run_or_are_refused(first: int, tmp_path: Path) -> None:
    order = shuffled([each for each in extremes() if str(each) not in NOT_RUN], 2)
    pairs = [(order[number], order[PAIRS + number]) for number in range(first, min(first + TOGETHER, PAIRS))]
    groups = batches(tmp_path, pairs, TOGETHER)
    found = [line for number, group in enumerate(groups) for line in failures(tmp_path / str(number), group)]
    assert not found, "\n".join(found)


if ALL:

    @pytest.mark.timeout(10 * 3600)
    def test_every_end_of_a_range_runs_or_is_refused(tmp_path: Path) -> None:
        wanted = shuffled([each for each in extremes() if str(each) not in NOT_RUN], 3)
        groups = batches(tmp_path, [(each,) for each in wanted], GROUP)
        found = [line for number, group in enumerate(groups) for line in failures(tmp_path / str(number), group)]
        assert not found, "\n".join(found)
