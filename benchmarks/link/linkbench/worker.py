# SPDX-License-Identifier: Apache-2.0
"""``python -m linkbench.worker FILE``: make the measurements listed in FILE, a line of JSON each.

To be run as first process of namespaces of its own. Results go to FILE.results as they come, progress to
standard error.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from atoll_core.errors import AtollError
from linkbench import link_lab
from linkbench.scenarios import SCENARIOS


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement."""

    scenario: str
    case: str
    box: str
    place: str  # as tables name it
    repeat: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.scenario}: {self.case}, {self.box}, {self.place}, {self.repeat + 1}"


def results_path(tasks: Path) -> Path:
    """Where the results of a list of tasks are."""
    return tasks.with_name(f"{tasks.name}.results")


def main() -> int:
    """Every task in turn; one that fails says why in its result and does not stop the others."""
    tasks_path = Path(sys.argv[1])
    tasks = [Task(**json.loads(line)) for line in tasks_path.read_text().splitlines()]
    link_lab.build()
    with results_path(tasks_path).open("w") as results:
        for number, task in enumerate(tasks, 1):
            sys.stderr.write(f"[{number}/{len(tasks)}] {task}\n")
            results.write(json.dumps(_result(task)) + "\n")
            results.flush()
    return 0


def _result(task: Task) -> dict[str, Any]:
    began = time.time()
    try:
        measured = SCENARIOS[task.scenario].measure(task.box, task.case, task.seconds, task.repeat + 1)
    except (AtollError, OSError) as error:
        return asdict(task) | {"time": began, "failed": str(error)}
    return asdict(task) | {"time": began, "figures": measured.figures, "curves": measured.curves}


if __name__ == "__main__":
    sys.exit(main())
