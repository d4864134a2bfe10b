# SPDX-License-Identifier: Apache-2.0
"""Links that open Grafana's dashboards where the points of a run lie: its time range, and the run chosen.

Grafana itself cannot look for a run's time: a dashboard opens on the last minutes, whichever run is chosen.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from atoll_analysis.run_directory import RunDir
from atoll_core.errors import RunDirError
from atoll_dashboards.influx.influx_load import ALIGNED_NS, Times, shift_ns
from atoll_dashboards.influx.influx_settings import require_url

GRAFANA_VARIABLE = "ATOLL_GRAFANA_URL"
"""Holds Grafana's address as a browser reaches it."""

OVERVIEW = "atoll-overview"
COMPARISON = "atoll-comparison"
"""Unique names (uid) of dashboards, by which addresses know them."""

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class RunInDatabase:
    """A run in a database: the value of its tag ``run``, and the time range of its points (ns since 1970)."""

    run: str
    begin_ns: int
    end_ns: int

    @classmethod
    def of(cls, run_dir: RunDir, times: Times) -> "RunInDatabase":
        """From its first event to its outcome, with the time stamps that ``times`` gives.

        Raises RunDirError if the directory has no experiment or no events, or cannot have these time stamps.
        """
        events = run_dir.events()
        experiment = run_dir.manifest().get("experiment")
        if not (events and experiment):
            raise RunDirError(f"{run_dir.path}: manifest.json has no experiment or start time")
        end = next((event for event in events if event["type"] == "outcome"), events[-1])
        offset_ns = shift_ns(run_dir, times)
        return cls(f"{experiment['name']}-{run_dir.name}", events[0]["t_ns"] + offset_ns, end["t_ns"] + offset_ns)


def grafana_address(environment: Mapping[str, str] | None = None) -> str:
    """Grafana's address without a slash at its end; empty if it is not set. Raises UsageError when it is no URL."""
    url = (os.environ if environment is None else environment).get(GRAFANA_VARIABLE, "")
    if url:
        require_url(url, GRAFANA_VARIABLE, "Grafana's", "http://127.0.0.1:3000")
    return url.rstrip("/")


def run_link(run: RunInDatabase) -> str:
    """*Overview* of a run, relative to Grafana's address; the other dashboards, linked there, keep range and run."""
    return _link(OVERVIEW, [run.run], run.begin_ns, run.end_ns)


def comparison_link(runs: Sequence[RunInDatabase]) -> str:
    """*Run comparison* of aligned runs, from the begin of their measurement to the end of the longest."""
    return _link(COMPARISON, [run.run for run in runs], ALIGNED_NS, max(run.end_ns for run in runs))


def recorded_link(run_dir: RunDir) -> str | None:
    """The link of a run whose points were sent as it lasted; None if its directory has no times."""
    with contextlib.suppress(RunDirError):
        return run_link(RunInDatabase.of(run_dir, Times.RECORDED))
    return None


def _link(uid: str, runs: Sequence[str], begin_ns: int, end_ns: int) -> str:
    """Grafana takes instants in ms; the last point is within the range."""
    time_range = [("from", str(begin_ns // _NS_PER_MS)), ("to", str(-(-end_ns // _NS_PER_MS)))]
    return f"/d/{uid}?{urlencode([*time_range, *(('var-run', run) for run in runs)])}"
