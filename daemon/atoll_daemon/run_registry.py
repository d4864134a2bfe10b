# SPDX-License-Identifier: Apache-2.0
"""The runs of one daemon: progress and result of each."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from atoll_core.errors import AtollError
from atoll_core.events.events import Live, StepBegun
from atoll_daemon.http.api_models import RunResponse
from atoll_daemon.http.http_errors import RequestError, error_json, internal_error
from atoll_daemon.task_runner import JsonObject

RUNS = "runs"
"""The default parent of run directories."""


@dataclass(slots=True)
class RunRecord:
    """One run. Times are ns since 1970; ``duration_s``: of the load; ``metrics``: whether they are recorded."""

    experiment: str
    started_ns: int
    duration_s: float = 0.0
    metrics: bool = True
    id: str = ""
    state: str = "running"
    ended_ns: int | None = None
    run_dir: str | None = None
    step: str | None = None
    live: JsonObject | None = None
    summary: JsonObject | None = None
    error: dict[str, Any] | None = None
    warnings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    task: asyncio.Task[JsonObject] | None = None
    has_id: asyncio.Event = field(default_factory=asyncio.Event)
    """Set as soon as the run has a directory, or has ended without one."""

    def update(self, event: StepBegun | Live) -> None:
        """Take the progress of the run."""
        if isinstance(event, StepBegun):
            self.step = event.step
        else:
            self.live = {key: part for key, part in event.to_json().items() if key != "type"}

    def progress(self) -> dict[str, Any]:
        """The current step and the elapsed time."""
        elapsed_s = self.live and self.live["elapsed_s"]
        return {
            "id": self.id,
            "step": self.step,
            "elapsed_s": elapsed_s,
            "duration_s": self.duration_s,
            "metrics": self.metrics,
        }

    def to_json(self) -> dict[str, Any]:
        """The record in the form of the API."""
        return {name: getattr(self, name) for name in RunResponse.model_fields}

    def set_end(self, task: asyncio.Task[JsonObject], now_ns: int) -> None:
        """Record the result of the task."""
        self.ended_ns = now_ns
        self.has_id.set()
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
    """All runs by their ids, which are made of the experiment and the name of the run directory."""

    def __init__(self) -> None:
        self._records: dict[str, RunRecord] = {}

    def add(self, record: RunRecord, run_dir: str, name: str) -> None:
        """Add a run as soon as it has a directory."""
        record.id, record.run_dir = f"{record.experiment}-{name}", run_dir
        self._records[record.id] = record
        record.has_id.set()

    def find(self, name: str) -> RunRecord:
        """The run with an id. Raises RequestError (404)."""
        if name not in self._records:
            raise RequestError(404, f"this daemon has no run {name!r}; GET /v1/runs lists its runs", exit_code=1)
        return self._records[name]

    @property
    def in_progress(self) -> RunRecord | None:
        """The run in progress, if there is one."""
        return next((record for record in self._records.values() if record.state == "running"), None)

    def to_json(self) -> list[dict[str, Any]]:
        """All records in the form of the API, latest first."""
        return [record.to_json() for record in reversed(self._records.values())]
