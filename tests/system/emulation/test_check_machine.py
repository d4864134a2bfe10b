# SPDX-License-Identifier: Apache-2.0
"""`check --machine`: for each place a lab may live in whether this user can have one there, and what to do if not."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.sandbox import ATOLL, NOBODY, Sandbox, open_to_others
from tests.system.runs.test_hostile import OPEN_TUN

pytestmark = pytest.mark.lab


def asked(sandbox: Sandbox, *options: str, cache: str = "cache") -> subprocess.CompletedProcess[str]:
    """What it says where nobody has built a kernel for virtual time."""
    places = (f"XDG_CACHE_HOME={sandbox.directory}/{cache}", f"ATOLL_SHARED_KERNELS={sandbox.directory}/none")
    return sandbox.run("env", *places, ATOLL, "check", "--machine", *options, limit_s=100)


def works(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The places where a lab can be had, and how."""
    rows = (line.partition(" works ") for line in done.stdout.splitlines() if line.startswith("--on "))
    return {place.split()[1]: how for place, _, how in rows}


def test_root_may_have_a_lab_in_real_time_and_is_told_what_virtual_time_takes(tmp_path: Path) -> None:
    """That there is no kernel for virtual time is no failure: it is one of the ways."""
    with Sandbox(tmp_path) as sandbox:
        done = asked(sandbox)
    assert done.returncode == 0
    assert works(done)["mininet"] == "as root"
    assert "hardware" in works(done)
    assert "lo (" in next(line for line in done.stdout.splitlines() if line.startswith("interfaces "))
    (line,) = done.stderr.splitlines()
    assert line.startswith("--on virtual not available: no kernel for virtual time in ")
    assert "atoll kernel build" in line


def test_without_what_runs_on_machines_no_way_works_and_that_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in words nor in JSON is one said to work."""
    monkeypatch.setenv("ATOLL_HOST", "/none")
    with Sandbox(tmp_path) as sandbox:
        done = asked(sandbox)
        answer = json.loads(asked(sandbox, "--json").stdout)
    lack = "ATOLL_HOST=/none is not an executable file; correct or unset it"
    assert (done.returncode, works(done)) == (1, {})
    (line,) = [line for line in done.stderr.splitlines() if lack in line]
    assert line == f"--on mininet, --on virtual and --on hardware not available: {lack}"
    assert (answer["ok"], answer["lacks"]) == (False, [lack])
    assert not any(way["works"] for way in answer["ways"].values())


def test_a_plain_user_is_told_of_every_way(tmp_path: Path) -> None:
    open_to_others(tmp_path)
    with Sandbox(tmp_path, user=NOBODY, setup=OPEN_TUN.format(tmp_path / "dev")) as sandbox:
        done = asked(sandbox)
    assert done.returncode == 0
    assert works(done)["mininet"].startswith("as a plain user")


def test_a_cache_of_somebody_else_is_one_line(tmp_path: Path) -> None:
    """As after `sudo -u` with the environment kept."""
    open_to_others(tmp_path)
    (tmp_path / "private").mkdir(mode=0o700)
    with Sandbox(tmp_path, user=NOBODY, setup=OPEN_TUN.format(tmp_path / "dev")) as sandbox:
        done = asked(sandbox, cache="private")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("--on virtual not available: kernels for virtual time are kept in ")
    assert line.endswith(": Permission denied; name another cache in XDG_CACHE_HOME")


def test_a_plain_user_who_may_not_open_tun_cannot_have_real_time_alone(tmp_path: Path) -> None:
    """Virtual time needs no tun device, so it is not said to lack one."""
    open_to_others(tmp_path)
    setup = OPEN_TUN.format(tmp_path / "dev") + f" && chmod 600 {tmp_path}/dev/tun"
    with Sandbox(tmp_path, user=NOBODY, setup=setup) as sandbox:
        done = asked(sandbox)
        answer = json.loads(asked(sandbox, "--json").stdout)
    assert done.returncode == 1
    assert "mininet" not in works(done)
    tun = "/dev/net/tun may not be opened by this user: chmod 666 /dev/net/tun (as root)"
    assert f"--on mininet not available: {tun}" in done.stderr.splitlines()
    assert (answer["ok"], answer["lacks"], answer["ways"]["mininet"]["works"]) == (False, [tun], False)
    assert tun not in answer["ways"]["virtual"]["lacks"]


def test_without_user_namespaces_a_plain_user_has_neither_and_is_told_so_once(tmp_path: Path) -> None:
    """The kernel refuses user namespaces to a chrooted process."""
    open_to_others(tmp_path)
    jail = tmp_path / "jail"
    jail.mkdir()
    setup = f"{OPEN_TUN.format(tmp_path / 'dev')} && mount --rbind / {jail}"
    with Sandbox(tmp_path, user=NOBODY, jail=jail, setup=setup) as sandbox:
        done = asked(sandbox)
    assert done.returncode == 1
    assert list(works(done)) == ["hardware"]
    answer = [line for line in done.stderr.splitlines() if "user namespaces are not allowed here" in line]
    assert len(answer) == 1
    assert answer[0].startswith("--on mininet and --on virtual not available: not root, and ")
    assert "run as root, or allow user namespaces" in answer[0]
