# SPDX-License-Identifier: Apache-2.0
"""Which of the kernels that are kept runs, and who may keep one for whom. The kernels are a few bytes here."""

import json
import os
from pathlib import Path

import pytest

from atoll_core.errors import MachineError, UsageError
from atoll_emulation.uml import build as build_module
from atoll_emulation.uml.build import build_kernel, build_preferred
from atoll_emulation.uml.cache import kernel_status, sha256, unused_kernels
from atoll_emulation.uml.kernel import find_virtual_kernel
from atoll_emulation.uml.recipe import RECIPES, recipe_for
from atoll_emulation.uml.source import find_source
from tests.support.sandbox import NOBODY, open_to_others
from tests.unit.emulation.test_kernel_build import archive, atoll_kernel

OLD, NEW = RECIPES

pytestmark = pytest.mark.usefixtures("kernel_cache")


@pytest.fixture
def own(tmp_path: Path, shared_kernels: Path) -> Path:
    """Root's own cache, where earlier versions built."""
    assert shared_kernels
    return tmp_path / "home" / ".cache" / "atoll" / "kernel"


def keep(place: Path, release: str = "6.1.7") -> Path:
    """Put a kernel there, of the present recipe."""
    directory = place / f"{release}-{recipe_for(release).hash}"
    directory.mkdir(parents=True)
    facts = {"release": f"{release}-atoll"}
    for name in ("linux", "fixed-random.so"):
        (directory / name).write_text(name)
        facts[f"sha256 {name}"] = sha256(directory / name)
    (directory / "kernel.json").write_text(json.dumps(facts))
    return directory


# The choice


def test_without_a_choice_another_series_does_not_run(kernel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users of one machine would run different kernels. A release that has no recipe may stand in."""
    monkeypatch.setattr("atoll_emulation.uml.recipe.PREFERRED", ("6.1",))
    new = keep(kernel_cache, "7.2.7")
    assert kernel_status().state == "missing"
    stand_in = keep(kernel_cache, "6.12.7")
    assert kernel_status().directory == stand_in
    monkeypatch.setenv("ATOLL_KERNEL", "7.2")
    assert kernel_status().directory == new


def test_the_newest_proven_release_runs_and_each_of_the_others_can_stand_in(kernel_cache: Path) -> None:
    """7.2 before 6.1, and before a release that nobody has tried."""
    for release in ("6.12.7", "6.1.7", "7.3.7", "7.2.7"):
        kept = keep(kernel_cache, release)
        if release != "7.3.7":
            assert kernel_status().directory == kept


def test_a_damaged_kernel_gives_way_to_an_undamaged_one(shared_kernels: Path, own: Path) -> None:
    """Else what a plain user builds, who cannot repair the shared kernel, would not run."""
    damaged, mine = keep(shared_kernels, "6.1.8"), keep(own)
    assert kernel_status().directory == damaged
    (damaged / "linux").write_text("other")
    assert find_virtual_kernel().executable == mine / "linux"


def test_a_kernel_whose_facts_do_not_parse_is_passed_over_and_can_be_removed(kernel_cache: Path) -> None:
    damaged = keep(kernel_cache, "6.1.8")
    for content in ("", "[]", '{"release'):
        (damaged / "kernel.json").write_text(content)
        assert kernel_status().state == "missing"
    kept = keep(kernel_cache)
    assert kernel_status().directory == kept
    assert unused_kernels() == [damaged]


def test_an_own_cache_that_is_closed_does_not_hide_the_shared_kernel(
    tmp_path: Path, shared_kernels: Path, own: Path
) -> None:
    """As with HOME=/root kept for another user."""
    open_to_others(tmp_path)
    own.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    kept = keep(shared_kernels)
    os.seteuid(NOBODY[0])
    try:
        assert kernel_status().directory == kept
        assert unused_kernels() == []
    finally:
        os.seteuid(0)


def test_root_runs_no_kernel_that_another_user_can_change(own: Path) -> None:
    """As after `sudo -E`."""
    kept = keep(own)
    assert kernel_status().directory == kept
    os.chown(kept / "linux", *NOBODY)
    with pytest.raises(MachineError, match=rf"{own} does not count: {kept}/linux is not root's\); run: atoll kernel"):
        find_virtual_kernel()


# Builds


def test_roots_own_kernel_does_not_stand_for_the_shared_one(
    tmp_path: Path, shared_kernels: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(own)
    source = archive(tmp_path)
    monkeypatch.setattr(build_module, "find_source", lambda *_: source)
    built = build_preferred(lambda *_: None, print)
    assert built is not None
    assert built.parent == shared_kernels
    assert build_preferred(lambda *_: None, print) is None


def test_a_shared_place_that_would_not_count_is_refused_and_left_as_it_is(tmp_path: Path, shared_kernels: Path) -> None:
    shared_kernels.parent.mkdir()
    shared_kernels.parent.chmod(0o1777)
    with pytest.raises(
        MachineError,
        match=rf"kernels in {shared_kernels} are not used: other users than root can write {shared_kernels.parent}",
    ):
        build_kernel(archive(tmp_path), lambda *_: None)
    assert shared_kernels.parent.stat().st_mode & 0o7777 == 0o1777
    assert list(shared_kernels.iterdir()) == []


def test_a_lock_is_no_link_and_is_closed_to_others(tmp_path: Path, kernel_cache: Path) -> None:
    """Whoever can read it can hold it."""
    source, lock, other = archive(tmp_path), kernel_cache / "lock", tmp_path / "other"
    kernel_cache.mkdir(parents=True)
    other.write_text("not ours")
    lock.symlink_to(other)
    with pytest.raises(MachineError, match=f"^{lock}: Too many levels of symbolic links"):
        build_kernel(source, lambda *_: None)
    assert other.read_text() == "not ours"
    lock.unlink()
    lock.touch(0o644)
    build_kernel(source, lambda *_: None)
    assert lock.stat().st_mode & 0o777 == 0o600


def test_a_kernel_is_on_the_disk_before_it_has_its_place(
    tmp_path: Path, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))
    build_kernel(archive(tmp_path), lambda *_: None)
    result = kernel_cache / "building" / "result"
    assert {*synced[:-2]} == {result / name for name in ("linux", "fixed-random.so", "config", "kernel.json")}
    assert synced[-2:] == [result, kernel_cache]


def test_the_only_source_of_another_series_is_named_and_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: list[str] = []
    source = archive(tmp_path, "6.12")
    monkeypatch.setattr(build_module, "find_source", lambda *_: source)
    assert build_preferred(lambda *_: None, answer.append) is not None
    assert build_preferred(lambda *_: None, answer.append) is None
    assert answer == [f"Linux 6.12 (the preferred release that is to be had), from {source}"]


def test_a_chosen_series_is_not_built_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "linux-source-6.12.tar.xz").touch()
    monkeypatch.setenv("ATOLL_KERNEL", "6.1")
    with pytest.raises(MachineError, match=r"apt install .*linux-source-6.1\b"):
        find_source(None, OLD, tmp_path)
    monkeypatch.setenv("ATOLL_KERNEL", "7.2")
    source = archive(tmp_path, compile_with=f"touch {tmp_path}/compiled")
    with pytest.raises(UsageError, match=r"6.1.tar.xz is Linux 6.1, but ATOLL_KERNEL=7.2; to build it: "):
        build_kernel(source, lambda *_: None)
    assert not (tmp_path / "compiled").exists()


def test_a_built_kernel_that_does_not_run_is_told_with_the_choice_that_runs_it(
    tmp_path: Path, kernel_cache: Path
) -> None:
    preferred = keep(kernel_cache, "7.2.7")
    done = atoll_kernel("build", "--source", str(archive(tmp_path)))
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == f"built {kernel_cache}/6.1.7-{OLD.hash}; to use it, set ATOLL_KERNEL=6.1"
    assert done.stdout == f"Linux 7.2.7-atoll for virtual time: {preferred}\n"


def test_where_debians_package_cannot_be_had_a_source_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "fedora"})
    with pytest.raises(MachineError) as raised:
        find_source(None, OLD, tmp_path)
    assert "linux-source" not in str(raised.value)
    line = "there is no linux-6.1.tar.xz here; download it, and name it: atoll kernel build --source linux-6.1.tar.xz"
    assert str(raised.value).splitlines()[0] == line


def test_an_architecture_without_virtual_time_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    line = "there is no virtual time on aarch64: User-Mode Linux exists for x86 alone; "
    assert str(kernel_status().problem_text).startswith(line)
    for refused in (find_virtual_kernel, lambda: find_source(None, OLD, tmp_path)):
        with pytest.raises(MachineError, match=f"^{line}"):
            refused()
