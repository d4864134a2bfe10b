# SPDX-License-Identifier: Apache-2.0
"""Start a User-Mode Linux kernel, run one command in it, report how it ended."""

import contextlib
import re
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from atoll_core.errors import LabError, MachineError
from atoll_emulation.mininet_lab.namespaces import unshare_argv
from atoll_emulation.this_machine.core_pinning import claimed_core
from atoll_emulation.this_machine.restrictions import namespaces_problem
from atoll_emulation.uml.guest_init import LATE, MOUNT_POINT, Guest
from atoll_emulation.uml.kernel import UmlKernel

CONSOLE = "console.log"
"""In the output directory: the output of the kernel and of the command."""

_MEMORY_MB = 1500
_TAIL_LINES = 15

# Lines of the kernel of a healthy guest (arch/um/os-Linux of 6.1, printk of power-off).
_USUAL_LINE = re.compile(
    r"Core dump limits :|\tsoft - |\thard - |Checking |Checking\.\.\.|none found$|.*\.\.\.OK$|UML running in |"
    r"Adding \d+ bytes to physical memory|Failed to initialize ubd device|mmapper_init|SELinux: |"
    r"(\[ *\d+\.\d+\] )?(reboot: (System halted|Power down)|Linux version |Kernel command line:)"
)
# The lines of a panic that only a kernel developer reads; the console file has them.
_DUMP_LINE = re.compile(r"(\[ *\d+\.\d+\] )?( *\[<[0-9a-f]+>\]|Stack:$|Call Trace:$|( [0-9a-f]{8,16}){2,}|CPU: )")


@dataclass(frozen=True, slots=True)
class VirtualClock:
    """A clock that stops while anything computes and jumps to the next timer when everything waits.

    Two kernels with the same seed and command do the same at the same times, to the byte.
    """

    seed: int
    start_ns: int = 1_767_225_600 * 10**9  # of the kernel's boot, since 1970: 2026-01-01
    limit_s: int = 86_400  # by this clock, for the command


class RunningKernel:
    """A running kernel. A context manager: at its end the kernel and everything in it have ended.

    They also end with the thread that started the kernel.
    """

    def __init__(self, process: subprocess.Popen[bytes], console: Path, command: Sequence[str]) -> None:
        self.console = console
        """The file with all that the kernel and the command print."""
        self._process = process
        self._command = command

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def wait(self, timeout_s: float | None = None) -> tuple[int, str] | None:
        """The exit status and the output of the command; None if it has not ended within ``timeout_s``.

        Raises LabError, with the console's last lines, when the kernel ended before the command did, or its virtual
        time was up.
        """
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        status = self._process.stdout.read().decode().strip() if self._process.stdout else ""
        if not status.isdigit():
            command = textwrap.shorten(" ".join(self._command), 60, placeholder="…")
            problem = f"`{command}` did not end within the virtual-time limit of its User-Mode Linux kernel"
            if status != LATE:
                problem = f"the User-Mode Linux kernel ended before `{command}` did"
            raise LabError(f"{problem}{self.last_lines()}")
        return int(status), "".join(f"{line}\n" for line in self._lines())

    def waited_s(self) -> float:
        """How long its processes that exist now have been ready and waited for a processor (schedstat of proc(5))."""
        waited_ns = 0
        namespace = Path(f"/proc/{self._process.pid}/ns/pid_for_children")
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # one of them has ended, or it is another user's
                if process.joinpath("ns/pid").samefile(namespace):
                    waited_ns += int(process.joinpath("schedstat").read_text().split()[1])
        return waited_ns / 1e9

    def stop(self) -> None:
        """Kill the kernel, if it is still there; nothing it had not written to the output directory is kept."""
        self._process.kill()
        self._process.wait()

    def last_lines(self) -> str:
        """The last lines of the console, to end a message with; without the dumps of a kernel that panicked."""
        lines = [line for line in self._lines() if line and not _DUMP_LINE.match(line)]
        return "; its last words:\n" + "\n".join(lines[-_TAIL_LINES:]) if lines else "; it printed nothing"

    def _lines(self) -> list[str]:
        lines = (line.rstrip() for line in self.console.read_text(errors="replace").splitlines())
        return [line for line in lines if not _USUAL_LINE.match(line)]


def start_in_uml(
    command: Sequence[str],
    output: Path,
    *,
    kernel: UmlKernel,
    clock: VirtualClock | None = None,
    cpu: int,
    memory_mb: int = _MEMORY_MB,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> RunningKernel:
    """Start ``command`` as root inside a fresh kernel, in ``directory`` (default: here); /out inside is ``output``.

    Without a ``clock`` time is the machine's. A kernel gets one processor, ``cpu``: switching costs it dearly. A guest
    that never stops computing stops the virtual clock, so the caller must set a limit in real time. A terminal's
    signals do not reach the kernel. Raises MachineError without namespaces.
    """
    if problem := namespaces_problem():
        raise MachineError(problem)
    output.mkdir(parents=True, exist_ok=True)
    guest = Guest(
        command,
        (directory or Path.cwd()).resolve(),
        environment or {},
        None if clock is None else clock.limit_s,
    )
    setup_script = guest.setup_script(kernel.executable.resolve(), kernel.shim, output.resolve(), memory_mb)
    argv = [*unshare_argv(), "sh", "-c", setup_script, "sh", *_boot_argv(kernel, cpu, memory_mb, clock)]
    console = output / CONSOLE
    # A regular file: at a pipe or a terminal, signals would disturb the kernel whenever somebody reads.
    with console.open("wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    return RunningKernel(process, console, command)


def _boot_argv(kernel: UmlKernel, cpu: int, memory_mb: int, clock: VirtualClock | None) -> list[str]:
    """The kernel's command line and environment: the same for every machine and user."""
    variables = [f"TMPDIR={MOUNT_POINT}"]
    arguments = list(kernel.arguments)
    if clock is not None:
        variables += [f"LD_PRELOAD={MOUNT_POINT}/random.so", f"UML_RANDOM_SEED={clock.seed % 2**64}"]
        arguments += ["time-travel=inf-cpu", f"time-travel-start={clock.start_ns}"]
    return [
        *("taskset", "--cpu-list", str(cpu)),
        *("setarch", "--addr-no-randomize", "env", "-i", *variables, f"{MOUNT_POINT}/linux", *arguments),
        *(f"mem={memory_mb}M", "root=none", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "noreboot"),
        *(f"init={MOUNT_POINT}/init", "umid=uml", f"uml_dir={MOUNT_POINT}/", "con=null", "con0=null,fd:1"),
    ]


def run_in_uml(
    command: Sequence[str],
    output: Path,
    *,
    limit_s: float,
    kernel: UmlKernel,
    clock: VirtualClock | None = None,
    memory_mb: int = _MEMORY_MB,
) -> tuple[int, str]:
    """Run ``command`` to its end inside a fresh kernel (``start_in_uml``); return its exit status and its output.

    Raises LabError when it does not end within ``limit_s``.
    """
    with (
        claimed_core() as core,
        start_in_uml(command, output, kernel=kernel, clock=clock, cpu=core, memory_mb=memory_mb) as running,
    ):
        command_exit = running.wait(limit_s)
        if command_exit is None:
            raise LabError(f"the User-Mode Linux kernel was stopped after {limit_s:g} s{running.last_lines()}")
        return command_exit
