# SPDX-License-Identifier: Apache-2.0
"""What another user of a machine prepares for an agent: the attacks, tried by a plain user against another one."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atoll_hosts.binary import find_binary

pytestmark = pytest.mark.lab

VICTIM, ATTACKER = 64_801, 64_802  # of nobody on an ordinary system


@dataclass(frozen=True)
class Place:
    """A victim who may start the agent, and a file of his that says ``mine``."""

    directory: Path
    agent: Path
    file: Path

    @property
    def own(self) -> Path:
        """Where agents of the victim keep what they have set."""
        return Path(f"/tmp/atoll-agent-{VICTIM}")

    @property
    def spool(self) -> Path:
        """Where agents of the victim keep runs' files."""
        return Path(f"/var/tmp/atoll-{VICTIM}")

    def run(self, user: int, script: str) -> None:
        """Run a shell command as a plain user."""
        subprocess.run([*as_user(user), "sh", "-c", script], check=True)

    @property
    def argv(self) -> list[str]:
        """The command line of an agent that the victim starts."""
        return [*as_user(VICTIM), str(self.agent), "agent", "--silence", "60"]

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer of such an agent."""
        line = json.dumps({"id": 1, **request}) + "\n"
        said = subprocess.run(self.argv, input=line, capture_output=True, text=True, check=True, timeout=100).stdout
        return next(message for message in map(json.loads, said.splitlines()) if message["type"] == "answer")


def as_user(user: int) -> list[str]:
    """Before the command line of a plain user's process."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]


@pytest.fixture
def place() -> Iterator[Place]:
    """Below /tmp, where both users can go; nothing of it is left."""
    if os.geteuid() != 0:
        pytest.skip("being two other users takes root")
    directory = Path(tempfile.mkdtemp(prefix="atoll-strangers-", dir="/tmp"))
    directory.chmod(0o755)
    found = Place(directory, directory / "atoll-host", directory / "file")
    shutil.copy(find_binary(), found.agent)
    found.file.write_text("mine\n")
    os.chown(found.file, VICTIM, VICTIM)
    found.file.chmod(0o600)
    yield found
    for left in (found.own, found.spool):
        left.unlink() if left.is_symlink() else shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(directory)


def journal(place: Place) -> str:
    """What makes an agent "put back" the victim's file, by a name that leads out of /proc/sys."""
    climbing = ".//.//" + str(place.file).replace(".", "\0").replace("/", ".").replace("\0", "/")
    return json.dumps({"hosts": [], "sysctls": [[climbing, "stolen"]]})


def test_what_a_stranger_wrote_down_is_not_undone(place: Place) -> None:
    """A directory of the agent's name, made before by another user, is refused with a line that says whose it is."""
    place.run(ATTACKER, f"mkdir -m 777 {place.own} && echo '{journal(place)}' > {place.own}/settings.json")
    answer = place.ask(op="claim", owner="test")
    assert place.file.read_text() == "mine\n"
    assert not answer["ok"]
    words = f"{place.own} is the directory of user {ATTACKER}: it may have been created by another user; remove it"
    assert answer["error"] == words


def test_a_stranger_s_link_is_not_followed(place: Place) -> None:
    """Also where it leads to a directory of one's own."""
    place.run(
        VICTIM, f"mkdir -p /tmp/atoll-agent-{VICTIM}.aim && echo '{journal(place)}' > {place.own}.aim/settings.json"
    )
    place.run(ATTACKER, f"ln -s {place.own}.aim {place.own}")
    try:
        answer = place.ask(op="claim", owner="test")
    finally:
        shutil.rmtree(f"{place.own}.aim")
    assert place.file.read_text() == "mine\n"
    assert "is no directory: it may have been created by another user" in answer["error"]


def test_a_stranger_cannot_say_that_the_machine_is_taken(place: Place) -> None:
    """A lock in a directory that is not the agent's own says nothing."""
    claim = place.own / "claim"
    place.run(ATTACKER, f"mkdir -m 755 {place.own} && echo 'the attacker' > {claim} && chmod 666 {claim}")
    with subprocess.Popen(
        [*as_user(ATTACKER), "flock", str(claim), "sh", "-c", "echo; cat"],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        answer = place.ask(op="describe")
        holder.stdin.close()
    assert answer["claimed_by"] is None


@pytest.mark.parametrize("killed", [[], ["agent"], ["guard", "agent"]])
def test_the_directory_goes_with_the_last_agent(place: Place, killed: list[str]) -> None:
    """An agent that was killed with its guard leaves it to the next one. An agent that is refused leaves it alone."""
    with subprocess.Popen(place.argv, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as guard:
        assert guard.stdin is not None
        assert guard.stdout is not None
        pids = {"guard": guard.pid, "agent": json.loads(guard.stdout.readline())["pid"]}
        guard.stdin.write('{"id": 1, "op": "claim", "owner": "the first"}\n')
        guard.stdin.flush()
        next(line for line in guard.stdout if '"answer"' in line)
        assert place.ask(op="claim", owner="the second")["error"] == "this machine is in use by the first"
        assert (place.own / "claim").exists()
        for name in killed:
            os.kill(pids[name], signal.SIGKILL)
        guard.stdin.close()
        guard.stdout.read()
    if "guard" in killed:
        assert place.ask(op="describe")["claimed_by"] is None
    assert not place.own.exists()


def test_a_spool_of_a_stranger_is_not_used(place: Place) -> None:
    """Neither to write there, nor to tell of files or delete them."""
    place.run(ATTACKER, f"mkdir -m 777 {place.spool} && ln -s {place.directory} {place.spool}/run")
    for op in ("spool", "files", "discard"):
        assert f"{place.spool} is the directory of user {ATTACKER}: " in place.ask(op=op, name="run")["error"]


@pytest.mark.parametrize("op", ["sysctl", "read"])
def test_a_sysctl_s_name_cannot_lead_out(place: Place, op: str) -> None:
    """Whoever asks."""
    name = json.loads(journal(place))["sysctls"][0][0]
    answer = place.ask(op=op, sysctls=[[name, "stolen"]] if op == "sysctl" else [name])
    assert place.file.read_text() == "mine\n"
    assert answer["error"] == f'"{name}" is not the name of a sysctl'
