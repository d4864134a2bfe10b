# SPDX-License-Identifier: Apache-2.0
"""`make demo-virtual`, and `make demo` where the kernel is built, as a plain user: no root, no tun device, no network.

The sandbox is a machine that has the packages: a clone that the user owns, at the place of this checkout, so that the
environment and the binary made here count as the user's; the kernel's cache and these two are there to be read.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_emulation.uml.cache import kernel_status
from tests.support.sandbox import NOBODY, ROOT, Sandbox, open_to_others
from tests.support.virtual_runs import HANGS_S

pytestmark = pytest.mark.virtual


def plain_users_machine(directory: Path) -> str:
    """The shell command that makes the sandbox such a machine; ``directory`` is the user's home there."""
    clone, cache = directory / "clone", directory / ".cache" / "atoll" / "kernel"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
    bring_up_to_date(clone)
    cache.mkdir(parents=True)
    made = {
        ROOT / ".venv": clone / ".venv",
        ROOT / "target/release": clone / "target/release",
        kernel_status().directory.parent: cache,
    }
    for place in made.values():
        place.mkdir(parents=True, exist_ok=True)
    owner = f"{NOBODY[0]}:{NOBODY[1]}"
    return " && ".join(
        (
            f"chown -R {owner} {clone} {directory}/.cache",
            f"find {clone} -exec touch -h -d 2000-01-01 {{}} +",  # older than what was built of the same sources
            *(f"mount --bind {source} {place} && mount -o remount,bind,ro {place}" for source, place in made.items()),
            f"mount --rbind {clone} {ROOT}",
            "mount -t tmpfs none /dev/net",
        )
    )


def bring_up_to_date(clone: Path) -> None:
    """What is not committed yet is to be tried, too."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, clone / name, follow_symlinks=False)
        else:
            (clone / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (["demo-virtual", "DURATION=5 s"], []),
        (["demo"], ["demo: in virtual time, as the kernel for it is built here; in real time: make demo ON=mininet"]),
    ],
    ids=["demo-virtual", "demo"],
)
def test_the_demo_in_virtual_time_needs_no_rights(tmp_path: Path, target: list[str], says: list[str]) -> None:
    """One command, and there is a run without a reason against it; the user owns it, and nothing else is left."""
    open_to_others(tmp_path)
    changed = ("git", "-C", ROOT, "status", "--short")
    with Sandbox(tmp_path, user=NOBODY, setup=plain_users_machine(tmp_path)) as sandbox:
        before = sandbox.run(*changed)
        assert before.returncode == 0, before.stderr
        done = sandbox.run("make", "-C", ROOT, *target, limit_s=HANGS_S)
        sandbox.wait_clean()
        assert done.returncode == 0, done.stdout + done.stderr
        assert sandbox.run(*changed).stdout == before.stdout, "runs/ is ignored, and the rest is as it was"
    assert [line for line in done.stdout.splitlines() if line.startswith("demo: ")] == says
    report = next(line for line in done.stdout.splitlines() if line.startswith("report: "))
    run = tmp_path / "clone" / Path(report.removeprefix("report: ")).parent.relative_to(ROOT)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["verdict"] in {"valid", "valid with caveats"}
    assert summary["reasons"] == []
    assert set(summary["caveat_codes"]) <= {"TRANSFER_UNFINISHED", "TRANSFER_NO_BYTE"}, "which begins after 10 s"
    assert RunDir.open(run).manifest()["host"]["root"] is False
    assert {path.stat().st_uid for path in run.rglob("*")} == {NOBODY[0]}
