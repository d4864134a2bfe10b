# SPDX-License-Identifier: Apache-2.0
"""Whatever a frame of a spool holds, a replay tells points that are JSON, or that the spool is damaged."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll_analysis.run_directory.metrics_spool import SPOOL
from atoll_core.errors import RunDirError
from atoll_daemon.replays.replay_index import Replay
from tests.support.watched_run import WatchedRun

WORDS = st.sampled_from(
    ["link", ",box=sat", " ", "=", '"', "\\", "x=1i", "y=nan", "z=-inf", "w=true", "17", "\n", "9" * 30]
)
FRAMES = st.binary(max_size=60) | st.lists(WORDS, max_size=12).map(lambda words: "".join(words).encode())


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replay]:
    run = WatchedRun(tmp_path_factory.mktemp("runs"))
    yield Replay(run.dir.path)
    run.end()


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FRAMES)
def test_a_frame_is_told_or_refused(replay: Replay, frame: bytes) -> None:
    """Refusals name the file; no error but theirs comes out."""
    message, refusal = None, ""
    try:
        message = replay.points_sample(frame, 0, 2**63)
    except RunDirError as error:
        refusal = str(error)
    assert refusal == "" or f"{SPOOL}: damaged: " in refusal
    assert json.loads(json.dumps(message, allow_nan=False)) == message
    if message is not None:
        assert all(fields and 0 <= t_ns < 2**63 for _, _, fields, t_ns in message["points"])


def test_figures_that_are_no_numbers_are_left_out_here_too(replay: Replay, tmp_path: Path) -> None:
    message = replay.points_sample(b"link,box=sat x=nan,y=1i 17\nlink x=inf 17\n", 0, 2**63)
    assert message is not None
    assert message["points"] == [["link", {"box": "sat"}, {"y": 1}, 17]]
