# SPDX-License-Identifier: Apache-2.0
"""benchmarks/hosts measures what it says: the quick form, end to end. Behaviour, no timing."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.lab

# atoll agrees on an instant; this only tells a common start from one after the other on a machine with other work.
WITHIN_MS = 500.0


def run(project: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [project / "benchmarks/hosts/run", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})


@pytest.fixture(autouse=True)
def able() -> None:
    if os.geteuid() != 0:
        pytest.skip("machines with an sshd each take root")
    if shutil.which("sshd", path="/usr/sbin:/usr/bin") is None:
        reason = "there is no sshd on this machine; run: tools/setup test"
        assert not os.environ.get("ATOLL_REQUIRE_LAB"), reason
        pytest.skip(reason)


def test_every_way_starts_the_program_on_every_machine_and_leaves_nothing(project: Path, tmp_path: Path) -> None:
    """atoll's two rows, and its shell beside them; each program says when it started. No link or mount is left."""
    results = tmp_path / "results.json"
    links, mounts = links_here(), Path("/proc/self/mounts").read_text()
    only = ("--only", "atoll", "--only", "atoll hosts exec")
    done = run(project, "--quick", "--hosts", "3", *only, "--json", results)
    assert done.returncode == 0, done.stderr
    known = {each["way"]: each for each in json.loads(results.read_text())["results"]}
    assert list(known) == ["atoll, from nothing", "atoll, connections up", "atoll hosts exec"], done.stderr
    for each in known.values():
        (start,) = each["rounds"]
        assert start["started"] == each["hosts"] == 3
        assert start["last_s"] > 0
    assert all(known[way]["rounds"][0]["spread_ms"] < WITHIN_MS for way in list(known)[:2]), known
    assert (links_here(), Path("/proc/self/mounts").read_text()) == (links, mounts)


def test_a_way_that_is_not_installed_is_left_out_with_a_word(project: Path, tmp_path: Path) -> None:
    """The file of figures gets the others all the same."""
    results = tmp_path / "results.json"
    known = [{"way": "pssh", "left_out": "apt install pssh"}]
    results.write_text(json.dumps({"machine": MACHINE, "results": known}))
    done = run(project, "--json", results, "--render", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "pssh: left out; apt install pssh" in (tmp_path / "hosts.md").read_text()


def links_here() -> str:
    return subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout


MACHINE = dict.fromkeys(("cpu", "cores", "machine", "kernel", "date", "revision", "load_average"), "x")
