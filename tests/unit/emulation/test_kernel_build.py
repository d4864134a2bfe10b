# SPDX-License-Identifier: Apache-2.0
"""Building the kernel for virtual time: the real tar, patch, make and gcc on a source that takes a moment."""

import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from atoll_core.errors import LabError, MachineError, UsageError
from atoll_emulation.uml import build as build_module
from atoll_emulation.uml.build import build_kernel, build_preferred
from atoll_emulation.uml.cache import build_cache, kernel_status
from atoll_emulation.uml.kernel import find_virtual_kernel
from atoll_emulation.uml.recipe import OPTIONAL_MARK, RECIPES, missing_options, recipe_for
from atoll_emulation.uml.source import download, find_source
from tests.support.sandbox import ATOLL, NOBODY, Sandbox, open_to_others, tools_without

# What a kernel's Makefile does, as far as a build looks at it: `make -C SOURCE O=OBJECTS ARCH=um TARGET`.
MAKEFILE = """
VERSION = {version}
PATCHLEVEL = {patchlevel}
SUBLEVEL = 7
allnoconfig:
	grep -v '{leave_out}' $(KCONFIG_ALLCONFIG) > $(O)/.config
linux:
	@echo '  CC      first.o'
	@{compile}
	@mkdir -p $(O)/include/config && echo {version}.{patchlevel}.7-atoll > $(O)/include/config/kernel.release
	@printf '#!/bin/sh\\necho a kernel' > $(O)/linux && chmod +x $(O)/linux
"""

OLD, NEW = RECIPES

pytestmark = [pytest.mark.usefixtures("kernel_cache"), pytest.mark.long]

# Any program that waits will do; coreutils may be one program for all of its names.
WAITING = "#include <unistd.h>\nint main(void) { return pause(); }"


def archive(
    directory: Path,
    series: str = "6.1",
    *,
    compile_with: str = "true",
    leave_out: str = "nothing",
    patched: bool = True,
) -> Path:
    """Sources that take our patches: of each file a patch touches, the lines it expects."""
    tree = directory / f"linux-source-{series}"
    tree.mkdir()
    version, _, patchlevel = series.partition(".")
    makefile = MAKEFILE.format(version=version, patchlevel=patchlevel, compile=compile_with, leave_out=leave_out)
    (tree / "Makefile").write_text(makefile)
    for patch in reversed(recipe_for(series).patches):  # the end of a file is what getcpu.patch expects there
        file = tree
        for line in patch.read_text().splitlines():
            if line.startswith("--- a/"):
                file = tree / line.removeprefix("--- a/")
                file.parent.mkdir(parents=True, exist_ok=True)
            elif file != tree and line[:1] in (" ", "-"):
                with file.open("a") as text:
                    text.write(line[1:] + "\n" if patched else "other\n")
    packed = directory / f"linux-source-{series}.tar.xz"
    with tarfile.open(packed, "w:xz") as tar:
        tar.add(tree, tree.name)
    return packed


def test_a_built_kernel_is_found(tmp_path: Path, kernel_cache: Path) -> None:
    steps: list[tuple[str, int]] = []
    built = build_kernel(archive(tmp_path), lambda step, done, _: steps.append((step, done)))
    assert built == kernel_cache / f"6.1.7-{OLD.hash}"
    assert {path.name for path in built.iterdir()} == {"linux", "fixed-random.so", "config", "kernel.json"}
    assert {path.name for path in kernel_cache.iterdir()} == {built.name, "lock"}
    assert steps == [("unpacking the source", 0), ("configuring", 0), ("compiling", 1)]
    kernel = find_virtual_kernel()
    assert (kernel.executable, kernel.release) == (built / "linux", "6.1.7-atoll")
    assert kernel_status().facts["source"] == "linux-source-6.1.tar.xz"


def test_the_patches_are_applied(tmp_path: Path) -> None:
    compile_with = f"grep -q 'default 250' {tmp_path}/cache/atoll/kernel/building/source/arch/um/Kconfig"
    build_kernel(archive(tmp_path, compile_with=compile_with), lambda *_: None)


def test_building_again_replaces_the_kernel(tmp_path: Path, kernel_cache: Path) -> None:
    source = archive(tmp_path)
    first = build_kernel(source, lambda *_: None) / "linux"
    first.write_text("old")
    assert build_kernel(source, lambda *_: None) / "linux" == first
    assert first.read_text() != "old"
    assert {path.name for path in kernel_cache.iterdir()} == {first.parent.name, "lock"}


def test_no_kernel_and_an_outdated_one_are_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MachineError, match=r"no kernel for virtual time in .*; run: atoll kernel build"):
        find_virtual_kernel()
    build_kernel(archive(tmp_path), lambda *_: None)
    built = kernel_status().directory
    built.rename(built.with_name(f"6.1.7-{'0' * 12}"))
    assert kernel_status().state == "outdated"
    with pytest.raises(MachineError, match="built by another version of atoll; run: atoll kernel build"):
        find_virtual_kernel()


def test_each_option_that_the_source_lacks_is_named(tmp_path: Path, kernel_cache: Path) -> None:
    source = archive(tmp_path, leave_out="NETEM\\|HYBLA")
    with pytest.raises(LabError, match=r"CONFIG_TCP_CONG_HYBLA=y, CONFIG_NET_SCH_NETEM=y; use Linux 6.1$"):
        build_kernel(source, lambda *_: None)
    assert {path.name for path in kernel_cache.iterdir()} == {"lock"}


def test_options_are_compared_by_their_values() -> None:
    assert missing_options("CONFIG_A=y\n# CONFIG_B=y\nCONFIG_C=y\n", "CONFIG_C=m\nCONFIG_A=y\n") == ["CONFIG_C=y"]
    assert missing_options(f"CONFIG_A=y\n{OPTIONAL_MARK}:\nCONFIG_B=y\n", "CONFIG_A=y\n") == []
    assert missing_options(OLD.configuration, "")[-1] == OLD.configuration.split(OPTIONAL_MARK)[0].splitlines()[-2]


def test_a_source_that_does_not_take_a_patch_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        LabError,
        match=rf"the patch {OLD.patches[0].name} does not apply to linux-source-6.1.tar.xz; .*: Hunk #1 FAILED",
    ):
        build_kernel(archive(tmp_path, patched=False), lambda *_: None)


def test_a_compiler_that_fails_is_told_and_its_log_kept(tmp_path: Path, kernel_cache: Path) -> None:
    fail = "{ echo compiled some; echo 'a.c:1: error: no such thing' >&2; exit 1; }"
    with pytest.raises(
        LabError, match=r"does not compile: a.c:1: error: no such thing; its output is in .*/failed.log"
    ):
        build_kernel(archive(tmp_path, compile_with=fail), lambda *_: None)
    assert "compiled some" in (kernel_cache / "failed.log").read_text()
    assert not (kernel_cache / "building").exists()


def test_two_builds_at_once_are_one_too_many(tmp_path: Path) -> None:
    source = archive(tmp_path)

    def build_another(*_: object) -> None:
        build_kernel(source, lambda *_: None)

    with pytest.raises(MachineError, match=r"another process builds or removes kernels"):
        build_kernel(source, build_another)


def test_a_full_disk_is_told_before_anything_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_500_000_000))
    with pytest.raises(MachineError, match=r"takes 2000 MB in .*, where 1500 MB are free \(XDG_CACHE_HOME"):
        build_kernel(archive(tmp_path), lambda *_: None)


def beats_again(beat: Path) -> bool:
    """Whether a file is touched within 0.3 s."""
    last = beat.stat().st_mtime_ns
    time.sleep(0.3)
    return beat.stat().st_mtime_ns != last


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_an_interrupted_build_ends_all_it_started(tmp_path: Path, kernel_cache: Path, number: signal.Signals) -> None:
    """What it had made is cleared away, at the latest by the next build."""
    beating = f"while touch {tmp_path}/beat; do sleep 0.05; done"
    (tmp_path / "long").mkdir()
    long = archive(tmp_path / "long", compile_with=beating)
    process = subprocess.Popen([ATOLL, "kernel", "build", "--source", long], stderr=subprocess.PIPE, text=True)
    beat = tmp_path / "beat"
    while not beat.exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Traceback" not in said
    while beats_again(beat):
        pass
    if number == signal.SIGINT:
        assert {path.name for path in kernel_cache.iterdir()} == {"lock"}
    built = build_kernel(archive(tmp_path), lambda *_: None)
    assert {path.name for path in kernel_cache.iterdir()} == {built.name, "lock"}


# Several releases


def test_each_release_has_its_patches_and_its_way_to_stop_processes(
    tmp_path: Path, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_KERNEL", NEW.series)
    built = build_kernel(archive(tmp_path, NEW.series), lambda *_: None)
    assert built == kernel_cache / f"7.2.7-{NEW.hash}"
    assert kernel_status().facts["mode"] == "seccomp"
    assert "CONFIG_IP_NF_IPTABLES_LEGACY=y" in (built / "config").read_text()
    kernel = find_virtual_kernel()
    assert (kernel.release, kernel.mode, kernel.arguments) == ("7.2.7-atoll", "seccomp", ("seccomp=on",))
    monkeypatch.setenv("ATOLL_KERNEL", OLD.series)
    build_kernel(archive(tmp_path, OLD.series), lambda *_: None)
    assert (find_virtual_kernel().mode, find_virtual_kernel().arguments) == ("ptrace", ())


def test_a_release_without_a_recipe_has_that_of_the_one_before() -> None:
    found = [recipe_for(release).series for release in ("5.15.3", "6.1.192", "6.12.3", "7.1.9", "7.2", "7.3.4-atoll")]
    assert found == ["6.1", "6.1", "6.1", "6.1", "7.2", "7.2"]


def test_the_user_chooses_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a preferred one runs, even where another is newer."""
    for series in ("6.12", "6.1"):
        build_kernel(archive(tmp_path, series), lambda *_: None)
    assert find_virtual_kernel().release == "6.1.7-atoll"
    monkeypatch.setenv("ATOLL_KERNEL", "6.12")
    assert find_virtual_kernel().release == "6.12.7-atoll"
    monkeypatch.setenv("ATOLL_KERNEL", "7.2")
    with pytest.raises(MachineError, match=r"^no kernel for virtual time of Linux 7.2 \(ATOLL_KERNEL\) in "):
        find_virtual_kernel()
    monkeypatch.setenv("ATOLL_KERNEL", "6.12")
    with pytest.raises(UsageError, match=r"^ATOLL_KERNEL=6.12: only 6.1 and 7.2 are built without a source; name an "):
        build_preferred(lambda *_: None, print)
    monkeypatch.setenv("ATOLL_KERNEL", "newest")
    for words in (("status",), ("build",), ("path",)):
        done = atoll_kernel(*words)
        expected = "ATOLL_KERNEL=newest is no release series of Linux; known ones: 6.1 and 7.2\n"
        assert (done.returncode, done.stderr) == (2, expected)


def test_the_best_release_that_is_to_be_had_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not falls back to the next, and says why; a kernel that is there is not built again."""
    answer: list[str] = []
    old = archive(tmp_path)
    monkeypatch.setattr(build_module, "find_source", lambda _, recipe: old if recipe == OLD else None)

    def unreachable(*_: object) -> Path:
        raise LabError("Debian's trixie-backports cannot be reached: no such host")

    monkeypatch.setattr(build_module, "download", unreachable)
    for there_before in (False, True):
        assert bool(build_preferred(lambda *_: None, answer.append)) != there_before
        assert answer[0].startswith("Linux 7.2 (the preferred release that is to be had), from linux-source-7.2 of ")
        assert answer[1] == "Linux 7.2 is not built: Debian's trixie-backports cannot be reached: no such host"
        assert (
            len(answer) == 2
            if there_before
            else answer[2] == f"Linux 6.1 (the preferred release that is to be had), from {old}"
        )
        answer.clear()
    new = archive(tmp_path, NEW.series)
    monkeypatch.setattr(build_module, "download", lambda *_: new)
    built = build_preferred(lambda *_: None, answer.append)
    assert built is not None
    assert built.name == f"7.2.7-{NEW.hash}"
    answer.clear()
    assert build_preferred(lambda *_: None, answer.append) is None
    assert answer == []


def test_a_source_is_downloaded_beside_the_systems_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With lists, caches and sources of its own, and Debian's keyring. The archive has the package's exact version."""
    commands: list[list[str]] = []

    def run(argv: Sequence[str], failure: str, directory: Path) -> None:
        commands.append([*argv])
        if argv[-2] == "download":
            (directory / "linux-source-7.2_7.2.12-1_all.deb").touch()
        elif argv[0] == "dpkg-deb":
            (directory / "usr/src").mkdir(parents=True)
            (directory / "usr/src/linux-source-7.2.tar.xz").touch()

    found = download(NEW, tmp_path, run)
    assert found == tmp_path / "linux-source-7.2_7.2.12-1_all.tar.xz"
    assert found.exists()
    assert [command[-1] for command in commands] == ["update", "linux-source-7.2", "."]
    assert "keyrings/debian-archive-keyring.gpg] http" in (tmp_path / "sources.list").read_text()
    for command in commands[:2]:
        settings = dict(word.split("=", 1) for word in command if "::" in word)
        for name in ("Dir::Etc::sourcelist", "Dir::State::lists", "Dir::Cache::archives"):
            assert Path(settings[name]).is_relative_to(tmp_path)
        assert settings["Dir::Etc::sourceparts"] == "/dev/null"
        assert settings["APT::Get::AllowUnauthenticated"] == "false"
        assert command[2:4] == ["-c", str(tmp_path / "apt.conf")]  # before the settings: it clears the system's hooks
    assert (tmp_path / "apt.conf").read_text() == "#clear APT::Update;\n"


# The shared cache


@pytest.mark.lab
def test_every_user_runs_what_root_built(tmp_path: Path, shared_kernels: Path) -> None:
    """Whatever root's umask; and a plain user does not clean there."""
    open_to_others(tmp_path)
    source = archive(tmp_path, NEW.series)
    subprocess.run(
        ["sh", "-c", f"umask 077; PYTHONDONTWRITEBYTECODE=1 exec {ATOLL} kernel build --source {source}"], check=True
    )
    assert build_cache() == shared_kernels
    built = shared_kernels / f"7.2.7-{NEW.hash}"
    other = shared_kernels / f"7.2.6-{NEW.hash}"
    shutil.copytree(built, other)
    with Sandbox(tmp_path, user=NOBODY) as sandbox:
        variables = ("env", f"HOME={tmp_path}/nobody", f"ATOLL_SHARED_KERNELS={shared_kernels}")
        where = sandbox.run(*variables, ATOLL, "kernel", "path")
        building = sandbox.run(*variables, ATOLL, "kernel", "build")
        cleaning = sandbox.run(*variables, ATOLL, "kernel", "clean")
        sandbox.wait_clean()
    assert where.stdout == f"{built}/linux\n"
    assert building.stdout == f"Linux 7.2.7-atoll for virtual time: {built}\n"
    assert cleaning.stdout == "nothing to remove\n"
    assert atoll_kernel("clean").stdout == f"removed {other}\n"


@pytest.mark.lab
def test_a_shared_kernel_that_others_can_change_does_not_count(tmp_path: Path, shared_kernels: Path) -> None:
    built = build_kernel(archive(tmp_path), lambda *_: None)
    for path in (built / "linux", built, shared_kernels, shared_kernels.parent):
        before = path.stat().st_mode
        path.chmod(before | 0o020)
        with pytest.raises(
            MachineError, match=rf"{shared_kernels} does not count: other users than root can write {path}"
        ):
            find_virtual_kernel()
        path.chmod(before)
        assert find_virtual_kernel().executable == built / "linux"
    os.chown(built / "fixed-random.so", *NOBODY)
    with pytest.raises(MachineError, match=r"does not count: \S+/fixed-random.so is not root's"):
        find_virtual_kernel()


@pytest.mark.parametrize("name", ["linux", "fixed-random.so"])
def test_a_kernel_is_run_only_as_it_was_built(tmp_path: Path, name: str) -> None:
    file = build_kernel(archive(tmp_path), lambda *_: None) / name
    file.write_bytes(file.read_bytes() + b"other")
    with pytest.raises(
        MachineError, match=rf"^{file} is not the file that was built .*; run: atoll kernel build --force"
    ):
        find_virtual_kernel()


# Sources and tools


def test_the_tried_release_is_preferred_then_the_newest(tmp_path: Path) -> None:
    def offer(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        return path

    old = offer("linux-source-5.15.0/linux-source-5.15.0.tar.bz2")
    assert find_source(None, OLD, tmp_path) == old
    newest = offer("linux-source-6.12.tar.xz")
    offer("linux-source-6.9.tar.xz")
    assert find_source(None, OLD, tmp_path) == newest
    tried = offer("linux-source-6.1.tar.xz")
    assert find_source(None, OLD, tmp_path) == tried


def test_all_that_a_build_lacks_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools_without(tmp_path / "tools", ["bison", "flex", "xz"])))
    with pytest.raises(MachineError) as raised:
        find_source(None, OLD, tmp_path)
    assert str(raised.value).endswith(": `apt install bison flex linux-source-6.1 xz-utils`")


def test_an_archive_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--source \S+: no such file; name an archive of kernel sources, such as"):
        find_source(tmp_path / "absent.tar.xz", OLD)
    with pytest.raises(UsageError, match=r"^--source \S+: is no archive of kernel sources; name an archive"):
        find_source(tmp_path, OLD)


# The verb


def atoll_kernel(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ATOLL, "kernel", *words], capture_output=True, text=True, check=False, env=os.environ)


def test_the_verb_builds_tells_and_finds(tmp_path: Path, kernel_cache: Path) -> None:
    missing = atoll_kernel("status")
    assert (missing.returncode, missing.stdout.splitlines()[0]) == (1, "missing")
    assert "atoll kernel build" in missing.stderr
    assert atoll_kernel("path").returncode == 1
    done = atoll_kernel("build", "--source", str(archive(tmp_path, NEW.series)))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"Linux 7.2.7-atoll for virtual time: .*\n", done.stdout)
    assert done.stderr.splitlines()[0] == "unpacking the source"
    assert atoll_kernel("build").stderr == ""  # there already
    assert atoll_kernel("path").stdout == f"{kernel_cache}/7.2.7-{NEW.hash}/linux\n"
    assert atoll_kernel("status", "--json").stdout.startswith('{"state": "built"')


@pytest.mark.lab
def test_a_plain_user_builds_in_a_cache_of_their_own(tmp_path: Path) -> None:
    open_to_others(tmp_path)
    source = archive(tmp_path)
    with Sandbox(tmp_path, user=NOBODY) as sandbox:
        done = sandbox.run("env", f"XDG_CACHE_HOME={tmp_path}/cache", ATOLL, "kernel", "build", "--source", source)
        sandbox.wait_clean()
    assert done.returncode == 0, done.stderr
    built = build_cache() / f"6.1.7-{OLD.hash}"
    assert {(path.owner(), path.stat().st_size > 0) for path in built.iterdir()} == {("nobody", True)}


def test_kernels_of_other_versions_are_removed_but_for_those_that_run(tmp_path: Path, kernel_cache: Path) -> None:
    """Only when asked to: another checkout may use them. What somebody put there himself stays."""
    present = build_kernel(archive(tmp_path), lambda *_: None)
    old, running = (kernel_cache / f"6.1.{minor}-{'0' * 12}" for minor in (1, 2))
    for directory in (old, running):
        shutil.copytree(present, directory)
    mine = kernel_cache / "mine"
    mine.mkdir()
    subprocess.run(["gcc", "-x", "c", "-", "-o", running / "linux"], input=WAITING, text=True, check=True)
    with subprocess.Popen([running / "linux"]) as kernel:
        assert "unused     2 kernels of other versions" in atoll_kernel("status").stdout
        assert json.loads(atoll_kernel("status", "--json").stdout)["unused"] == [str(old), str(running)]
        done = atoll_kernel("clean", "--json")
        kernel.kill()
    assert json.loads(done.stdout) == {"removed": [str(old)], "running": [str(running)]}
    assert {path.name for path in kernel_cache.iterdir()} == {present.name, running.name, mine.name, "lock"}
    assert atoll_kernel("clean").stdout == f"removed {running}\n"
    assert atoll_kernel("clean").stdout == "nothing to remove\n"
    assert kernel_status().state == "built"
