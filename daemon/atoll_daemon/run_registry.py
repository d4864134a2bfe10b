# SPDX-License-Identifier: Apache-2.0
"""The runs of one daemon: what each is doing, and how it ended."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from atoll_core.errors import AtollError
from atoll_daemon.http.http_errors import RequestError, error_json, internal_error
from atoll_daemon.task_runner import Line

RUNS = "runs"
"""Where run directories go if nobody says otherwise."""


@dataclass(slots=True)
class RunRecord:
    """One run. Instants are ns since 1970, ``duration_s`` is its load's; ``metrics``: wanted; ``task`` is its work."""

    experiment: str
    started_ns: int
    duration_s: float = 0.0
    metrics: bool = True
    id: str = ""
    state: str = "running"
    ended_ns: int | None = None
    run_dir: str | None = None
    step: str | None = None
    live: Line | None = None
    summary: Line | None = None
    error: dict[str, Any] | None = None
    warnings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    task: asyncio.Task[Line] | None = None
    named: asyncio.Event = field(default_factory=asyncio.Event)
    """Set as soon as the run has a directory, or has ended without."""

    def take(self, line: Line) -> None:
        """Learn from what the run says of itself."""
        match line["type"]:
            case "step":
                self.step = line["step"]
            case "live":
                self.live = {key: part for key, part in line.items() if key != "type"}
            case _:
                pass

    def progress(self) -> dict[str, Any]:
        """How far it is."""
        elapsed_s = self.live and self.live["elapsed_s"]
        return {
            "id": self.id,
            "step": self.step,
            "elapsed_s": elapsed_s,
            "duration_s": self.duration_s,
            "metrics": self.metrics,
        }

    def told(self) -> dict[str, Any]:
        """The record as answers have it."""
        return {
            "id": self.id,
            "experiment": self.experiment,
            "state": self.state,
            "started_ns": self.started_ns,
            "ended_ns": self.ended_ns,
            "run_dir": self.run_dir,
            "step": self.step,
            "live": self.live,
            "summary": self.summary,
            "error": self.error,
            "warnings": self.warnings,
        }

    def over(self, task: asyncio.Task[Line], now_ns: int) -> None:
        """Note how the task ended."""
        self.ended_ns = now_ns
        self.named.set()
        if task.cancelled():
            self.state = "cancelled"
            return
        match task.exception():
            case None:
                self.state, self.summary = "completed", task.result()["summary"]
            case AtollError() as error:
                self.state, self.error = "failed", error_json(error)
            case error:
                self.state, self.error = "failed", error_json(internal_error(error))


class Runs:
    """All of them, by what they are called: experiment and name of the run directory."""

    def __init__(self) -> None:
        self._records: dict[str, RunRecord] = {}

    def add(self, record: RunRecord, run_dir: str, name: str) -> None:
        """Keep a run from the moment it has a directory."""
        record.id, record.run_dir = f"{record.experiment}-{name}", run_dir
        self._records[record.id] = record
        record.named.set()

    def find(self, name: str) -> RunRecord:
        """The run of that id. Raises RequestError (404)."""
        if name not in self._records:
            msg = f"this daemon has made no run {name!r}; GET /v1/runs has its runs"
            raise RequestError(404, msg, exit_code=1)
        return self._records[name]

    @property
    def in_progress(self) -> RunRecord | None:
        """The run that is being made, if there is one."""
        return next((record for record in self._records.values() if record.state == "running"), None)

    def told(self) -> list[dict[str, Any]]:
        """All records, the last one first."""
        return [record.told() for record in reversed(self._records.values())]
