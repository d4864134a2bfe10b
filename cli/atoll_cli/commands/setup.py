# SPDX-License-Identifier: Apache-2.0
"""`atoll setup`: the packages of the distribution, which are missing, and their installation."""

import importlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

from atoll_cli.terminal.confirmation import confirm
from atoll_core.errors import MachineError
from atoll_emulation.this_machine.box_programs import complete_path
from atoll_emulation.this_machine.packages import DEBIAN, Family, Need, family, missing_needs, packages_of, uses_here

_SERVICE = (
    "openvswitch-switch also starts a switch of the system, which atoll does not use; to stop it: "
    "systemctl disable --now openvswitch-switch"
)


def set_up(*, yes: bool, as_json: bool) -> int:
    """Print what is missing and how to install it, and install it as root after asking; returns the exit code.

    Raises MachineError if the package manager fails.
    """
    os.environ["PATH"] = complete_path()
    missing, distribution = _missing(), family()
    packages = packages_of(need for needs in missing.values() for need in needs)
    command = _command_text(distribution, packages) if distribution and packages else ""
    if not as_json:
        _print_missing(missing)
        _print_command(distribution, command, packages)
    installed = False
    if distribution and packages and _may_install(command, yes=yes, as_json=as_json):
        _install(distribution, packages)
        installed = True
        importlib.invalidate_caches()  # Mininet's Python package may have come into a directory that was listed before
        missing = _missing()
    if as_json:
        by_use = {use: [str(need) for need in needs] for use, needs in missing.items()}
        answer = {"missing": by_use, "packages": packages, "command": command, "installed": installed}
        print(json.dumps({**answer, "family": distribution and distribution.name}))
    elif installed:
        _print_missing(missing)
    return MachineError.exit_code if any(missing.values()) else 0


def _missing() -> dict[str, list[Need]]:
    return {use: missing_needs(*uses) for use, uses in uses_here().items()}


def _command_text(distribution: Family, packages: Sequence[str]) -> str:
    """What people type. The lists may be fetched in part, for a repository that fails need not have the packages."""
    commands = (distribution.update, (*distribution.install, *packages))
    return "; ".join(shlex.join(argv) for argv in commands if argv)


def _print_missing(missing: dict[str, list[Need]]) -> None:
    for use, needs in missing.items():
        names = ", ".join(dict.fromkeys(map(str, needs)))
        print(f"{use:<19} {'missing: ' if needs else 'nothing is missing'}{names}")
    by_hand = dict.fromkeys(str(need) for needs in missing.values() for need in needs if need.package is None)
    if by_hand:
        print(f"this distribution has no package of {', '.join(by_hand)}; install by hand")


def _print_command(distribution: Family | None, command: str, packages: Sequence[str]) -> None:
    if not packages:
        return
    if distribution is None:
        print(f"this distribution is unknown; in Debian these packages have it: {' '.join(packages)}")
        return
    print(f"{command}{'' if distribution.is_tested else '  (names of packages not tested)'}")
    if distribution == DEBIAN and "openvswitch-switch" in packages:
        print(_SERVICE)


def _may_install(command: str, *, yes: bool, as_json: bool) -> bool:
    if os.geteuid() != 0:
        print(f"not root: sudo sh -c {shlex.quote(command)}", file=sys.stderr)
        return False
    return yes or confirm("install these packages now?", "to install them: atoll setup --yes", as_json=as_json)


def _install(distribution: Family, packages: Sequence[str]) -> None:
    """Install packages; if that fails, fetch the lists of packages (one repository may fail), and install again."""
    argv = (*distribution.install, *distribution.unattended, *packages)
    code = _run(argv)
    if code and distribution.update:
        _run(distribution.update)
        code = _run(argv)
    if code:
        raise MachineError(f"{shlex.join(argv)}: failed with exit code {code}; its messages are above")


def _run(argv: Sequence[str]) -> int:
    try:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        return subprocess.run(argv, stdout=sys.stderr, env=environment, check=False).returncode
    except OSError as error:
        raise MachineError(f"{argv[0]} cannot be started: {error.strerror}") from None
