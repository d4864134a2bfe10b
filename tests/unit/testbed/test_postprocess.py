# SPDX-License-Identifier: Apache-2.0
"""An analysis that fails is one line, and all that it said is kept with the run."""

import asyncio
from pathlib import Path

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_core.errors import RunError
from atoll_testbed.run.postprocess import compress_and_analyse

NOW_NS = 1_780_000_000 * 10**9


def test_the_traceback_of_an_analysis_that_breaks_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "polars.py").write_text("raise TypeError('this library is broken')\n")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    run = RunDir.create(tmp_path / "runs", "geo", NOW_NS)
    with pytest.raises(RunError) as raised:
        asyncio.run(compress_and_analyse(run))
    log = run.logs / "atoll_analysis.err"
    assert str(raised.value) == (
        f"atoll_analysis failed: TypeError: this library is broken; its full output is in {log}"
    )
    said = log.read_text()
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.endswith("TypeError: this library is broken\n")


def test_an_analysis_that_says_why_it_fails_leaves_no_log(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "runs", "geo", NOW_NS)
    with pytest.raises(RunError) as raised:
        asyncio.run(compress_and_analyse(run))
    assert str(raised.value).startswith("atoll_analysis failed: ")
    assert list(run.logs.iterdir()) == []
