# SPDX-License-Identifier: Apache-2.0
"""Start a User-Mode Linux kernel, run one command in it, tell how it ended."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from atoll.model.errors import LabError, MachineError
from atoll_emulation.namespaces import unshare_argv, why_no_namespaces
from atoll_emulation.uml.guest import Guest
from atoll_emulation.uml.kernel import find_kernel

CONSOLE = "console.log"
"""In the output directory: what the kernel and the command printed."""

_MEMORY_MB = 1500
_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command inside the kernel ended."""

    status: int
    console: str


def run_in_uml(
    command: Sequence[str],
    output: Path,
    *,
    limit_s: float,
    memory_mb: int = _MEMORY_MB,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run ``command`` as root inside a fresh kernel, from the working directory; /out inside is ``output``.

    Time is the machine's. Every kernel gets one processor, the last that is allowed: switching costs it dearly.
    Raises MachineError without kernel or namespaces, LabError when it does not end within ``limit_s`` (a guest in which
    everything waits with no timer armed spins for ever) or the kernel dies before the command.
    """
    kernel = find_kernel()
    why = why_no_namespaces()
    if why is not None:
        msg = f"User-Mode Linux needs namespaces, which cannot be made here ({why})"
        raise MachineError(msg)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="atoll-uml-") as name:
        work = Path(name)
        guest = Guest(command, Path.cwd(), output.resolve(), work, environment or {})
        if "," in str(guest.output):
            msg = f"{guest.output}: a directory for User-Mode Linux may have no comma in its name"
            raise MachineError(msg)
        (work / "run").write_text(guest.run())
        init = work / "init"
        init.write_text(guest.init())
        init.chmod(0o755)
        _provide_modules(guest.module_root, kernel.modules)
        boot = [
            *("taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))),
            *("setarch", "--addr-no-randomize", str(kernel.executable)),
            *(f"mem={memory_mb}M", "root=none", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"),
            *(f"init={init}", "umid=uml", f"uml_dir={work}/", "con=null", "con0=null,fd:1"),
        ]
        _boot(boot, output / CONSOLE, limit_s)
        console = (output / CONSOLE).read_text(errors="replace")
        if not guest.status_file.exists():
            tail = "\n".join(console.splitlines()[-_TAIL_LINES:])
            msg = f"the User-Mode Linux kernel ended before `{' '.join(command)}` did; its last words:\n{tail}"
            raise LabError(msg)
        return Ended(int(guest.status_file.read_text()), console)


def _provide_modules(root: Path, modules: Path) -> None:
    """Lay the kernel's modules out as modprobe wants them."""
    (root / "lib" / "modules").mkdir(parents=True)
    (root / "lib" / "modules" / modules.name).symlink_to(modules)


def _boot(argv: Sequence[str], console: Path, limit_s: float) -> None:
    """Run the kernel to its end in namespaces of its own: with their first process die all those it consists of.

    Its console is a regular file: at a pipe or a terminal, signals would disturb it whenever somebody reads.
    """
    shell = ["sh", "-c", 'mount -t proc proc /proc && "$@"', "sh"]
    with console.open("wb") as log:
        process = subprocess.Popen([*unshare_argv(), *shell, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            msg = f"the User-Mode Linux kernel was stopped after {limit_s:g} s; its console is in {console}"
            raise LabError(msg) from None
        finally:
            process.kill()
            process.wait()
