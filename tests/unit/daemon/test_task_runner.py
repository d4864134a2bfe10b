# SPDX-License-Identifier: Apache-2.0
"""What those who watch a lab are told of a piece of work: that it begins, how it ends, and of a run what it came to."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from atoll_core.errors import LabError
from atoll_core.events.events import Counters, Live, Note, Progress, SwapEvent, SwitchConnection
from atoll_core.platforms import LabTarget
from atoll_daemon.event_log import EventLog
from atoll_daemon.lab_daemon import ApplyOptions, LabDaemon
from atoll_daemon.task_runner import TaskRunner
from atoll_testbed.box_connections import ConnectionPolicy


@pytest.mark.parametrize(
    ("result", "judged"),
    [
        (
            {"run_dir": "runs/geo/1", "summary": {"verdict": "invalid", "reasons": ["late"], "figures": 1}},
            {"verdict": "invalid", "reasons": ["late"], "caveats": []},
        ),
        ({"run_dir": "runs/geo/1", "summary": None}, {}),
        ({"changes": 3}, {}),
    ],
)
async def test_the_end_of_a_run_that_was_analysed_says_its_verdict(
    result: dict[str, Any], judged: dict[str, str]
) -> None:
    """Who watches a run with a lab of its own can ask nobody afterwards: the daemon goes at once."""
    events = EventLog(lambda: 7)

    async def work() -> dict[str, Any]:
        return result

    await TaskRunner(events).begin("run", "geo", work)
    answer = [
        {key: event[key] for key in event if key not in ("seq", "t_ns", "text", "severity")}
        for event in events.since(0)
    ]
    begin = {"type": "work", "what": "run", "about": "geo", "state": "begin"}
    assert answer == [begin, {**begin, "state": "end", **judged}]


async def test_an_apply_that_fails_with_its_testbed_says_why_that_failed() -> None:
    """Probes find no way through a box whose program has ended; the program's last words are the reason."""
    failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def apply(*_: Any, **__: Any) -> None:
        failed.set_result("program-relay ended unexpectedly: no such file (exit status 2)")
        raise LabError("w1 -> i1: no probe came through")

    daemon = LabDaemon(LabTarget(), for_run=False)
    testbed = SimpleNamespace(apply=apply, failed=failed, experiment=None, plan=None)
    daemon.require_lab = lambda: cast("Any", (testbed, None))
    with pytest.raises(LabError, match=r"^program-relay ended unexpectedly: no such file"):
        await daemon.apply(
            cast("Any", SimpleNamespace(experiment=object(), backend=None)),
            ApplyOptions(dry_run=False, at_once=True, connections=ConnectionPolicy()),
        )


def test_what_the_testbed_publishes_is_in_the_event_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Events with number and text, the time of a swap's as it has it; samples are kept by nobody."""
    daemon = LabDaemon(LabTarget(), for_run=False)
    for event in (
        Progress("namespaces"),
        SwitchConnection("sw-c", "down"),
        SwapEvent(7, "turned", {}),
        Note("sw-c lost its control channel"),
        Live(1.0, 60.0),
        Counters("sat", {"type": "counters", "t_ns": 5}),
    ):
        daemon.bus.publish(event)
    logged = daemon.events.since(0)
    assert [(event["seq"], event["type"], event["text"]) for event in logged] == [
        (1, "progress", "namespaces: creating the lab's namespaces"),
        (2, "switch", "switch sw-c is not connected"),
        (3, "swap", "swap: packets now take the new chain"),
        (4, "note", "sw-c lost its control channel"),
    ]
    assert logged[2]["t_ns"] == 7
    assert daemon.boxes == {"sat": {"box": "sat", "t_ns": 5}}
    assert capsys.readouterr().err == "daemon: sw-c lost its control channel\n"
