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
from pathlib import Path

import pytest

from atoll.model.errors import LabError, MachineError, UsageError
from atoll_emulation.uml import build as build_module
from atoll_emulation.uml.build import build
from atoll_emulation.uml.cache import cache_directory, kernel_status
from atoll_emulation.uml.kernel import find_virtual_kernel
from atoll_emulation.uml.recipe import CONFIG, OPTIONAL, PATCHES, missing_options, recipe_hash
from atoll_emulation.uml.source import find_source
from tests.lab.sandbox import ATOLL, NOBODY, Sandbox, open_to_others, tools_without

# What a kernel's Makefile does, as far as a build looks at it: `make -C SOURCE O=OBJECTS ARCH=um TARGET`.
MAKEFILE = """
allnoconfig:
	grep -v '{leave_out}' $(KCONFIG_ALLCONFIG) > $(O)/.config
linux:
	@echo '  CC      first.o'
	@{compile}
	@mkdir -p $(O)/include/config && echo 6.1.7-atoll > $(O)/include/config/kernel.release
	@printf '#!/bin/sh\\necho a kernel' > $(O)/linux && chmod +x $(O)/linux
"""

# Any program that waits will do; coreutils may be one program for all of its names.
WAITING = "#include <unistd.h>\nint main(void) { return pause(); }"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_directory()


def archive(directory: Path, *, compile_with: str = "true", leave_out: str = "nothing", patched: bool = True) -> Path:
    """Sources that take our patches: of each file a patch touches, the lines it expects."""
    tree = directory / "linux-source-6.1"
    tree.mkdir()
    (tree / "Makefile").write_text(MAKEFILE.format(compile=compile_with, leave_out=leave_out))
    for patch in PATCHES:
        file = tree
        for line in patch.read_text().splitlines():
            if line.startswith("--- a/"):
                file = tree / line.removeprefix("--- a/")
                file.parent.mkdir(parents=True, exist_ok=True)
            elif file != tree and line[:1] in (" ", "-"):
                with file.open("a") as text:
                    text.write(line[1:] + "\n" if patched else "other\n")
    packed = directory / "linux-source-6.1.tar.xz"
    with tarfile.open(packed, "w:xz") as tar:
        tar.add(tree, tree.name)
    return packed


def test_a_built_kernel_is_found(tmp_path: Path, cache: Path) -> None:
    steps: list[tuple[str, int]] = []
    built = build(archive(tmp_path), lambda step, done, _: steps.append((step, done)))
    assert built == cache / f"6.1.7-{recipe_hash()}"
    assert {path.name for path in built.iterdir()} == {"linux", "fixed-random.so", "config", "kernel.json"}
    assert {path.name for path in cache.iterdir()} == {built.name, "lock"}
    assert steps == [("unpacking the source", 0), ("configuring", 0), ("compiling", 1)]
    kernel = find_virtual_kernel()
    assert (kernel.executable, kernel.release) == (built / "linux", "6.1.7-atoll")
    assert kernel_status().facts["source"] == "linux-source-6.1.tar.xz"


def test_the_patches_are_applied(tmp_path: Path) -> None:
    compile_with = f"grep -q 'default 250' {tmp_path}/cache/atoll/kernel/building/source/arch/um/Kconfig"
    build(archive(tmp_path, compile_with=compile_with), lambda *_: None)


def test_building_again_replaces_the_kernel(tmp_path: Path, cache: Path) -> None:
    source = archive(tmp_path)
    first = build(source, lambda *_: None) / "linux"
    first.write_text("old")
    assert build(source, lambda *_: None) / "linux" == first
    assert first.read_text() != "old"
    assert {path.name for path in cache.iterdir()} == {first.parent.name, "lock"}


def test_no_kernel_and_an_outdated_one_are_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MachineError, match=r"no kernel for virtual time in .*; run: atoll kernel build"):
        find_virtual_kernel()
    build(archive(tmp_path), lambda *_: None)
    monkeypatch.setattr("atoll_emulation.uml.cache.recipe_hash", lambda: "0" * 12)
    assert kernel_status().state == "outdated"
    with pytest.raises(MachineError, match="built by another version of atoll; run: atoll kernel build"):
        find_virtual_kernel()


def test_each_option_that_the_source_lacks_is_named(tmp_path: Path, cache: Path) -> None:
    source = archive(tmp_path, leave_out="NETEM\\|HYBLA")
    with pytest.raises(LabError, match=r"CONFIG_TCP_CONG_HYBLA=y, CONFIG_NET_SCH_NETEM=y; Linux 6.1 does$"):
        build(source, lambda *_: None)
    assert {path.name for path in cache.iterdir()} == {"lock"}


def test_options_are_compared_by_their_values() -> None:
    assert missing_options("CONFIG_A=y\n# CONFIG_B=y\nCONFIG_C=y\n", "CONFIG_C=m\nCONFIG_A=y\n") == ["CONFIG_C=y"]
    assert missing_options(f"CONFIG_A=y\n{OPTIONAL}:\nCONFIG_B=y\n", "CONFIG_A=y\n") == []
    assert missing_options(CONFIG.read_text(), "")[-1] == CONFIG.read_text().split(OPTIONAL)[0].splitlines()[-2]


def test_a_source_that_does_not_take_a_patch_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        LabError, match=rf"linux-source-6.1.tar.xz does not take our {PATCHES[0].name}; .*: Hunk #1 FAILED"
    ):
        build(archive(tmp_path, patched=False), lambda *_: None)


def test_a_compiler_that_fails_is_told_and_its_log_kept(tmp_path: Path, cache: Path) -> None:
    fail = "{ echo compiled some; echo 'a.c:1: error: no such thing' >&2; exit 1; }"
    with pytest.raises(
        LabError, match=r"does not compile: a.c:1: error: no such thing; all it said is in .*/failed.log"
    ):
        build(archive(tmp_path, compile_with=fail), lambda *_: None)
    assert "compiled some" in (cache / "failed.log").read_text()
    assert not (cache / "building").exists()


def test_two_builds_at_once_are_one_too_many(tmp_path: Path) -> None:
    source = archive(tmp_path)

    def build_another(*_: object) -> None:
        build(source, lambda *_: None)

    with pytest.raises(MachineError, match=r"kernels in .* are being built or removed; wait"):
        build(source, build_another)


def test_a_full_disk_is_told_before_anything_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "_SPACE_MB", 10**9)
    with pytest.raises(MachineError, match=r"takes 1000000000 MB in .*, where \d+ MB are free \(XDG_CACHE_HOME"):
        build(archive(tmp_path), lambda *_: None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_an_interrupted_build_ends_all_it_started(tmp_path: Path, cache: Path, number: signal.Signals) -> None:
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
    _, said = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "Traceback" not in said
    time.sleep(0.3)
    last = beat.stat().st_mtime_ns
    time.sleep(0.3)
    assert beat.stat().st_mtime_ns == last
    if number == signal.SIGINT:
        assert {path.name for path in cache.iterdir()} == {"lock"}
    built = build(archive(tmp_path), lambda *_: None)
    assert {path.name for path in cache.iterdir()} == {built.name, "lock"}


# Sources and tools


def test_the_tried_release_is_preferred_then_the_newest(tmp_path: Path) -> None:
    def offer(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        return path

    old = offer("linux-source-5.15.0/linux-source-5.15.0.tar.bz2")
    assert find_source(place=tmp_path) == old
    newest = offer("linux-source-6.12.tar.xz")
    offer("linux-source-6.9.tar.xz")
    assert find_source(place=tmp_path) == newest
    tried = offer("linux-source-6.1.tar.xz")
    assert find_source(place=tmp_path) == tried


def test_all_that_a_build_lacks_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools_without(tmp_path / "tools", ["bison", "flex", "xz"])))
    with pytest.raises(MachineError) as raised:
        find_source(place=tmp_path)
    assert str(raised.value).endswith(": apt install bison flex linux-source-6.1 xz-utils")


def test_an_archive_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^--source \S+: no such file; name an archive of kernel sources, such as"):
        find_source(tmp_path / "absent.tar.xz")
    with pytest.raises(UsageError, match=r"^--source \S+: is no archive of kernel sources; name an archive"):
        find_source(tmp_path)


# The verb


def atoll_kernel(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ATOLL, "kernel", *words], capture_output=True, text=True, check=False, env=os.environ)


def test_the_verb_builds_tells_and_finds(tmp_path: Path, cache: Path) -> None:
    missing = atoll_kernel("status")
    assert (missing.returncode, missing.stdout.splitlines()[0]) == (1, "missing")
    assert "atoll kernel build" in missing.stderr
    assert atoll_kernel("where").returncode == 1
    done = atoll_kernel("build", "--source", str(archive(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"Linux 6.1.7-atoll for virtual time: .*\n", done.stdout)
    assert done.stderr.splitlines()[0] == "unpacking the source"
    assert atoll_kernel("build").stderr == ""  # there already
    assert atoll_kernel("where").stdout == f"{cache}/6.1.7-{recipe_hash()}/linux\n"
    assert atoll_kernel("status", "--json").stdout.startswith('{"state": "built"')


@pytest.mark.lab
def test_a_plain_user_builds_in_a_cache_of_their_own(tmp_path: Path) -> None:
    open_to_others(tmp_path)
    source = archive(tmp_path)
    with Sandbox(tmp_path, user=NOBODY) as sandbox:
        done = sandbox.run("env", f"XDG_CACHE_HOME={tmp_path}/cache", ATOLL, "kernel", "build", "--source", source)
        sandbox.wait_clean()
    assert done.returncode == 0, done.stderr
    built = kernel_status().directory
    assert {(path.owner(), path.stat().st_size > 0) for path in built.iterdir()} == {("nobody", True)}


def test_kernels_of_other_versions_are_removed_but_for_those_that_run(tmp_path: Path, cache: Path) -> None:
    """Only when asked to: another checkout may use them. What somebody put there himself stays."""
    present = build(archive(tmp_path), lambda *_: None)
    old, running = (cache / f"6.1.{minor}-{'0' * 12}" for minor in (1, 2))
    for directory in (old, running):
        shutil.copytree(present, directory)
    mine = cache / "mine"
    mine.mkdir()
    subprocess.run(["gcc", "-x", "c", "-", "-o", running / "linux"], input=WAITING, text=True, check=True)
    with subprocess.Popen([running / "linux"]) as kernel:
        assert "unused     2 of other versions" in atoll_kernel("status").stdout
        assert json.loads(atoll_kernel("status", "--json").stdout)["unused"] == [str(old), str(running)]
        done = atoll_kernel("clean", "--json")
        kernel.kill()
    assert json.loads(done.stdout) == {"removed": [str(old)], "running": [str(running)]}
    assert {path.name for path in cache.iterdir()} == {present.name, running.name, mine.name, "lock"}
    assert atoll_kernel("clean").stdout == f"removed {running}\n"
    assert atoll_kernel("clean").stdout == "nothing to remove\n"
    assert kernel_status().state == "built"
