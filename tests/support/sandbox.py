# SPDX-License-Identifier: Apache-2.0
"""A machine within the machine: PID, network and mount namespaces in which a test may do anything.

What a run leaves behind is then simply what is still there, and tests cannot meet each other's labs.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from atoll_analysis.verdict.findings import FindingCode
from tests.skips import closed_checkout

ROOT = Path(__file__).resolve().parents[2]
ATOLL = ROOT / ".venv" / "bin" / "atoll"
PYTHON = ROOT / ".venv" / "bin" / "python"

QUICK = ROOT / "tests" / "data" / "quick.yaml"
"""A run that is over soon: the experiment of most tests."""

GEO = ROOT / "examples" / "geo.yaml"
"""The demo."""

NOBODY = (65534, 65534)
"""User and group that own nothing."""


class Sandbox:
    """Namespaces of a test's own; use it as a context manager.

    ``setup``: shell commands run first, inside. ``user``: (uid, gid) commands run as. ``jail``: commands are
    chrooted there.
    """

    def __init__(
        self, directory: Path, *, user: tuple[int, int] | None = None, jail: Path | None = None, setup: str = ":"
    ) -> None:
        if user is not None and closed_checkout():
            pytest.skip(f"other users cannot read the checkout, {ROOT}")
        self.directory = directory
        self._user = user
        self._jail = jail
        self._setup = setup
        self._holder: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._mounts = ""

    def __enter__(self) -> Self:
        script = f"ip link set lo up && {self._setup} && echo ready && exec sleep infinity"
        options = ["--pid", "--net", "--mount", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        argv = ["unshare", *options, "--", "sh", "-c", script]
        # Its words are shown if it fails: util-linux 2.38 also complains when its child is killed, as ours is.
        self._holder = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        try:
            ready = self._holder.stdout.readline() == b"ready\n"
        except BaseException:  # Ctrl-C, which neither unshare nor a first process minds
            self._holder.kill()
            raise
        if not ready:
            msg = f"the sandbox did not start: {self._holder.stderr.read().decode().strip()}"
            raise RuntimeError(msg)
        self._init = int(Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text())
        self._mounts = self._read("proc/1/mounts")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._holder is not None
        os.kill(self._init, signal.SIGKILL)
        self._holder.communicate(timeout=100)

    def _read(self, path: str) -> str:
        return Path(f"/proc/{self._init}/root/{path}").read_text()

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        """The command line that runs ``argv`` in the sandbox, in the test's directory."""
        enter = ["nsenter", "-t", str(self._init), "-p", "-n", "-m", "--"]
        enter += ["chroot", str(self._jail)] if self._jail else []
        enter += ["env", "-C", str(self.directory), f"XDG_STATE_HOME={self.directory}/.local/state"]
        enter += ["SSL_CERT_FILE=/dev/null"]  # nothing is reached by TLS; each import of aiohttp reads all certificates
        if self._user is not None:
            uid, gid = self._user
            enter += [f"HOME={self.directory}", "setpriv", "--reuid", str(uid), "--regid", str(gid), "--clear-groups"]
        return [*enter, *(str(word) for word in argv)]

    def run(self, *argv: str | Path, limit_s: float = 250, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(argv), capture_output=True, text=True, timeout=limit_s, check=False, **options
        )

    def start(self, *argv: str | Path) -> subprocess.Popen[str]:
        """Start a command; its standard output and error are pipes."""
        return subprocess.Popen(self.command(argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def processes(self) -> dict[int, str]:
        """Command lines of the processes in the sandbox, by pid there; not its own holder, not the dead."""
        found: dict[int, str] = {}
        for entry in Path(f"/proc/{self._init}/root/proc").iterdir():
            if entry.name.isdigit() and entry.name != "1":
                try:
                    state = entry.joinpath("stat").read_text().rpartition(")")[2].split()[0]
                    words = entry.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if state not in "ZX" and any(words):  # an ending process has no command line any more
                    found[int(entry.name)] = " ".join(words).strip()
        return found

    def find(self, *words: str) -> int | None:
        """The pid (in the sandbox) of the first process whose command line has all these words.

        Not of the programs that only wait for it on the other side of a namespace's border.
        """
        for pid, line in sorted(self.processes().items()):
            if all(word in line for word in words) and not line.startswith(("nsenter", "unshare")):
                return pid
        return None

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Signal a process by its pid in the sandbox."""
        self.run("kill", f"-{number}", str(pid), limit_s=100)

    def traces(self) -> list[str]:
        """Everything that was not there at the start: processes, links, mounts; empty when nothing was left."""
        left = [f"process {pid}: {line}" for pid, line in self.processes().items()]
        links = self.run("ip", "-o", "link", limit_s=100).stdout.splitlines()
        left += [f"link {line}" for line in links if ": lo:" not in line]
        if self._read("proc/1/mounts") != self._mounts:
            left.append("mounts differ")
        return left

    def wait_clean(self, limit_s: float = 40) -> None:
        """Return when nothing is left; AssertionError naming what is after the limit."""
        deadline = time.monotonic() + limit_s
        while left := self.traces():
            assert time.monotonic() < deadline, "left behind:\n" + "\n".join(left)
            time.sleep(0.1)


def found_by(guest: str, directory: Path) -> Any:
    """Run a module of tests/guests in a sandbox of its own; returns the JSON that it prints."""
    with Sandbox(directory) as sandbox:
        done = sandbox.run("env", f"PYTHONPATH={ROOT}", ROOT / ".venv/bin/python", "-m", guest)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def wait_for_line(process: subprocess.Popen[str], text: str) -> list[str]:
    """Read a process's standard error up to a line that has ``text``; the lines read.

    AssertionError if it ends before.
    """
    assert process.stderr is not None
    seen: list[str] = []
    for line in process.stderr:
        seen.append(line.rstrip("\n"))
        if text in line:
            return seen
    raise AssertionError(f"ended without {text!r}:\n" + "\n".join(seen))


def tools_without(directory: Path, missing: Sequence[str]) -> Path:
    """A directory of links to every installed tool but some: a PATH of a machine that lacks them."""
    directory.mkdir()
    for place in ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"):
        for tool in Path(place).glob("*"):
            link = directory / tool.name
            if tool.name not in missing and not link.is_symlink():
                link.symlink_to(shutil.which(tool.name, path=place) or tool)
    return directory


_OF_A_BUSY_MACHINE = {
    FindingCode.BOX_OVERLOADED,
    FindingCode.CHANGE_LATE,
    FindingCode.DEPARTURE_LATE,
    FindingCode.DEPARTURES_LATE,
    FindingCode.STALLS,
    FindingCode.TERRESTRIAL_RTT_SCATTER,
}

_LONGEST_SCATTER_MS = 7.0
"""Less than half the smallest difference between two latency classes of the labs in tests: 5 and 20 ms."""


def faults(summary: Mapping[str, Any]) -> list[str]:
    """The reasons against a run in real time that a busy machine does not explain."""
    found = [
        reason
        for code, reason in zip(summary["reason_codes"], summary["reasons"], strict=True)
        if code not in _OF_A_BUSY_MACHINE
    ]
    far = {
        server: rtt
        for server, rtt in summary["terrestrial_rtt_ms"].items()
        if rtt["measured"] - rtt["configured"] > rtt["tolerance"] + _LONGEST_SCATTER_MS
    }
    return [*found, *(f"terrestrial RTT of {server}: {rtt}" for server, rtt in far.items())]


def open_to_others(path: Path) -> None:
    """Let another user into a test's directory."""
    path.chmod(0o777)
    for parent in path.parents:
        if (
            parent.owner() == path.owner()
            and parent.stat().st_mode & 0o055 != 0o055
            and parent.name.startswith(("pytest", "popen"))
        ):
            parent.chmod(parent.stat().st_mode | 0o055)
