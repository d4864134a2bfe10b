# SPDX-License-Identifier: Apache-2.0
"""The tools that start a program on all machines, each called as its users call it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from atoll_core.errors import LabError
from hostsbench.fleet import Fleet
from hostsbench.start import Start, start_of

COLD, WARM = "atoll, from nothing", "atoll, connections up"
ALL = -1
"""As many at a time as there are machines."""

_LIMIT_S = 400.0
_LATE_S = 5.0  # a program may be about to start when its starter says that all is done

Found = Mapping[str, list[Start]]


@dataclass(frozen=True, slots=True)
class Starter:
    """One tool and how it is called. ``needs``: its program, and the package that has it."""

    name: str
    needs: tuple[str, str]
    measure: Callable[[Fleet, int], Found]  # on a fleet, so many times

    @property
    def missing(self) -> str | None:
        """How to install it; None: it is installed."""
        program, package = self.needs
        return None if shutil.which(program) else f"apt install {package}"

    def version(self) -> str:
        """As it says itself."""
        done = subprocess.run([self.needs[0], "--version"], capture_output=True, text=True, check=False)
        first = (done.stdout or done.stderr).splitlines()[0].strip()
        return first if any(letter.isalpha() for letter in first) else f"{Path(self.needs[0]).name} {first}"


def starters(binary: Path) -> tuple[Starter, ...]:
    """All of them, ours first."""
    atoll = (str(binary), "")
    pssh, ansible = ("parallel-ssh", "pssh"), ("ansible", "ansible-core")
    return (
        Starter("atoll", atoll, _atoll),
        Starter("atoll hosts exec", atoll, lambda fleet, times: _shell("atoll hosts exec", _exec(fleet), fleet, times)),
        *(_pssh(pssh, at_once) for at_once in (None, ALL)),
        *(_ansible(ansible, at_once) for at_once in (None, ALL)),
    )


def _atoll(fleet: Fleet, times: int) -> Found:
    """From nothing once a round; with connections up as often."""
    starts: dict[str, list[Start]] = {COLD: [], WARM: []}
    for _ in range(times):
        argv = [sys.executable, "-m", "hostsbench.atoll_starter", fleet.folder, str(fleet.size), fleet.binary, "1"]
        asked_ns = time.time_ns()
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
        if done.returncode != 0:
            raise LabError(f"atoll: {done.stderr.strip().splitlines()[-1]}")
        for name, line in zip((COLD, WARM), map(json.loads, done.stdout.splitlines()), strict=True):
            starts[name].append(start_of(line.get("asked_ns", asked_ns), line["stamps"]))
    return starts


def _exec(fleet: Fleet) -> list[str]:
    atoll = Path(sys.executable).with_name("atoll")
    return [str(atoll), "hosts", "exec", "--inventory", str(fleet.inventory), "--", "sh", "-c", fleet.shell_command()]


def _pssh(needs: tuple[str, str], at_once: int | None) -> Starter:
    name = "pssh" if at_once is None else "pssh, all at once"

    def measure(fleet: Fleet, times: int) -> Found:
        hosts = fleet.folder / "hosts"
        hosts.write_text("".join(f"{address}\n" for address in fleet.addresses.values()))
        number = [] if at_once is None else ["-p", str(fleet.size)]
        argv = ["parallel-ssh", *number, "-t", "0", "-h", str(hosts), "-x", f"-F {fleet.ssh_config}"]
        return _shell(name, [*argv, fleet.shell_command()], fleet, times)

    return Starter(name, needs, measure)


def _ansible(needs: tuple[str, str], at_once: int | None) -> Starter:
    name = "Ansible" if at_once is None else "Ansible, all at once"

    def measure(fleet: Fleet, times: int) -> Found:
        inventory = fleet.folder / "ansible.ini"
        inventory.write_text("".join(f"{name} ansible_host={at}\n" for name, at in fleet.addresses.items()))
        number = [] if at_once is None else ["-f", str(fleet.size)]
        argv = ["ansible", "all", *number, "-i", str(inventory), "--ssh-common-args", f"-F {fleet.ssh_config}"]
        return _shell(name, [*argv, "-m", "shell", "-a", fleet.shell_command()], fleet, times)

    return Starter(name, needs, measure)


def _shell(name: str, argv: list[str], fleet: Fleet, times: int) -> Found:
    """A command that has a shell on every machine start the program."""
    home = fleet.folder / "ansible"
    config = home / "ansible.cfg"  # an empty one: neither the user's nor the machine's
    own = {"HOME": str(home), "ANSIBLE_HOME": str(home), "ANSIBLE_CONFIG": str(config), "ANSIBLE_LOCAL_TEMP": str(home)}
    own |= {"ANSIBLE_REMOTE_TEMP": "/var/tmp/ansible", "ANSIBLE_SSH_CONTROL_PATH_DIR": str(home)}  # noqa: S108
    starts: list[Start] = []
    for _ in range(times):
        home.mkdir()
        config.touch()
        asked_ns = time.time_ns()
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_LIMIT_S, env=os.environ | own)
        stamps = fleet.stamps(_LATE_S)
        if not stamps:
            lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            raise LabError(f"{name}: nothing was started: {lines[-1]}")
        starts.append(start_of(asked_ns, stamps))
        fleet.forget()
        shutil.rmtree(home)  # Ansible keeps connections up for the next call
    return {name: starts}
