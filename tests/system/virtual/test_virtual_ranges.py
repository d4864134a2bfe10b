# SPDX-License-Identifier: Apache-2.0
"""Numeric keys at the ends of their documented ranges run, unless ``atoll check`` refuses them.

With ATOLL_RANGES=all: every end in groups of independent keys, and 50 random pairs instead of 20.
"""

import os
from pathlib import Path

import pytest

from tests.support.documented_ranges import extremes, shuffled
from tests.support.range_runs import NOT_RUN, batches, failure, failures, refusal

pytestmark = pytest.mark.virtual

ALL = os.environ.get("ATOLL_RANGES") == "all"
PAIRS, DRAWN, GROUP = 50, 20, 12


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("number", range(PAIRS if ALL else DRAWN))
def test_a_random_pair_of_extremes_runs_or_is_refused(number: int, tmp_path: Path) -> None:
    order = shuffled([each for each in extremes() if str(each) not in NOT_RUN], 2)
    one, other = order[number], order[PAIRS + number]
    if one.place != other.place and not refusal(tmp_path, [one, other]):
        assert not failure(tmp_path, [one, other]), f"{one}, {other}"


if ALL:

    @pytest.mark.timeout(10 * 3600)
    def test_every_end_of_a_range_runs_or_is_refused(tmp_path: Path) -> None:
        wanted = shuffled([each for each in extremes() if str(each) not in NOT_RUN], 3)
        groups = batches(tmp_path, wanted, GROUP)
        found = [line for number, group in enumerate(groups) for line in failures(tmp_path / str(number), group)]
        assert not found, "\n".join(found)
