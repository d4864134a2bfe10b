# SPDX-License-Identifier: Apache-2.0
"""The last marks of a run: links' counters up to an instant at which no link holds a packet."""

import asyncio
import json
from pathlib import Path
from typing import Any

from atoll_analysis.run_directory import RunDir
from atoll_analysis.run_directory.directory import COUNTERS_FILE
from atoll_analysis.tables.box_counters import measurements
from atoll_core.description.loader import load_experiment
from atoll_core.events.event_bus import EventBus
from atoll_testbed.run.run_recorder import RunRecorder


def test_a_packet_that_enters_after_the_links_drained_is_counted_when_it_is_lost(project: Path, tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "geo", 0)
    recording = RunRecorder(run, *load_experiment(project / "examples/geo.yaml"), EventBus())
    recording.manifest.write({})
    contract = (project / "tests/data/contract/link.jsonl").read_text().splitlines()
    mark = next(said for line in contract if (said := json.loads(line)["message"]).get("type") == "mark")
    lost, drains = [1000, 88], 0

    async def marks() -> dict[str, dict[str, Any]]:
        held = len(lost) - 1
        way = {**mark["to_island"], "dropped_bytes": lost.pop(0), "held_packets": held}
        return {"sat": {**mark, "to_island": way}}

    async def drained() -> None:
        nonlocal drains
        drains += 1

    recording.record_marks("begin", {"sat": mark})
    asyncio.run(recording.record_end_marks(marks, drained))
    recording.close()
    lines = map(json.loads, (run.path / COUNTERS_FILE).read_text().splitlines())
    (measured,) = measurements(lines)
    assert drains == 1
    assert next(part.dropped_bytes for part in measured.parts if part.name == "to_island") == 1088
