# SPDX-License-Identifier: Apache-2.0
"""`atoll kernel build|status|path|clean`: the kernels for `--on virtual` (docs/virtual-time.md)."""

import json as json_format
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from atoll_cli.terminal.options import CommandGroup, Json

if TYPE_CHECKING:
    from atoll_emulation.uml.cache import KernelStatus

kernel = CommandGroup(help="Build, inspect and remove kernels for virtual time.")

_LINE_INTERVAL_S = 15.0  # between progress lines if standard error is no terminal


@kernel.command(epilog="Example: atoll kernel build")
def build(
    source: Annotated[
        Path | None,
        typer.Option(
            help="archive of kernel sources [default: the release of ATOLL_KERNEL, else Linux 7.2, else 6.1]",
            metavar="FILE",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="build even if the kernel exists already")] = False,
    json: Json = False,
) -> None:
    """Build the kernel unless it exists.

    If root builds it, every user has it; otherwise it is built into your own cache.
    ATOLL_KERNEL=6.1 chooses the release to build and to run.
    """
    from atoll_emulation.uml.build import build_kernel, build_preferred
    from atoll_emulation.uml.cache import kernel_status
    from atoll_emulation.uml.recipe import RECIPES, VARIABLE, series_of
    from atoll_emulation.uml.source import find_source

    start_s = time.monotonic()
    with _BuildProgress() as progress:
        if source:
            find_source(source, RECIPES[0])
            built = build_kernel(source, progress.update)
        else:
            built = build_preferred(progress.update, progress.print, force=force)
    status = kernel_status()
    if built and built != status.directory:
        series = series_of(built.name)
        use_text = f"not used while {status.directory} exists"
        if status.state == "missing" or series != series_of(status.directory.name):
            use_text = f"to use it, set {VARIABLE}={series}"
        print(f"built {built}; {use_text}", file=sys.stderr)
    if json:
        print(json_format.dumps(_to_json(status) | {"seconds": round(time.monotonic() - start_s, 1)}))
    if status.problem_text:
        print(status.problem_text, file=sys.stderr)
        raise typer.Exit(1)
    if not json:
        print(f"Linux {status.facts['release']} for virtual time: {status.directory}")


@kernel.command("status", epilog="Example: atoll kernel status --json")
def print_status(json: Json = False) -> None:
    """Show whether the kernel is built; exit code 1 with the remedy if not."""
    from atoll_emulation.uml.cache import kernel_status, unused_kernels

    status = kernel_status()
    if json:
        print(json_format.dumps(_to_json(status)))
    else:
        print(status.state)
        for name, fact in {**status.facts, "directory": str(status.directory)}.items():
            if not name.startswith("sha256"):
                print(f"{name:<10} {fact}")
        if unused := unused_kernels():
            print(f"{'unused':<10} {len(unused)} kernels of other versions; `atoll kernel clean` removes them")
        if status.problem_text:
            print(status.problem_text, file=sys.stderr)
    if status.problem_text:
        raise typer.Exit(1)


@kernel.command("path", epilog="Example: $(atoll kernel path) --showconfig")
def print_path() -> None:
    """Print the path of the kernel's executable file."""
    from atoll_emulation.uml.kernel import find_virtual_kernel

    print(find_virtual_kernel().executable)


@kernel.command(epilog="Example: atoll kernel clean")
def clean(json: Json = False) -> None:
    """Remove kernels of other versions of atoll, except running ones; other checkouts have to build theirs again."""
    from atoll_core.errors import MachineError
    from atoll_emulation.uml.cache import remove_kernels, unused_kernels

    removal = remove_kernels(unused_kernels())
    if json:
        removed, running = ([*map(str, paths)] for paths in (removal.removed, removal.in_use))
        print(json_format.dumps({"removed": removed, "running": running}))
    else:
        for path in removal.removed:
            print(f"removed {path}")
        for path in removal.in_use:
            print(f"kept {path}: a lab is running in it")
        if not (removal.removed or removal.in_use or removal.failures):
            print("nothing to remove")
    if removal.failures:
        raise MachineError("\n".join(removal.failures))


def _to_json(status: "KernelStatus") -> dict[str, object]:
    from atoll_emulation.uml.cache import unused_kernels

    unused = [str(path) for path in unused_kernels()]
    answer = {"state": status.state, "directory": str(status.directory), **status.facts}
    return {**answer, "unused": unused, "remedy": status.problem_text}


class _BuildProgress:
    """The progress of a build on standard error: a bar on a terminal, elsewhere a line every 15 s."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True) if console.is_terminal else None
        self._step = ""
        self._printed_s = 0.0

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
            self._bar.add_task("", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def print(self, line: str) -> None:
        """Print a line."""
        if self._bar:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def update(self, step: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` parts of a step are done; 0 means that the total is unknown."""
        if self._bar:
            task = self._bar.task_ids[0]
            if step != self._step:
                self._bar.reset(task)
            self._bar.update(task, description=step, completed=done, total=total or None)
        elif step != self._step or time.monotonic() - self._printed_s > _LINE_INTERVAL_S:
            self._printed_s = time.monotonic()
            print(f"{step} ({done * 100 // total} %)" if total else step, file=sys.stderr, flush=True)
        self._step = step
