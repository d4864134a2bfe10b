# SPDX-License-Identifier: Apache-2.0
"""The packages that set-up asks apt for: all that the tests need, whatever apt prints and whichever is missing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.support.sandbox import Sandbox

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="what set-up does as root takes root"),
]

WITHOUT = ("argus", "curl", "nfpcapd", "nginx", "ra", "sshd", "sudo", "tshark", "wrk")
PACKAGES = [
    *("argus-client", "argus-server", "curl", "nfdump", "nginx-light", "openssh-server", "sudo", "tshark", "wrk"),
]

TABLE = "emulation/atoll_emulation/this_machine/packages.txt"

# apt prints more than a pipe holds; `absent` is known to no list, `broken` cannot be installed.
POLICY = """#!/bin/sh
case $2 in absent) candidate='(none)' ;; *) candidate=1.0 ;; esac
echo "$2:"; echo "  Candidate: $candidate"; seq -f '     %.0f version table' 100000
"""
APT_GET = """#!/bin/sh
case "$*" in
*" update") : >>"$APT/updated" ;;
*" install "*broken*) echo "E: broken packages" >&2; exit 100 ;;
*" install "*) while [ "$1" != --no-remove ]; do shift; done; shift; printf '%s\\n' "$@" >>"$APT/installed" ;;
esac
"""


def fakes(directory: Path, **programs: str) -> Path:
    """A directory of programs that go before the machine's."""
    directory.mkdir()
    for name, text in programs.items():
        (directory / name.replace("_", "-")).write_text(text)
        (directory / name.replace("_", "-")).chmod(0o755)
    return directory


def test_every_package_that_tests_need_is_asked_for(tmp_path: Path) -> None:
    """Also where apt-cache writes on after its reader has what it wants."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    shutil.copytree(PROJECT / "tools", checkout / "tools")
    for name in ("Makefile", "Cargo.toml", TABLE):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, checkout / name)
    (checkout / "tools/packages").write_text('#!/bin/sh\nprintf "%s\\n" "$@" >>asked\n')
    setup = (checkout / "tools/setup").read_text()
    for program in WITHOUT:
        assert f"program {program} " in setup
        setup = setup.replace(f"program {program} ", f"program absent-{program} ")
    (checkout / "tools/setup").write_text(setup)
    path = fakes(tmp_path / "fakes", apt_cache=POLICY, apt_get=APT_GET)
    environment = os.environ | {"PATH": f"{path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [checkout / "tools/setup", "test"], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    asked = (checkout / "asked").read_text().split() if (checkout / "asked").exists() else []
    assert set(PACKAGES) <= set(asked), done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert all(name in warning for name in PACKAGES)


def test_a_package_that_cannot_be_installed_hides_no_other(tmp_path: Path) -> None:
    """Those that can be are; the others are named, with what apt said; the lists are fetched first."""
    fake = {"apt_cache": POLICY, "apt_get": APT_GET, "dpkg": "#!/bin/sh\nseq 100000\n"}
    environment = os.environ | {
        "PATH": f"{fakes(tmp_path / 'fakes', **fake)}:{os.environ['PATH']}",
        "APT": str(tmp_path),
    }
    # The real machine's services and policy stay as they are.
    with Sandbox(tmp_path, setup="mount -t tmpfs none /usr/sbin && mount -t tmpfs none /run") as sandbox:
        done = sandbox.run(PROJECT / "tools/packages", "--each", "nfdump", "absent", "broken", "kmod", env=environment)
    assert (tmp_path / "installed").read_text().split() == ["nfdump", "kmod"]
    assert (tmp_path / "updated").exists()
    assert done.returncode == 1
    assert "E: broken packages" in done.stderr
    assert done.stderr.splitlines()[-1] == "setup: could not be installed: absent broken"
