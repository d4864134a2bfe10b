# SPDX-License-Identifier: Apache-2.0
"""The analysis understands what the jobs say, by the examples their own tests read."""

import json
from pathlib import Path

import pytest

from atoll_analysis.tables.box_counters import Part, measurements
from atoll_analysis.tables.job_logs import (
    box_table,
    capture_counts,
    channel_service_figures,
    ping_table,
    transfer_reports,
    unsent_and_unstamped_pings,
)


def said_by(project: Path, topic: str, process: str) -> list[str]:
    """The example lines of one process, as they stand in its log."""
    lines = (project / "tests" / "data" / "contract" / f"{topic}.jsonl").read_text().splitlines()
    examples = [json.loads(line) for line in lines]
    return [json.dumps(example["message"]) for example in examples if example["from"] == process]


def log(folder: Path, name: str, lines: list[str]) -> Path:
    (folder / name).write_text("".join(line + "\n" for line in lines))
    return folder


def test_every_ping_is_read_as_answered_or_lost(tmp_path: Path, project: Path) -> None:
    lines = said_by(project, "ping", "ping")
    pings = ping_table(log(tmp_path, "ping.out", lines), tmp_path).collect()
    said = [json.loads(line) for line in lines]
    assert set(pings.filter(pings["rtt_ns"].is_not_null())["seq"]) == {s["seq"] for s in said if s["type"] == "reply"}
    assert set(pings.filter(pings["rtt_ns"].is_null())["seq"]) == {s["seq"] for s in said if s["type"] == "lost"}
    assert pings["sent_ns"].null_count() == 0
    assert len(pings) >= 2


def test_what_the_receiver_says_of_a_transfer_is_found(tmp_path: Path, project: Path) -> None:
    done = [line for line in said_by(project, "transfer", "receive") if json.loads(line)["type"] == "done"]
    for line in done:
        (found,) = transfer_reports(
            log(tmp_path, "transfer-receive.out", ['{"type":"ready"}', line]), "transfer-receive"
        )
        assert found is not None
        assert found["complete"] == (found["seconds"] is not None)


def test_the_least_fair_client_and_the_longest_wait_stand_for_all(tmp_path: Path, project: Path) -> None:
    lines = said_by(project, "load", "load")
    log(tmp_path, "load-i1.out", lines)
    done = next(said for said in map(json.loads, lines) if said["type"] == "done")
    assert channel_service_figures(tmp_path) == (done["fairness"], done["longest_wait_ns"], 1)
    log(tmp_path, "load-i2.out", ['{"type":"done","fairness":0.25,"longest_wait_ns":7000000000}'])
    assert channel_service_figures(tmp_path) == (0.25, 7_000_000_000, 1)
    log(tmp_path, "load-i2.out", ['{"type":"done","fairness":null,"longest_wait_ns":5}'])
    assert channel_service_figures(tmp_path) == (done["fairness"], done["longest_wait_ns"], 1)


def test_an_index_that_could_only_be_1_is_no_figure(tmp_path: Path) -> None:
    """That of clients that measured no waits: turns served by turns ready, which were counted from one list."""
    log(tmp_path, "load-i1.out", ['{"type":"done","fairness":1.0,"channels_served":3,"longest_turn_ns":2500000}'])
    assert channel_service_figures(tmp_path) == (None, None, None)


def test_pings_account_for_those_refused_and_without_stamps(tmp_path: Path, project: Path) -> None:
    lines = said_by(project, "ping", "ping")
    assert unsent_and_unstamped_pings(log(tmp_path, "ping.out", lines[:-1])) == (1, 0)
    targets = {"i1": {"sent": 5, "unsent": 2, "unstamped": 3}, "i2": {"sent": 5, "unsent": 1, "unstamped": 0}}
    assert unsent_and_unstamped_pings(
        log(tmp_path, "ping.out", [json.dumps({"type": "done", "targets": targets})])
    ) == (3, 3)
    older = ['{"type":"done","targets":{"i1":{"sent":5,"received":5}}}']
    assert unsent_and_unstamped_pings(log(tmp_path, "ping.out", older)) == (None, None)


def test_a_capture_is_counted_by_its_last_words(tmp_path: Path, project: Path) -> None:
    lines = said_by(project, "capture", "capture")
    log(tmp_path, "capture-world.out", lines)
    assert capture_counts(tmp_path, "world") == (20_000, 0, 3)
    killed = ['{"type":"counters","captured_packets":7,"dropped_packets":2}', '{"type":"counters","captured_pac']
    log(tmp_path, "capture-world.out", [lines[0], *killed])
    assert capture_counts(tmp_path, "world") == (7, 2, None)


def test_jobs_that_said_nothing_have_no_figures(tmp_path: Path) -> None:
    assert capture_counts(tmp_path, "world") == (None, None, None)
    assert channel_service_figures(tmp_path) == (None, None, None)
    assert unsent_and_unstamped_pings(tmp_path) == (None, None)
    assert transfer_reports(tmp_path, "transfer-receive") == []
    assert ping_table(tmp_path, tmp_path).collect().is_empty()


@pytest.mark.parametrize(("box", "parts"), [("link", ["to_island", "to_world"]), ("delay", ["101", "102"])])
def test_a_box_is_read_as_it_speaks(tmp_path: Path, project: Path, box: str, parts: list[str]) -> None:
    said = [json.loads(line) for line in said_by(project, box, box)]
    (mark,) = (line for line in said if line["type"] == "mark")
    (measured,) = measurements([{**mark, "box": box, "mark": name} for name in ("begin", "end")])
    assert [part.name for part in measured.parts] == parts
    figures = mark if box == "link" else mark["classes"]
    for part in measured.parts:
        for name in set(Part.__dataclass_fields__) & set(figures[part.name]) - {"name", "lateness_histogram"}:
            assert getattr(part, name) == figures[part.name][name], name
        assert [list(bucket) for bucket in part.lateness_histogram] == figures[part.name]["lateness_histogram"]
    assert measured.unknown_vlan_packets == mark.get("unknown_vlan_packets", 0)
    lines = [json.dumps({**line, "box": box}) for line in said]
    counters = box_table(log(tmp_path, "link.jsonl", lines) / "link.jsonl", tmp_path).collect()
    assert counters["part"].to_list() == parts
    assert counters["in_packets"].null_count() == 0


def test_a_queue_of_low_priority_is_read_from_counters_and_marks(tmp_path: Path, project: Path) -> None:
    lines = said_by(project, "link-low-priority", "link")
    counters = box_table(log(tmp_path, "link.jsonl", lines) / "link.jsonl", tmp_path).collect()
    to_island = counters.filter(counters["part"] == "to_island").row(0, named=True)
    assert to_island["low_priority_queue_bytes"] == 16_800
    marks = [{**said, "box": "sat"} for said in map(json.loads, lines) if said["type"] == "mark"]
    (found,) = measurements([{**mark, "mark": name} for mark in marks for name in ("begin", "end")])
    towards = {part.name: part for part in found.parts}
    low = towards["to_island"].low_priority
    assert low is not None
    assert (low["in_packets"], low["sent_packets"], low["queue_max_bytes"]) == (60, 48, 16_800)
    assert low["sojourn"]["mean_ms"] == 90
    assert towards["to_world"].low_priority is None
