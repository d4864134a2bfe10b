# SPDX-License-Identifier: Apache-2.0
"""What the first set-up says of what it could not fetch: without a network one line with the remedy, else all of it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.sandbox import Sandbox

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


@pytest.mark.parametrize(
    ("said", "shown", "code"),
    [
        ("echo boom >&2; exit 3", "boom\n", 3),
        ("echo done >&2", "done\n", 0),
        ("yes Connection refused | head -n 99999 >&2; exit 3", None, 1),
    ],
)
def test_what_fails_for_another_reason_is_shown_as_it_is(
    project: Path, tmp_path: Path, said: str, shown: str | None, code: int
) -> None:
    """Nothing of it is swallowed, and no file with it is left; many lines about a network are one all the same."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", '. "$1"; fetching wheels sh -c "$2"', "-", project / "tools/lib.sh", said],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    remedy = "the first set-up takes a network, a proxy or a mirror; run it again with one, and it goes on here"
    shown = shown or f"setup: wheels cannot be fetched (Connection refused): {remedy}\n"
    assert (done.returncode, done.stderr) == (code, shown)
    assert list(tmp_path.iterdir()) == []
