# SPDX-License-Identifier: Apache-2.0
"""The command line and the steps of a benchmark: measure, write results, print tables or write them into a folder."""

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from benchkit import machine_facts
from benchkit.figures_file import figures_folder, write_figures
from benchkit.json_results import read_results, write_results


def parser(name: str, about: str | None, *, quick: str = "seconds", merges: bool = True) -> argparse.ArgumentParser:
    """A parser of the command line of ``benchmarks/NAME/run`` that knows ``--quick``, ``--json`` and ``--render``.

    ``quick``: duration with ``--quick``. ``merges``: results of earlier measurements are kept in the file.
    """
    merged = "; results that are not measured now are kept" if merges else ""
    arguments = argparse.ArgumentParser(prog=f"benchmarks/{name}/run", description=about)
    arguments.add_argument(
        "--quick", action="store_true", help=f"{quick}: a test of the benchmark, whose figures say little"
    )
    arguments.add_argument("--json", type=Path, default=Path(f"target/bench-{name}.json"), metavar="FILE",
                       help=f"results{merged} (%(default)s)")  # fmt: skip
    arguments.add_argument("--render", type=figures_folder, metavar="FOLDER",
                       help="measure nothing; write FILE's tables into a file of FOLDER")  # fmt: skip
    return arguments


def run(
    options: argparse.Namespace,
    subject: str,
    key: str,
    measured: Callable[[], Mapping[str, Any]],
    tables: Callable[[dict[str, Any]], str],
) -> int:
    """Measure, unless only tables are to be rendered, and show all results; return the program's exit code.

    ``subject``: name of the file of figures, without suffix. ``measured``: makes the results, with at least ``key``.
    ``tables``: formats them.
    """
    try:
        if not options.render:
            results = measured()
            write_results(options.json, {**results, "machine": machine_facts.describe()})
        stored = read_results(options.json, key)
        print(tables(stored))
        print(f"\nJSON: {options.json}")
        if options.render:
            text = f"{machine_facts.in_words(stored['machine'])}\n\n{tables(stored)}"
            print(f"written: {write_figures(options.render, subject, text)}")
    except AtollError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def measured_by(argv: Sequence[str], stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a program that measures, to its end. Raises AtollError when it fails; it has printed the reason itself."""
    done = subprocess.run(argv, check=False, stdout=stdout)
    if done.returncode != 0:
        raise AtollError("the measurement failed; see the error above")
    return done
