# SPDX-License-Identifier: Apache-2.0
"""Check that this machine has the users' programs that emulated boxes run."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from atoll_core.description.validation_messages import entry_name
from atoll_core.errors import DescriptionError, Diagnostic, shown
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network, Program
from atoll_core.mounts import noexec_problem

_INTERPRETER_OF = {".py": "python3", ".sh": "sh", ".pl": "perl", ".rb": "ruby", ".js": "node"}
_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|bash|dash|sh)[0-9.]*")
"""Programs whose first argument is the script, unless it is an option."""


def require_programs(network: Network, experiment: Experiment | None = None) -> None:
    """Raise DescriptionError with the mistakes of :func:`missing_programs`."""
    if missing := missing_programs(network, experiment):
        raise DescriptionError(missing)


def complete_path() -> str:
    """PATH with the system's directories, which plain users do not have: Debian keeps ``ip`` and Open vSwitch there."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    sbin = [directory for directory in ("/usr/local/sbin", "/usr/sbin", "/sbin") if directory not in directories]
    return os.pathsep.join([*directories, *sbin])


def missing_programs(network: Network, experiment: Experiment | None = None) -> tuple[Diagnostic, ...]:
    """Return the commands of boxes that cannot be started here; with an experiment, only of boxes in its chains."""
    hops = {hop for chain in experiment.all_chains for hop in chain.hops} if experiment else None
    folder = Path(network.file).parent
    return tuple(
        Diagnostic(network.file, box.program.line, f"{entry_name(key_path)}: {reason}", key_path)
        for box in network.boxes
        if box.program and (hops is None or box.name in hops)
        for key, reason in _problems(box.program, folder)
        for key_path in [("boxes", box.name, "program", key)]
    )


def _problems(program: Program, folder: Path) -> Iterator[tuple[str, str]]:
    """The key and the problem of each missing part of a program."""
    for key in ("start", "stop", "report"):
        yield from ((key, reason) for reason in _command_problems(getattr(program, key), folder))
    for name, remedy in program.needs:
        if shutil.which(folder / name if "/" in name else name, path=complete_path()) is None:
            yield "needs", f"there is no program {shown(name)}; {remedy}"


def _command_problems(argv: tuple[str, ...], folder: Path) -> Iterator[str]:
    if not argv:
        return
    place = f"in {folder}, the folder of the lab's file"
    if "/" in argv[0]:
        if (folder / argv[0]).is_file() and not os.access(folder / argv[0], os.X_OK):
            yield (
                noexec_problem(folder / argv[0])
                or f"{shown(argv[0])} is not executable: chmod +x{_interpreter_hint(argv[0])}"
            )
        elif shutil.which(folder / argv[0]) is None:
            yield (
                f"there is no program {shown(argv[0])} {place}; write a path relative to that folder, or an "
                "absolute path"
            )
    elif shutil.which(argv[0], path=complete_path()) is None:
        yield f"there is no program {shown(argv[0])} in PATH; install it, or write its path, such as ./{argv[0]}"
    elif _INTERPRETER.fullmatch(argv[0]) and len(argv) > 1 and not argv[1].startswith("-"):
        script = folder / argv[1]
        if not os.access(script, os.R_OK) or script.is_dir():
            yield (
                f"there is no file {shown(argv[1])} {place}; write a path relative to that folder, or an absolute path"
            )


def _interpreter_hint(script: str) -> str:
    """Suggest the interpreter for a script that is not executable, by its suffix."""
    interpreter = _INTERPRETER_OF.get(Path(script).suffix)
    return f", or [{interpreter}, {script.removeprefix('./')}, ...]" if interpreter else ""
