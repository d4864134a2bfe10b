# SPDX-License-Identifier: Apache-2.0
"""Where benchmarks keep what they measured: nothing that took half an hour is lost to a directory that is not there."""

from pathlib import Path

import pytest

from atoll_core.errors import AtollError
from benchkit.json_results import read_earlier, read_results, write_results


def test_what_is_written_is_read_from_wherever_it_was_to_be(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "yet.json"
    assert read_earlier(path, "results") == {}
    write_results(path, {"results": [1]})
    assert read_results(path, "results") == read_earlier(path, "results") == {"results": [1]}
    assert [each.name for each in path.parent.iterdir()] == ["yet.json"]


def test_what_cannot_be_read_or_written_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(AtollError, match="there is no such file; measuring makes it"):
        read_results(tmp_path / "none.json", "results")
    with pytest.raises(AtollError, match=r"^\S+: cannot be read: Is a directory$"):
        read_earlier(tmp_path, "results")
    other = tmp_path / "other.json"
    other.write_text("[]")
    with pytest.raises(AtollError, match="no results of this benchmark; name another file"):
        read_earlier(other, "results")
    with pytest.raises(AtollError, match=r"^\S+/deeper\.json could not be written: "):
        write_results(other / "deeper.json", {})
