# SPDX-License-Identifier: Apache-2.0
"""`atoll clean`: what is in caches is listed and removed, but never what a process uses, and nothing elsewhere."""

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from atoll_cli.commands.clean import clean
from atoll_core.errors import MachineError
from atoll_emulation.this_machine.caches import CachedEntry, cached_entries, remove_entries
from atoll_emulation.this_machine.used_files import with_all_below
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


def test_no_kernel_is_removed_while_one_is_built(
    cached: list[Path], kernel_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in no cache of kernels is."""
    with cache_lock(kernel_cache), pytest.raises(MachineError, match="another process builds or removes kernels in"):
        clean(yes=True, as_json=False)
    assert there(cached) == cached[:3]
    assert capsys.readouterr().out.endswith("\nremoved 2 items\n")


def test_what_cannot_be_removed_is_named_and_the_rest_is_removed(
    cached: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def refuse_some(path: Path) -> None:
        if path in (cached[0], cached[-1]):
            raise PermissionError(errno.EACCES, "Permission denied", "linux")
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", refuse_some)
    with pytest.raises(MachineError) as raised:
        clean(yes=True, as_json=True)
    assert str(raised.value).splitlines() == [
        f"{path}: Permission denied; it stays there" for path in (cached[0], cached[-1])
    ]
    assert json.loads(capsys.readouterr().out)["removed"] == [str(path) for path in cached[1:-1]]
    assert there(cached) == [cached[0], cached[-1]]


def test_what_another_process_removes_meanwhile_is_removed(cached: list[Path]) -> None:
    entries = cached_entries()
    below = with_all_below(cached[0])
    assert next(below) == cached[0]
    for path in (cached[0], cached[-1]):
        shutil.rmtree(path)
    assert list(below) == []
    removal = remove_entries(entries)
    assert (removal.removed, removal.failures) == (cached, [])


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path, cached: list[Path], kernel_cache: Path) -> None:
    """Nor is it in use because that is."""
    links = [kernel_cache / f"6.1.9-{'0' * 12}", cached[3]]
    links[0].symlink_to(tmp_path / "results")
    with (tmp_path / "results/summary.json").open():
        removal = remove_entries(CachedEntry(link, 0, None) for link in links)
    assert (removal.removed, removal.in_use, removal.failures) == (links, [], [])
    assert there(links) == []
    assert (tmp_path / "results/summary.json").read_text() == "mine"


def test_the_question_speaks_of_kernels_only_if_there_are_some(
    cached: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("atoll_cli.commands.clean.confirm", lambda question, *_, **__: asked.append(question))
    clean(yes=False, as_json=False)
    for path in cached[:3]:
        shutil.rmtree(path)
    clean(yes=False, as_json=False)
    assert ["kernels" in question for question in asked] == [True, False]


def test_json_asks_nothing_on_a_terminal(
    cached: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "y\n"))
    clean(yes=False, as_json=True)
    out, err = capsys.readouterr()
    assert (json.loads(out)["removed"], err) == ([], "to remove this: atoll clean --yes\n")
    assert there(cached) == cached


def test_a_cache_that_does_not_exist_is_empty(kernel_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not kernel_cache.exists()
    clean(yes=True, as_json=False)
    assert capsys.readouterr().out == "nothing to remove\n"


def test_what_is_all_in_use_is_not_called_nothing(kernel_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = kernel_cache.parent / "servers"
    directory.mkdir(parents=True)
    (directory / "influxd").touch()
    with (directory / "influxd").open():
        clean(yes=True, as_json=False)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(f"{directory}  in use by process {os.getpid()}, stays")
