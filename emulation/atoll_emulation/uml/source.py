# SPDX-License-Identifier: Apache-2.0
"""Kernel sources: Debian's packages, installed or downloaded, and the tools a build takes."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from atoll_core.errors import MachineError, UsageError
from atoll_emulation.this_machine.packages import DEBIAN, family, install_text, missing_needs, packages_of
from atoll_emulation.uml.recipe import Recipe, architecture_problem, chosen_series, numbers, series_of

CommandRunner = Callable[[Sequence[str], str, Path], object]
"""Runs a program in a directory; raises LabError that begins with the second argument if it fails."""

_PATTERNS = ("linux-source-*.tar.*", "linux-source-*/linux-source-*.tar.*")  # Debian's, Ubuntu's
_RELEASE = re.compile(r"linux-(?:source-)?(\d+(?:\.\d+)+)")

_MIRROR_URL = "http://deb.debian.org/debian"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")  # of the package debian-archive-keyring


def find_source(file: Path | None, recipe: Recipe, folder: Path = Path("/usr/src")) -> Path | None:
    """The archive to build from: the one given, else an installed package's; None: it is to be downloaded.

    A recipe whose source cannot be downloaded takes the newest package of another series where its own is missing,
    unless ATOLL_KERNEL chooses its series.
    Raises UsageError for a file that is no archive; MachineError, once for all that is missing here, with the packages
    to install.
    """
    if file and not file.is_file():
        wrong = "is no archive of kernel sources" if file.exists() else "no such file"
        raise UsageError(f"--source {file}: {wrong}; name an archive of kernel sources, such as linux-6.1.192.tar.xz")
    if problem := architecture_problem():
        raise MachineError(problem)
    archives = [file] if file else _installed_archives(recipe, folder)
    is_downloaded = not archives and recipe.suite is not None
    missing, lines = packages_of(missing_needs("build", *(["source"] if is_downloaded else []))), list[str]()
    if not archives and not is_downloaded:
        if family() == DEBIAN:
            missing = sorted([*missing, recipe.package])
        else:
            archive = f"linux-{recipe.series}.tar.xz"
            lines.append(f"there is no {archive} here; download it, and name it: atoll kernel build --source {archive}")
    if missing:
        lines.append(f"building a kernel needs packages that are not installed: {install_text(missing)}")
    if lines:
        raise MachineError("\n".join(lines))
    return archives[-1] if archives else None


def source_series(archive: Path) -> str:
    """The series of an installed package's archive, by its name."""
    return series_of(_release(archive))


def download(recipe: Recipe, directory: Path, run: CommandRunner) -> Path:
    """Download Debian's package of the recipe's source into ``directory``, as any user; the archive in it.

    apt gets lists, caches and sources of its own, so that the system's stay as they are, runs none of the system's
    hooks, and verifies the signature of the package's suite by Debian's keyring. Raises LabError.
    """
    for name in ("lists/partial", "archives/partial"):
        (directory / name).mkdir(parents=True)
    sources = directory / "sources.list"
    sources.write_text(f"deb [signed-by={_KEYRING}] {_MIRROR_URL} {recipe.suite} main\n")
    configuration = directory / "apt.conf"
    configuration.write_text("#clear APT::Update;\n")  # Pre-Invoke, Post-Invoke, Post-Invoke-Success
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": directory / "lists",
        "Dir::Cache::archives": directory / "archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Acquire::AllowInsecureRepositories": "false",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Acquire::Retries": "1",
        "Acquire::http::Timeout": "10",
        "APT::Architecture": "amd64",
        "APT::Get::AllowUnauthenticated": "false",
        "APT::Update::Error-Mode": "any",
        "APT::Sandbox::User": "root",  # the user that runs it: the directory may be closed to _apt
    }
    options = (word for name, value in settings.items() for word in ("-o", f"{name}={value}"))
    apt = ["apt-get", "--quiet=2", "-c", str(configuration), *options]  # in this order: the first clears
    run([*apt, "update"], f"Debian's {recipe.suite} cannot be reached", directory)
    run([*apt, "download", recipe.package], f"Debian's {recipe.suite} has no {recipe.package}", directory)
    (package,) = directory.glob("*.deb")
    run(["dpkg-deb", "--extract", str(package), "."], f"{package.name} cannot be unpacked", directory)
    (archive,) = directory.glob("usr/src/linux-source-*.tar.*")
    package.unlink()
    # The package's name tells the exact version.
    return archive.rename(directory / f"{package.stem}{''.join(archive.suffixes[-2:])}")


def _installed_archives(recipe: Recipe, folder: Path) -> list[Path]:
    """Archives of kernel sources, the best last: of the recipe's series, else the newest."""
    archives = sorted(
        (path for pattern in _PATTERNS for path in folder.glob(pattern)), key=lambda path: numbers(_release(path))
    )
    of_series = [path for path in archives if source_series(path) == recipe.series]
    return of_series or (archives if recipe.suite is None and not chosen_series() else [])


def _release(archive: Path) -> str:
    number = _RELEASE.search(archive.name)
    return number[1] if number else "0"
