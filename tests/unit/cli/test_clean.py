# SPDX-License-Identifier: Apache-2.0
"""`atoll clean`: what is in caches is listed and removed, but never what a process uses, and nothing elsewhere."""

import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atoll_cli.commands.clean import clean
from atoll_core.errors import MachineError
from atoll_emulation.uml.cache import BUILD_DIRECTORY, cache_lock
from tests.unit.emulation.test_kernel_cache import keep


@pytest.fixture
def cached(tmp_path: Path, kernel_cache: Path) -> list[Path]:
    """Two kernels, what an interrupted build has left, a directory and a link to results elsewhere."""
    kernels = [keep(kernel_cache, release) for release in ("6.1.7", "7.2.7")]
    (kernel_cache / BUILD_DIRECTORY / "source").mkdir(parents=True)
    others = [kernel_cache.parent / name for name in ("runs", "servers")]
    (tmp_path / "results").mkdir()
    (tmp_path / "results/summary.json").write_text("mine")
    others[0].symlink_to(tmp_path / "results")
    others[1].mkdir()
    (others[1] / "influxd").write_bytes(bytes(100_000))
    return [*kernels, kernel_cache / BUILD_DIRECTORY, *others]


def there(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.is_symlink() or path.exists()]


def test_without_a_terminal_it_is_only_listed(cached: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    clean(yes=False, as_json=False)
    out, err = capsys.readouterr()
    assert [line.split(" MB  ")[1] for line in out.splitlines()] == [str(path) for path in cached]
    assert out.splitlines()[-1].strip().startswith("0.1 MB")
    assert err == "to remove this: atoll clean --yes\n"
    assert there(cached) == cached


def test_all_of_it_is_removed_and_nothing_elsewhere(
    tmp_path: Path, cached: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    clean(yes=True, as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert answer["removed"] == [entry["path"] for entry in answer["cached"]] == [str(path) for path in cached]
    assert answer["cached"][-1]["bytes"] >= 100_000
    assert there(cached) == []
    assert (tmp_path / "results/summary.json").read_text() == "mine"
    clean(yes=True, as_json=False)
    assert capsys.readouterr().out == "nothing to remove\n"


@contextmanager
def waiting(shell: str | Path, *descriptors: int) -> Generator[int]:
    """A shell that waits for input, with these descriptors; its process id."""
    process = subprocess.Popen([shell, "-c", "read x"], stdin=subprocess.PIPE, pass_fds=descriptors)
    try:
        yield process.pid
    finally:
        process.communicate()


def test_what_a_process_uses_stays(cached: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel that runs, a directory with an open file."""
    kernel, servers = cached[0], cached[-1]
    shutil.copy2("/bin/sh", kernel / "linux")
    with (
        waiting(kernel / "linux") as first,
        (servers / "influxd").open() as opened,
        waiting("/bin/sh", opened.fileno()) as second,
    ):
        clean(yes=True, as_json=True)
        answer = json.loads(capsys.readouterr().out)
    assert there(cached) == [kernel, servers]
    users = {entry["path"]: entry["used_by"] for entry in answer["cached"] if entry["used_by"]}
    assert users[str(kernel)] == first
    assert users[str(servers)] in (os.getpid(), second)
    assert set(answer["removed"]) == {str(path) for path in cached[1:-1]}


def test_nothing_is_removed_while_a_kernel_is_built(cached: list[Path], kernel_cache: Path) -> None:
    with cache_lock(kernel_cache), pytest.raises(MachineError, match="another process builds or removes kernels in"):
        clean(yes=True, as_json=False)
    assert there(cached) == cached


def test_a_cache_that_does_not_exist_is_empty(kernel_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not kernel_cache.exists()
    clean(yes=True, as_json=False)
    assert capsys.readouterr().out == "nothing to remove\n"
