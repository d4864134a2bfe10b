# SPDX-License-Identifier: Apache-2.0
"""`atoll setup`: the packages of the distribution, which are missing, and their installation."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

from atoll_cli.terminal.confirmation import confirm
from atoll_core.errors import MachineError
from atoll_emulation.this_machine.box_programs import complete_path
from atoll_emulation.this_machine.packages import DEBIAN, USES, Need, family, missing_needs, packages_of

_SERVICE = (
    "openvswitch-switch also starts a switch of the system, which atoll does not use; to stop it: "
    "systemctl disable --now openvswitch-switch"
)


def set_up(*, yes: bool, as_json: bool) -> int:
    """Print what is missing and how to install it, and install it as root after asking; returns the exit code.

    Raises MachineError if the package manager fails.
    """
    os.environ["PATH"] = complete_path()
    missing = _missing()
    packages = packages_of(need for needs in missing.values() for need in needs)
    commands = _commands(packages)
    command = " && ".join(map(shlex.join, commands))
    if not as_json:
        _print_missing(missing)
        _print_command(command, packages)
    installed = bool(commands) and _may_install(command, yes=yes)
    if installed:
        for argv in commands:
            _run(argv)
        missing = _missing()
    if as_json:
        by_use = {use: [str(need) for need in needs] for use, needs in missing.items()}
        answer = {"missing": by_use, "packages": packages, "command": command, "installed": installed}
        distribution = family()
        print(json.dumps({**answer, "family": distribution and distribution.name}))
    elif installed:
        _print_missing(missing)
    return MachineError.exit_code if any(missing.values()) else 0


def _missing() -> dict[str, list[Need]]:
    return {use: missing_needs(*uses) for use, uses in USES.items()}


def _commands(packages: Sequence[str]) -> list[tuple[str, ...]]:
    """The commands that install packages; none on an unknown distribution, or if there is nothing to install."""
    distribution = family()
    if distribution is None or not packages:
        return []
    *first, last = distribution.commands
    return [*first, (*last, *packages)]


def _print_missing(missing: dict[str, list[Need]]) -> None:
    for use, needs in missing.items():
        names = ", ".join(dict.fromkeys(map(str, needs)))
        print(f"{use:<19} {'missing: ' if needs else 'nothing is missing'}{names}")
    by_hand = dict.fromkeys(str(need) for needs in missing.values() for need in needs if need.package is None)
    if by_hand:
        print(f"this distribution has no package of {', '.join(by_hand)}; install by hand")


def _print_command(command: str, packages: Sequence[str]) -> None:
    distribution = family()
    if not packages:
        return
    if distribution is None:
        print(f"this distribution is unknown; in Debian these packages have it: {' '.join(packages)}")
        return
    print(f"{command}{'' if distribution.is_tested else '  (names of packages not tested)'}")
    if distribution == DEBIAN and "openvswitch-switch" in packages:
        print(_SERVICE)


def _may_install(command: str, *, yes: bool) -> bool:
    if os.geteuid() != 0:
        print(f"not root: sudo sh -c {shlex.quote(command)}", file=sys.stderr)
        return False
    return yes or confirm("run this command now?", "to run this command: atoll setup --yes")


def _run(argv: Sequence[str]) -> None:
    try:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        code = subprocess.run(argv, stdout=sys.stderr, env=environment, check=False).returncode
    except OSError as error:
        raise MachineError(f"{argv[0]} cannot be started: {error.strerror}") from None
    if code:
        raise MachineError(f"{shlex.join(argv)}: failed with exit code {code}; its messages are above")
