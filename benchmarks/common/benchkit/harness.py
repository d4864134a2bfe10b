# SPDX-License-Identifier: Apache-2.0
"""What the programs of benchmarks have in common: results in a file, and tables of them, printed or put into docs."""

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from benchkit import machine_facts
from benchkit.docs_page import put_figures
from benchkit.json_results import read_results, write_results


def parser(name: str, about: str | None, *, quick: str = "seconds", merges: bool = True) -> argparse.ArgumentParser:
    """A parser of the command line of ``benchmarks/NAME/run`` that knows ``--quick``, ``--json`` and ``--render``.

    ``quick``: how long the first takes. ``merges``: results of earlier measurements are kept in the file.
    """
    kept = "; what is not measured now stays as it is in there" if merges else ""
    found = argparse.ArgumentParser(prog=f"benchmarks/{name}/run", description=about)
    found.add_argument("--quick", action="store_true", help=f"{quick}: shows that it works; its figures say little")
    found.add_argument("--json", type=Path, default=Path(f"target/bench-{name}.json"), metavar="FILE",
                       help=f"results{kept} (%(default)s)")  # fmt: skip
    found.add_argument("--render", type=Path, metavar="DOCS", help="measure nothing; write FILE's tables into "
                       "DOCS/benchmarks.md, or into DOCS if it is a file")  # fmt: skip
    return found


def run(
    options: argparse.Namespace,
    subject: str,
    key: str,
    measured: Callable[[], Mapping[str, Any]],
    tables: Callable[[dict[str, Any]], str],
) -> int:
    """Measure, unless there is only something to render, and show all that is known; the program's exit code.

    ``subject``: of the figures in the document. ``measured``: makes what the file is to hold, ``key`` at least.
    ``tables``: tells that.
    """
    try:
        if not options.render:
            results = measured()
            write_results(options.json, {**results, "machine": machine_facts.describe()})
        known = read_results(options.json, key)
        print(tables(known))
        print(f"\nJSON: {options.json}")
        if options.render:
            page = options.render if options.render.is_file() else options.render / "benchmarks.md"
            put_figures(page, subject, lambda: f"\n{machine_facts.in_words(known['machine'])}\n\n{tables(known)}\n")
            print(f"written: {page}")
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
