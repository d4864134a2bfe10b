# SPDX-License-Identifier: Apache-2.0
"""``statisticsbench.measure PART PARTS STUDIES KIND...``: one part of the measurements, a line of JSON for each."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from statisticsbench.alike import NOISES, alike
from statisticsbench.coverage import COVERAGES
from statisticsbench.populations import STOPPED
from statisticsbench.stopped import stopped
from statisticsbench.unequal_flows import IMBALANCES, unequal

STOP, ALIKE, UNEQUAL = "stop", "alike", "unequal"
_MOST_RUNS = 200  # of simulated runs, which take longer than studies


def main() -> None:
    """Measure every PARTS-th population, beginning with that of number PART."""
    part, parts, studies = map(int, sys.argv[1:4])
    kinds = sys.argv[4:]
    tasks = [(kind, index) for kind in kinds for index in range(_populations(kind))]
    for kind, index in tasks[part::parts]:
        for row in _measured(kind, studies, index):
            print(json.dumps([kind, index, row]))


def _populations(kind: str) -> int:
    others = {STOP: len(STOPPED), ALIKE: len(NOISES), UNEQUAL: len(IMBALANCES)}
    return others[kind] if kind in others else COVERAGES[kind][1]


def _measured(kind: str, studies: int, index: int) -> Iterator[dict[str, Any]]:
    if kind == STOP:
        yield asdict(stopped(studies, index))
        return
    if kind == ALIKE:
        yield from map(asdict, alike(studies, index))
        return
    if kind == UNEQUAL:
        yield asdict(unequal(min(studies, _MOST_RUNS), index))
        return
    for row in COVERAGES[kind][0](studies, index):
        yield {**asdict(row), "studies": studies}


if __name__ == "__main__":
    main()
