# SPDX-License-Identifier: Apache-2.0
"""Build the kernel for virtual time from the distribution's source package.

Everything happens in one directory in the cache, which becomes the kernel's own at the very end; whatever interrupts a
build, the next one clears that directory away. All programs run in namespaces that end with this process.
"""

import json
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from atoll.model.errors import LabError, MachineError
from atoll_emulation.namespaces import unshare_argv, why_no_namespaces
from atoll_emulation.uml.cache import alone, cache_directory
from atoll_emulation.uml.recipe import CONFIG, PATCHES, SHIM_SOURCE, missing_options, recipe_hash

Progress = Callable[[str, int, int], None]
"""Takes the step under way, how many of its parts are done, and of how many (0: who knows)."""

_COMPILED = 1417  # lines of make's about an object; 6.1.192 with the present configuration
_SPACE_MB = 1500  # sources and objects together take 1.1 GB
_LOG = "build.log"

# What no configuration of ours compiles is left in the archive, but for what make and Kconfig read everywhere.
_LEFT_OUT = (
    *(f"drivers/{name}/*.[ch]" for name in ("gpu", "media", "staging", "infiniband", "scsi", "usb")),
    *(f"drivers/net/{name}/*.[ch]" for name in ("ethernet", "wireless")),
    *("sound/*.[ch]", "arch/[!ux]*/*.[chS]", "tools/testing/*", "Documentation/*.rst", "*.dts", "*.dtsi"),
)

# In the lines of a program that failed: compilers, patch, Kconfig, tar.
_REASON = re.compile(r"error: |FAILED|can't |[Cc]annot |No space left|does not look like|\*\*\* ")

# Two builds of one source are the same program, and `uname -v` is the same in each.
_ENVIRONMENT = {
    "LC_ALL": "C",
    "KBUILD_BUILD_USER": "atoll",
    "KBUILD_BUILD_HOST": "atoll",
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01",
}


def build(source: Path, progress: Progress) -> Path:
    """Build from the archive ``source``; the directory of the finished kernel.

    One that is there already is replaced. Raises MachineError for want of space or rights, and LabError when the
    source does not take our patches or options, or a compiler fails.
    """
    cache = cache_directory()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with alone(cache), _scratch(cache) as scratch:
            return _build_in(scratch, source, progress)
    except OSError as error:
        msg = f"{error.filename or cache}: {error.strerror}; kernels are built and kept in {cache} (XDG_CACHE_HOME)"
        raise MachineError(msg) from error


@contextmanager
def _scratch(cache: Path) -> Generator[Path]:
    """An empty directory to build in, gone afterwards."""
    scratch = cache / "building"
    shutil.rmtree(scratch, ignore_errors=True)
    free_mb = shutil.disk_usage(cache).free // 10**6
    if free_mb < _SPACE_MB:
        msg = (
            f"building a kernel takes {_SPACE_MB} MB in {cache}, where {free_mb} MB are free (XDG_CACHE_HOME moves it)"
        )
        raise MachineError(msg)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _build_in(scratch: Path, archive: Path, progress: Progress) -> Path:
    recipe = recipe_hash()
    source, objects, result = (scratch / name for name in ("source", "objects", "result"))
    for directory in (source, objects, result):
        directory.mkdir()
    with (scratch / _LOG).open("w") as log:
        tools = _Tools(scratch, log.write)
        progress("unpacking the source", 0, 0)
        left_out = [f"--exclude=linux-*/{pattern}" for pattern in _LEFT_OUT]
        unpack = ["tar", "--no-same-owner", "--wildcards", *left_out, "--strip-components=1"]
        tools.run([*unpack, "-C", str(source), "-xf", str(archive)], f"{archive} cannot be unpacked")
        for patch in PATCHES:
            apply = ["patch", "--batch", "--forward", "--strip=1", f"--directory={source}", f"--input={patch}"]
            tools.run(apply, f"{archive.name} does not take our {patch.name}; Linux 6.1 does")
        progress("configuring", 0, 0)
        make = ["make", f"--directory={source}", f"O={objects}", "ARCH=um"]
        tools.run([*make, f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig"], "the kernel cannot be configured")
        configuration = (objects / ".config").read_text()
        if missing := missing_options(CONFIG.read_text(), configuration):
            msg = f"{archive.name} does not have what virtual time needs: {', '.join(missing)}; Linux 6.1 does"
            raise LabError(msg)
        _compile(tools, make, progress)
        shim = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(result / "fixed-random.so"), str(SHIM_SOURCE)]
        tools.run(shim, "the randomness shim does not compile")
        compiler = tools.run(["gcc", "--version"], "gcc does not work")[0]
    shutil.copy2(objects / "linux", result)
    (result / "config").write_text(configuration)
    release = (objects / "include" / "config" / "kernel.release").read_text().strip()
    facts = {
        "release": release,
        "recipe": recipe,
        "source": archive.name,
        "compiler": compiler,
        "built": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    (result / "kernel.json").write_text(json.dumps(facts, indent=1) + "\n")
    return _keep(result, scratch.parent / f"{release.partition('-')[0]}-{recipe}")


def _compile(tools: "_Tools", make: Sequence[str], progress: Progress) -> None:
    done = 0

    def count(line: str) -> None:
        nonlocal done
        if re.match(r"  [A-Z]", line):  # make's word for what it does to which file
            done = min(done + 1, _COMPILED)
            progress("compiling", done, _COMPILED)

    jobs = len(os.sched_getaffinity(0))
    tools.run([*make, f"--jobs={jobs}", "linux"], "the kernel does not compile", count)


def _keep(result: Path, directory: Path) -> Path:
    """Give the finished kernel its place, in the stead of an earlier one. A kernel that runs keeps its files."""
    if directory.exists():
        directory.rename(result.parent / "replaced")
    result.rename(directory)
    return directory


class _Tools:
    """Runs the programs of a build; what they say goes to its log."""

    def __init__(self, scratch: Path, log: Callable[[str], object]) -> None:
        self._scratch = scratch
        self._log = log
        self._prefix = ["setpriv", "--pdeathsig", "KILL"] if why_no_namespaces() else unshare_argv()

    def run(self, argv: Sequence[str], failure: str, watch: Callable[[str], None] | None = None) -> list[str]:
        """Run a program; its last lines. Raises LabError, beginning with ``failure``, when it fails."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT}
        process = subprocess.Popen(
            [*self._prefix, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
        )
        said: deque[str] = deque(maxlen=200)
        with process:
            output = process.stdout or ()
            try:
                for line in output:
                    self._log(line)
                    said.append(line.rstrip())
                    if watch:
                        watch(line)
            except BaseException:
                process.kill()
                deque(output, 0)  # ends when the last of them is gone, and no longer writes
                raise
        if process.returncode != 0:
            kept = self._scratch.parent / "failed.log"
            (self._scratch / _LOG).replace(kept)
            why = next(filter(_REASON.search, said), f"exit code {process.returncode}")
            msg = f"{failure}: {why}; all it said is in {kept}"
            raise LabError(msg)
        return list(said)
