# SPDX-License-Identifier: Apache-2.0
"""The first set-up on a machine without a network says in one line what it could not fetch and what to do."""

import os
import shutil
from pathlib import Path

import pytest

from tests.lab.sandbox import Sandbox

pytestmark = pytest.mark.lab

_READ = ("tools", "Makefile", "requirements.lock", "pyproject.toml", "Cargo.toml")
_SOURCES = ("PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_PROXIES = tuple(f"{protocol}_proxy" for protocol in ("http", "https", "all"))


def test_what_cannot_be_fetched_is_one_line_with_the_remedy(project: Path, tmp_path: Path) -> None:
    """In a fresh checkout and with nothing in any cache; neither pip's retries nor its conclusions are shown."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in _READ:
        copy = shutil.copytree if (project / name).is_dir() else shutil.copy2
        copy(project / name, checkout / name)
    dropped = {*_SOURCES, *_PROXIES, *map(str.upper, _PROXIES)}
    environment = {name: text for name, text in os.environ.items() if name not in dropped}
    environment["PIP_CACHE_DIR"] = environment["UV_CACHE_DIR"] = str(tmp_path / "cache")
    with Sandbox(checkout) as sandbox:
        done = sandbox.run("tools/setup", env=environment)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(("setup: python: uv cannot be fetched (", "setup: packages: "))
    assert line.endswith("takes a network, a proxy or a mirror; run it again with one, and it goes on here")
