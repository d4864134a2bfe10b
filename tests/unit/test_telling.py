# SPDX-License-Identifier: Apache-2.0
"""What a run says while it goes, where there is no terminal."""

import pytest

from atoll.cli import telling
from atoll.cli.telling import LiveLine


def test_a_line_tells_the_most_that_waited_since_the_last_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its drops are a running sum: a queue that was full for a moment in between is to be seen beside them."""
    live = {"type": "live", "duration_s": 60, "rate_mbit_s": 1.0, "dropped_packets": 281}
    show = LiveLine()
    for told, elapsed_s, most in [(False, 1.0, 99_980), (True, 2.0, 36_000), (True, 3.0, 12_000)]:
        monkeypatch.setattr(telling, "_LIVE_EVERY_S", 0.0 if told else 60.0)
        show.take({**live, "elapsed_s": elapsed_s, "queue_max_bytes": most})
    show.close()
    first, second = capsys.readouterr().err.splitlines()
    assert "queue up to  100.0 kB   dropped 281" in first
    assert "queue up to   12.0 kB" in second
