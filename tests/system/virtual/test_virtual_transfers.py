# SPDX-License-Identifier: Apache-2.0
"""Several transfers in virtual time: each on its own chain, repeated ones at their instants, alone in the lab."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.virtual_runs import run_virtually

pytestmark = pytest.mark.virtual

DURATION_S = 10
TRANSFERS = """transfers={
  coded: {size: 10 kB, to: i1, start: 1 s, every: 2 s, chain: coded},
  uncoded: {size: 1 MB, to: i5, start: 1 s, chain: main},
  slow: {size: 100 kB, from: w1, to: i6, start: 1 s, every: 2 s},
}"""


@pytest.fixture(scope="module")
def summary(project: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Hosts i1 to i3 have the branch ``coded``, over the same link of 500 ms."""
    settings = ("traffic.channels=0", "transfer=null", TRANSFERS, f"duration={DURATION_S} s")
    given = [word for setting in settings for word in ("--set", setting)]
    directory = tmp_path_factory.mktemp("transfers")
    return run_virtually(directory, project / "examples/half-coded.yaml", *given)


def downloads(summary: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return summary["transfers"][name]["downloads"]


def test_repeated_downloads_begin_at_their_instants_and_take_the_same_time(summary: dict[str, Any]) -> None:
    starts = [round(download["start_s"], 3) for download in downloads(summary, "coded")]
    assert starts == [1, 3, 5, 7, 9]
    assert all(download["complete"] for download in downloads(summary, "coded")[:-1])
