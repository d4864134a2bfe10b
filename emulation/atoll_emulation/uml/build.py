# SPDX-License-Identifier: Apache-2.0
"""Build a kernel for virtual time from a distribution's source package.

Everything happens in one directory in the cache, which becomes the kernel's own at the very end; after an
interruption, the next build removes that directory. All programs run in namespaces that end with this process.
"""

import json
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from atoll_core.errors import LabError, MachineError, UsageError
from atoll_core.mounts import noexec_problem
from atoll_emulation.mininet_lab.namespaces import namespaces_error, unshare_argv
from atoll_emulation.uml.cache import (
    BUILD_DIRECTORY,
    EXECUTABLE,
    SHARED_VARIABLE,
    SHIM,
    build_cache,
    cache_lock,
    distrust_reason,
    is_built,
    sha256,
    shared_cache,
)
from atoll_emulation.uml.recipe import (
    SHIM_SOURCE,
    VARIABLE,
    Recipe,
    chosen_series,
    missing_options,
    preferred_recipes,
    recipe_for,
    series_of,
)
from atoll_emulation.uml.source import download, find_source, source_series

OnBuildProgress = Callable[[str, int, int], None]
"""Takes the step under way, how many of its parts are done, and of how many (0: unknown)."""

_SPACE_MB = 2000  # download, sources and objects together take 1.5 GB
_LOG_NAME = "build.log"

# Parts that no configuration of ours compiles are not unpacked, except those that make and Kconfig read everywhere.
_NOT_UNPACKED = (
    *(f"drivers/{name}/*.[ch]" for name in ("gpu", "media", "staging", "infiniband", "scsi", "usb")),
    *(f"drivers/net/{name}/*.[ch]" for name in ("ethernet", "wireless")),
    *("sound/*.[ch]", "arch/[!ux]*/*.[chS]", "tools/testing/*", "Documentation/*.rst", "*.dts", "*.dtsi"),
)

# In the lines of a program that failed: compilers, patch, Kconfig, tar.
_ERROR_LINE = re.compile(r"error: |^E: |FAILED|can't |[Cc]annot |No space left|does not look like|\*\*\* ")

# Two builds of one source are the same program, and `uname -v` is the same in each.
_ENVIRONMENT = {
    "LC_ALL": "C",
    "KBUILD_BUILD_USER": "atoll",
    "KBUILD_BUILD_HOST": "atoll",
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01",
}


def build_preferred(progress: OnBuildProgress, report: Callable[[str], None], *, force: bool = False) -> Path | None:
    """Build the best of the wanted series whose source is to be had; None if it is there, unless by ``force``.

    ``report`` takes a line with the source and the reason for it. Raises as :func:`build_kernel` for the last of them.
    """
    recipes = preferred_recipes()
    reason = f"chosen by {VARIABLE}" if chosen_series() else "the preferred release that is to be had"
    for recipe in recipes:
        if is_built(recipe.series) and not force:
            return None
        try:
            source = find_source(None, recipe)
            series = source_series(source) if source else recipe.series
            if is_built(series) and not force:
                return None
            origin = source or f"{recipe.package} of Debian's {recipe.suite}"
            report(f"Linux {series} ({reason}), from {origin}")
            return build_kernel(source or recipe, progress)
        except (LabError, MachineError) as error:
            if recipe == recipes[-1]:
                raise
            report(f"Linux {recipe.series} is not built: {error}")
    return None


def build_kernel(source: Path | Recipe, progress: OnBuildProgress) -> Path:
    """Build from an archive, or from the downloaded source of a recipe; the directory of the finished kernel.

    One that is there already is replaced. Raises MachineError for want of space or rights, and LabError when the
    source cannot be downloaded or does not take our patches or options, or a compiler fails; UsageError when the
    source is not of the series chosen by ATOLL_KERNEL.
    """
    cache = build_cache()
    try:
        _make_cache(cache)
        with cache_lock(cache), _scratch_directory(cache) as scratch:
            return _build_in(scratch, source, progress)
    except OSError as error:
        msg = f"{error.filename or cache}: {error.strerror}; kernels are built and kept in {cache} (XDG_CACHE_HOME)"
        raise MachineError(msg) from error


def _make_cache(cache: Path) -> None:
    """Make the directory, which everybody may read where it is the shared one; what exists already stays as it is.

    Raises MachineError where atoll would not use kernels.
    """
    missing = [directory for directory in (cache, *cache.parents) if not directory.exists()]
    cache.mkdir(parents=True, exist_ok=True)
    if cache == shared_cache():
        for directory in missing:
            directory.chmod(0o755)
    if problem := noexec_problem(cache / EXECUTABLE):
        raise MachineError(f"{problem}; or name another place in {_cache_variable(cache)}")
    if reason := distrust_reason(cache):
        raise MachineError(
            f"kernels in {cache} are not used: {reason}; correct this, or name another place in "
            f"{_cache_variable(cache)}"
        )


def _cache_variable(cache: Path) -> str:
    return SHARED_VARIABLE if cache == shared_cache() else "XDG_CACHE_HOME"


@contextmanager
def _scratch_directory(cache: Path) -> Generator[Path]:
    """An empty directory to build in, gone afterwards."""
    scratch = cache / BUILD_DIRECTORY
    shutil.rmtree(scratch, ignore_errors=True)
    free_mb = shutil.disk_usage(cache).free // 10**6
    if free_mb < _SPACE_MB:
        raise MachineError(
            f"building a kernel takes {_SPACE_MB} MB in {cache}, where {free_mb} MB are free (XDG_CACHE_HOME names "
            "another place)"
        )
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _build_in(scratch: Path, origin: Path | Recipe, progress: OnBuildProgress) -> Path:
    source, objects, result = (scratch / name for name in ("source", "objects", "result"))
    for directory in (source, objects, result):
        directory.mkdir()
    with (scratch / _LOG_NAME).open("w") as log:
        tools = _Tools(scratch, log.write)
        archive = _archive(origin, scratch / "download", tools, progress)
        progress("unpacking the source", 0, 0)
        excluded = [f"--exclude=linux-*/{pattern}" for pattern in _NOT_UNPACKED]
        unpack = ["tar", "--no-same-owner", "--wildcards", *excluded, "--strip-components=1"]
        tools.run([*unpack, "-C", str(source), "-xf", str(archive)], f"{archive} cannot be unpacked")
        release = _makefile_release(source / "Makefile")
        recipe, series, chosen = recipe_for(release), series_of(release), chosen_series()
        if chosen and series != chosen:
            raise UsageError(f"{archive} is Linux {series}, but {VARIABLE}={chosen}; to build it: {VARIABLE}={series}")
        for patch in recipe.patches:
            argv = ["patch", "--batch", "--forward", "--strip=1", f"--directory={source}", f"--input={patch}"]
            tools.run(argv, f"the patch {patch.name} does not apply to {archive.name}; use Linux {recipe.series}")
        progress("configuring", 0, 0)
        wanted_config = scratch / "wanted.config"
        wanted_config.write_text(recipe.configuration)
        make = ["make", f"--directory={source}", f"O={objects}", "ARCH=um"]
        tools.run([*make, f"KCONFIG_ALLCONFIG={wanted_config}", "allnoconfig"], "the kernel cannot be configured")
        configuration = (objects / ".config").read_text()
        if missing := missing_options(recipe.configuration, configuration):
            options = ", ".join(missing)
            raise LabError(
                f"{archive.name} does not have the options for virtual time: {options}; use Linux {recipe.series}"
            )
        _compile(tools, make, recipe, progress)
        shim = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(result / SHIM), str(SHIM_SOURCE)]
        tools.run(shim, "the randomness shim does not compile")
        compiler = tools.run(["gcc", "--version"], "gcc does not work")[0]
    shutil.copy2(objects / "linux", result / EXECUTABLE)
    (result / "config").write_text(configuration)
    release = (objects / "include" / "config" / "kernel.release").read_text().strip()
    metadata = {
        "release": release,
        "mode": recipe.mode,
        "recipe": recipe.hash,
        "source": archive.name,
        "compiler": compiler,
        "built": datetime.now(UTC).isoformat(timespec="seconds"),
        **{f"sha256 {name}": sha256(result / name) for name in (EXECUTABLE, SHIM)},
    }
    (result / "kernel.json").write_text(json.dumps(metadata, indent=1) + "\n")
    return _move_to_cache(result, scratch.parent / f"{release.partition('-')[0]}-{recipe.hash}")


def _archive(origin: Path | Recipe, directory: Path, tools: "_Tools", progress: OnBuildProgress) -> Path:
    if isinstance(origin, Path):
        return origin
    progress(f"downloading {origin.package}", 0, 0)
    directory.mkdir()
    return download(origin, directory, tools.run_with_network)


def _makefile_release(makefile: Path) -> str:
    """The release of a source, by the first lines of its Makefile: 6.1.192."""
    numbers = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", makefile.read_text(), re.MULTILINE))
    return ".".join(numbers.get(name, "0") for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL"))


def _compile(tools: "_Tools", make: Sequence[str], recipe: Recipe, progress: OnBuildProgress) -> None:
    done = 0

    def count(line: str) -> None:
        nonlocal done
        if re.match(r"  [A-Z]", line):  # make's word for what it does to which file
            done = min(done + 1, recipe.objects)
            progress("compiling", done, recipe.objects)

    jobs = len(os.sched_getaffinity(0))
    tools.run([*make, f"--jobs={jobs}", "linux"], "the kernel does not compile", count)


def _move_to_cache(result: Path, directory: Path) -> Path:
    """Move the finished kernel to its place and replace an earlier one. A running kernel keeps its files."""
    if directory.parent == shared_cache():
        for path in (result, *result.iterdir()):
            path.chmod(0o755 if path.is_dir() or path.name == EXECUTABLE else 0o644)
    for path in (*result.iterdir(), result):
        _sync(path)
    if directory.exists():
        directory.rename(result.parent / "replaced")
    result.rename(directory)
    _sync(directory.parent)
    return directory


def _sync(path: Path) -> None:
    """Wait until a file or directory is on the disk: a crash leaves no kernel with half of its files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Tools:
    """Runs the programs of a build; their output goes to its log."""

    def __init__(self, scratch: Path, log: Callable[[str], object]) -> None:
        self._scratch = scratch
        self._log = log
        self._prefix = ["setpriv", "--pdeathsig", "KILL"] if namespaces_error() else unshare_argv()

    def run(self, argv: Sequence[str], failure: str, on_line: Callable[[str], None] | None = None) -> list[str]:
        """Run a program without a network; its last lines. Raises LabError, beginning with ``failure``, if it fails."""
        return self._run([*self._prefix, *argv], failure, on_line)

    def run_with_network(self, argv: Sequence[str], failure: str, directory: Path) -> list[str]:
        """Run a program in a directory, with the machine's network and proxies; likewise."""
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        return self._run(["setpriv", "--pdeathsig", "KILL", *argv], failure, directory=directory, variables=proxies)

    def _run(
        self,
        argv: Sequence[str],
        failure: str,
        on_line: Callable[[str], None] | None = None,
        *,
        directory: Path | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> list[str]:
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT, **variables}
        process = subprocess.Popen(
            argv,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
        )
        lines: deque[str] = deque(maxlen=200)
        with process:
            output = process.stdout or ()
            try:
                for line in output:
                    self._log(line)
                    lines.append(line.rstrip())
                    if on_line:
                        on_line(line)
            except BaseException:
                process.kill()
                deque(output, 0)  # ends when the last of them is gone, and no longer writes
                raise
        if process.returncode != 0:
            failed_log = self._scratch.parent / "failed.log"
            (self._scratch / _LOG_NAME).replace(failed_log)
            reason = next(filter(_ERROR_LINE.search, lines), f"exit code {process.returncode}")
            raise LabError(f"{failure}: {reason}; its output is in {failed_log}")
        return list(lines)
