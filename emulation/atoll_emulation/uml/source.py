# SPDX-License-Identifier: Apache-2.0
"""The kernel's source package on this machine, and the tools a build takes."""

import platform
import re
from pathlib import Path

from atoll.model.errors import MachineError, UsageError
from atoll_emulation.uml.kernel import missing_packages

TRIED = "6.1"
"""The release this was tried with: Debian 12's. Others of the 6 series work where our patches apply."""

_PLACES = ("linux-source-*.tar.*", "linux-source-*/linux-source-*.tar.*")  # Debian's, Ubuntu's
_RELEASE = re.compile(r"linux-(?:source-)?(\d+(?:\.\d+)+)")

# Program, Debian package.
_TOOLS = {name: name for name in ("gcc", "make", "flex", "bison", "bc", "patch", "tar")} | {"xz": "xz-utils"}
_HEADER = Path("/usr/include/stdio.h")


def find_source(given: Path | None = None, place: Path = Path("/usr/src")) -> Path:
    """The archive to build from: the one given, that of the tried release, else the newest.

    Raises UsageError for one that is none; MachineError, once for all that a build lacks here, with the packages to
    install.
    """
    if given and not given.is_file():
        wrong = "is no archive of kernel sources" if given.exists() else "no such file"
        msg = f"--source {given}: {wrong}; name an archive of kernel sources, such as linux-6.1.192.tar.xz"
        raise UsageError(msg)
    if platform.machine() != "x86_64":
        msg = f"User-Mode Linux exists for x86 alone, and this machine is {platform.machine()}"
        raise MachineError(msg)
    missing = missing_packages(_TOOLS)
    if not _HEADER.exists():
        missing.add("libc6-dev")
    archives = [given] if given else sorted((path for pattern in _PLACES for path in place.glob(pattern)), key=_order)
    if not archives:
        missing.add(f"linux-source-{TRIED}")
    if missing:
        msg = f"building a kernel takes packages that are not here: apt install {' '.join(sorted(missing))}"
        raise MachineError(msg)
    return archives[-1]


def _order(archive: Path) -> tuple[bool, list[int]]:
    """The tried release last, before it the newest."""
    found = _RELEASE.search(archive.name)
    release = found[1] if found else "0"
    return f"{release}.".startswith(f"{TRIED}."), [int(number) for number in release.split(".")]
