# SPDX-License-Identifier: Apache-2.0
"""What the first set-up says: how far it is, and of what it could not fetch one line with the remedy."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.sandbox import Sandbox

pytestmark = pytest.mark.lab

_READ = (
    *("tools", "Makefile", "requirements.lock", "pyproject.toml", "Cargo.toml"),
    "emulation/atoll_emulation/this_machine/packages.txt",
)
_SOURCES = ("PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_PROXIES = tuple(f"{protocol}_proxy" for protocol in ("http", "https", "all"))


def test_what_cannot_be_fetched_is_one_line_with_the_remedy(project: Path, tmp_path: Path) -> None:
    """In a fresh checkout and with nothing in any cache; neither pip's retries nor its conclusions are shown."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in _READ:
        copy = shutil.copytree if (project / name).is_dir() else shutil.copy2
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
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


CARGO = """#!/bin/sh
case $1 in
-vV) echo "host: here" ;;
build)
    mkdir -p target/release
    printf '   Compiling %s v1.0.0\\n' a b c >&2
    echo "warning: odd" >&2
    sleep 3
    exit "$CODE"
    ;;
esac
"""


@pytest.mark.parametrize(("every_s", "code"), [("0.2", 0), ("0.2", 3), ("60", 0)])
def test_what_takes_longer_says_how_far_it_is(project: Path, tmp_path: Path, every_s: str, code: int) -> None:
    """Until it has ended or failed; nothing of what is quick."""
    shutil.copytree(project / "tools", tmp_path / "tools")
    (tmp_path / "tools/cargo").write_text(CARGO)
    script = 'source <(sed "\\$d" "$0"); progress_every=$1; step rust'
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script, tmp_path / "tools/setup", every_s],
        env={**os.environ, "CODE": str(code)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (code, "warning: odd\n")
    first, second, *progress = done.stdout.splitlines()
    assert (first, second) == (
        "setup: rust: building target/release/atoll-host",
        "setup: rust: the crates of Cargo.lock",
    )
    if not code:
        assert re.fullmatch(r"setup: rust: done in \d+ s", progress.pop())
    assert all(re.fullmatch(r"setup: rust: \d crates compiled, \d+ s", line) for line in progress)
    assert bool(progress) == (every_s == "0.2")
    assert not progress or " 3 crates compiled, " in progress[-1]
