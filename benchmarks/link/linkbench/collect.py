# SPDX-License-Identifier: Apache-2.0
"""Make the measurements, here or in User-Mode Linux, and keep the median of each figure."""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from atoll_core.errors import LabError, MachineError
from atoll_emulation.mininet_lab.namespaces import namespaces_error, unshare_argv
from benchkit.program import part
from linkbench.scenarios import ENGINE, SCENARIOS, Scenario
from linkbench.worker import Task, results_path

HERE = "this kernel"
UML = "User-Mode Linux"
INSIDE_BOX = "netem+tbf"
DAY = "day"

_PROJECT = Path(__file__).resolve().parents[3]
_PACKAGES = f"{_PROJECT}/benchmarks/link:{_PROJECT}/benchmarks/common"
_PASSED_ON = ("LINK_PROBE", "RATTAN_LINK", "ATOLL_HOST")
_APART = ("unshare", "--mount", "--net", "--propagation", "private", "--")
_UML_BOOT_S = 120.0
_UML_SLOWER = 6.0  # times the duration of the measurements, as starting programs takes long

_DAY_ARGUMENTS = ("run", "--release", "--locked", "--quiet", "-p", "atoll-link-model", "--example", "day")
_DAY_SAID = re.compile(r"in ([\d.]+) s: (\d+) packets in, (\d+) dropped, (\d+) windows over the rate, drift (-?\d+) ns")


@dataclass(frozen=True, slots=True)
class Selection:
    """The measurements to make."""

    only: Sequence[str] = ()  # scenarios, or SCENARIO/CASE
    boxes: Sequence[str] = ()
    repeats: int = 5
    quick: bool = False

    def wants(self, scenario: str, case: str) -> bool:
        """Whether a case of a scenario is to be measured."""
        return not self.only or scenario in self.only or f"{scenario}/{case}" in self.only

    def wants_box(self, box: str) -> bool:
        """Whether a box is to be measured."""
        return not self.boxes or box in self.boxes


@dataclass(frozen=True, slots=True)
class Result:
    """A case of a scenario with one box: every figure of every repeat, and the median one's curves."""

    scenario: str
    case: str
    box: str
    place: str
    time: float  # of the last repeat, s since 1970
    seconds: float  # of each repeat
    figures: dict[str, list[float]]
    curves: dict[str, Any] = field(default_factory=dict[str, Any])
    failed: list[str] = field(default_factory=list[str])

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of the measurement."""
        return self.scenario, self.case, self.box, self.place

    def median(self, figure: str) -> float | None:
        """None when it was not measured."""
        values = self.figures.get(figure)
        return statistics.median(values) if values else None


def collect(selection: Selection, say: Callable[[str], None]) -> list[Result]:
    """Measure. Raises AtollError if nothing can be measured; a single failure is recorded in its result."""
    why = namespaces_error()
    if why is not None:
        raise MachineError(f"the benchmark needs namespaces, which cannot be made here ({why})")
    lines = _measured(list(_tasks_here(selection)), _in_namespaces)
    inside = list(_tasks_inside(selection))
    if inside:
        say(f"{len(inside)} measurements inside {UML}; its console is printed at the end")
        lines += _measured(inside, _in_uml)
    results = summaries(lines)
    if not selection.quick and selection.wants(DAY, DAY) and selection.wants_box(ENGINE):
        say("day: 24 h of simulated time")
        results.append(_day())
    return results


def _tasks_here(selection: Selection) -> Iterable[Task]:
    """Repeats outermost: whatever the machine does meanwhile is spread over all boxes."""
    for repeat in range(selection.repeats):
        for scenario in SCENARIOS.values():
            for case in scenario.quick_cases if selection.quick else scenario.cases:
                for box in scenario.boxes:
                    if box == "rattan" and "RATTAN_LINK" not in os.environ:
                        continue
                    if selection.wants(scenario.name, case) and selection.wants_box(box):
                        yield Task(scenario.name, case, box, HERE, repeat, _seconds(scenario, selection))


def _tasks_inside(selection: Selection) -> Iterable[Task]:
    if selection.quick or not selection.wants_box(INSIDE_BOX):
        return
    for repeat in range(selection.repeats):
        for scenario in SCENARIOS.values():
            for case in scenario.inside:
                if selection.wants(scenario.name, case):
                    yield Task(scenario.name, case, INSIDE_BOX, UML, repeat, _seconds(scenario, selection))


def _seconds(scenario: Scenario, selection: Selection) -> float:
    return scenario.quick_seconds if selection.quick else scenario.seconds


def _measured(tasks: Sequence[Task], run: Callable[[Path, float], None]) -> list[dict[str, Any]]:
    """The worker's results; tasks that it did not reach have none."""
    if not tasks:
        return []
    with tempfile.TemporaryDirectory(prefix="link-bench-") as name:
        path = Path(name) / "tasks"
        path.write_text("".join(json.dumps(asdict(task)) + "\n" for task in tasks))
        run(path, sum(task.seconds for task in tasks))
        results = results_path(path)
        return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _in_namespaces(tasks: Path, _seconds: float) -> None:
    environment = os.environ | {"PYTHONPATH": _PACKAGES}
    done = subprocess.run([*unshare_argv(), *_worker(tasks)], env=environment, check=False)
    if done.returncode != 0:
        raise LabError(f"the measurements ended early (exit code {done.returncode}); the worker's message is above")


def _in_uml(tasks: Path, seconds: float) -> None:
    """In a kernel that has netem. It starts where the project is, and sees the tasks' directory as /out."""
    passed = [f"{name}={os.environ[name]}" for name in _PASSED_ON if name in os.environ]
    limit_s = _UML_BOOT_S + _UML_SLOWER * seconds
    argv = [
        *(sys.executable, "-m", "atoll_emulation.uml", "--limit", f"{limit_s:g}", "--output", str(tasks.parent)),
        *("env", f"PYTHONPATH={_PACKAGES}", *passed, *_APART),
        *_worker(Path("/out") / tasks.name),
    ]
    done = subprocess.run(argv, cwd=_PROJECT, capture_output=True, text=True, check=False)
    for line in (done.stdout + done.stderr).splitlines():
        sys.stderr.write(f"  {line}\n")


def _worker(tasks: Path) -> list[str]:
    return part("linkbench.worker", str(tasks))


def summaries(lines: Iterable[dict[str, Any]]) -> list[Result]:
    """The repeats of each measurement together."""
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["scenario"], line["case"], line["box"], line["place"]), []).append(line)
    results: list[Result] = []
    for key, repeats in groups.items():
        good = [repeat for repeat in repeats if "figures" in repeat]
        names = dict.fromkeys(name for repeat in good for name in repeat["figures"])
        figures = {name: [repeat["figures"][name] for repeat in good if name in repeat["figures"]] for name in names}
        first = next(iter(names), None)
        by_first = sorted(good, key=lambda repeat: repeat["figures"][first])
        curves: dict[str, Any] = by_first[(len(by_first) - 1) // 2]["curves"] if by_first else {}
        failed = [repeat["failed"] for repeat in repeats if "failed" in repeat]
        last = repeats[-1]
        results.append(Result(*key, last["time"], last["seconds"], figures, curves, failed))
    return results


def _day() -> Result:
    """24 hours through the model: `cargo run --release -p atoll-link-model --example day`."""
    began = time.time()
    cargo = [str(_PROJECT / "tools" / "cargo"), *_DAY_ARGUMENTS]
    done = subprocess.run(cargo, capture_output=True, text=True, check=False, cwd=_PROJECT)
    match = _DAY_SAID.search(done.stdout)
    if match is None:
        return Result(DAY, DAY, ENGINE, HERE, began, 0.0, {}, failed=[done.stderr.strip() or done.stdout.strip()])
    names = ("wall_s", "packets", "dropped_packets", "scheduled_windows_over_rate", "drift_ns")
    figures = {name: [float(text)] for name, text in zip(names, match.groups(), strict=True)}
    return Result(DAY, DAY, ENGINE, HERE, began, 0.0, figures)
