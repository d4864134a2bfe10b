# SPDX-License-Identifier: Apache-2.0
"""What a run's live lines say of its link while it is measured."""

from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_core.description.loader import load_experiment
from atoll_core.errors import LabError, RunError
from atoll_core.events.event_bus import EventBus
from atoll_core.events.events import Live, Note
from atoll_testbed.run.run_recorder import RunRecorder

BEGIN_NS = 1_800_000_000_000_000_000
TENTH_NS = 100_000_000
FULL, MEASURED = 99_980, 36_000  # bytes that waited: in the test before, under the load


@pytest.fixture
def events() -> EventBus:
    return EventBus()


@pytest.fixture
def answer(project: Path, tmp_path: Path, events: EventBus) -> tuple[RunRecorder, list[dict[str, Any]]]:
    """A run's recording, and the lines that it tells."""
    network, experiment = load_experiment(project / "examples/geo.yaml")
    lines: list[dict[str, Any]] = []
    events.subscribe(lambda event: lines.append(event.to_json()), Live)
    return RunRecorder(RunDir.create(tmp_path, "geo", BEGIN_NS), network, experiment, events), lines


def count(recording: RunRecorder, tenths: int, most: int, dropped: int, out_bytes: int = 0) -> None:
    """A link's line so many tenths of a second after the begin of the measurement."""
    island = {"queue_bytes": 0, "queue_max_bytes": most, "dropped_packets": dropped, "out_bytes": out_bytes}
    recording.record_box_line("sat", {"type": "counters", "t_ns": BEGIN_NS + tenths * TENTH_NS, "to_island": island})


def test_the_first_live_line_knows_nothing_of_the_configuration_test(
    answer: tuple[RunRecorder, list[dict[str, Any]]],
) -> None:
    """The test fills the queue and overflows it; neither is the measurement's, from its very first line on."""
    recording, lines = answer
    count(recording, -40, FULL, dropped=12)
    count(recording, -1, 0, dropped=12)
    recording.begin_measurement()
    count(recording, 1, MEASURED, dropped=15)
    recording.publish_live(BEGIN_NS, BEGIN_NS + 5 * TENTH_NS)
    count(recording, 6, 0, dropped=15)
    recording.publish_live(BEGIN_NS, BEGIN_NS + 10 * TENTH_NS)
    recording.close()
    assert [(line["queue_max_bytes"], line["dropped_packets"]) for line in lines] == [(MEASURED, 3), (0, 3)]


def test_a_live_line_without_news_of_the_link_says_what_the_one_before_said(
    answer: tuple[RunRecorder, list[dict[str, Any]]],
) -> None:
    """In virtual time lines come by the machine's clock, and between two of them a link may not have counted."""
    recording, lines = answer
    recording.begin_measurement()
    for tenths in (1, 3):
        count(recording, tenths, MEASURED, dropped=tenths, out_bytes=100_000 * tenths)
        recording.publish_live(BEGIN_NS, BEGIN_NS + tenths * TENTH_NS)
    recording.publish_live(BEGIN_NS, BEGIN_NS + 4 * TENTH_NS)
    recording.close()
    _, news, later = lines
    assert news["rate_mbit_s"] == pytest.approx(8.0)
    assert later == {**news, "elapsed_s": 0.4}


def test_a_note_that_cannot_be_recorded_ends_the_recording_with_its_error(
    answer: tuple[RunRecorder, list[dict[str, Any]]], events: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, _ = answer

    def full(*_: object, **__: object) -> None:
        raise RunError("disk full")

    monkeypatch.setattr(recording, "append_event", full)
    with pytest.raises(RunError, match="disk full"), recording.recording():
        assert events.publish(Note("sw-1: table full"))

    def refused() -> None:
        with recording.recording():
            events.publish(Note("sw-1: table full"))
            raise LabError("refused")

    with pytest.raises(LabError, match="refused"):
        refused()
    assert events.publish(Note("later")) == ()
