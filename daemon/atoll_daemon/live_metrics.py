# SPDX-License-Identifier: Apache-2.0
"""Metric points for the live page, once a second: those of a run, or the boxes' counters while there is no run.

Nothing is stored here, and no points are made while there is no subscriber for samples.
"""

import asyncio
import contextlib
from collections.abc import Generator, Iterable
from typing import Any

from atoll_core.events.events import Counters
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_daemon.event_log import EventLog
from atoll_testbed.metrics.metric_points import box_kinds, box_points, class_names, link_config_points
from atoll_testbed.testbed import Testbed

PERIOD_S = 1.0


class LivePoints:
    """Collects points and sends them as ``points`` samples."""

    def __init__(self, events: EventLog, period_s: float = PERIOD_S) -> None:
        self._events = events
        self._period_s = period_s
        self._run: str | None = None
        self._metered = False
        self._gathered: list[list[Any]] = []
        self._due: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def of_run(self, run: str, *, metered: bool = True) -> Generator[None]:
        """Mark points as those of a run while the block lasts.

        ``metered``: the run passes the boxes' counters itself; otherwise they are its only points.
        """
        self._hand_on()
        self._run, self._metered = run, metered
        try:
            yield
        finally:
            self._hand_on()
            self._run, self._metered = None, False

    def take(self, points: Iterable[MetricPoint]) -> None:
        """Take points, which are sent within a second."""
        if not self._events.sampled:
            return
        self._gathered += [fields for point in points if (fields := point.to_json()) is not None]
        if self._gathered and self._due is None:
            self._due = asyncio.get_running_loop().call_later(self._period_s, self._hand_on)

    def take_counters(self, testbed: Testbed, event: Counters, now_ns: int) -> None:
        """Take the counters of a link or delay box, unless a run passes them itself.

        The first counters of a second are preceded by the configuration of the links. ``now_ns``: CLOCK_REALTIME.
        """
        if self._metered or not self._events.sampled:
            return
        if self._due is None and testbed.experiment is not None:
            self.take(link_config_points(testbed.experiment.links, now_ns))
        self.take(box_points(event.box, event.line, class_names(testbed.network), box_kinds(testbed.network)))

    def _hand_on(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            latest_ns = max(point[3] for point in gathered)
            self._events.sample("points", t_ns=latest_ns, run=self._run, points=gathered)
