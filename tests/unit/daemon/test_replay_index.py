# SPDX-License-Identifier: Apache-2.0
"""Runs watched again: which are found, what is told of each, whatever has become of their directories."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.run_directory.directory import ABANDONED_S
from atoll_analysis.run_directory.metrics_spool import SPOOL
from atoll_core.errors import RunDirError
from atoll_core.events.events import with_text
from atoll_daemon.http.http_errors import RequestError
from atoll_daemon.replays.replay_index import MOST_LISTED, Replay, Replays
from tests.support.watched_run import SECOND_NS, WatchedRun


def messages(replay: Replay, from_ns: int = 0, to_ns: int = 2**63) -> list[dict[str, Any]]:
    tail = replay.tail()
    assert tail is not None
    answer = [replay.points_sample(frame, from_ns, to_ns) for frame in tail.frames()]
    tail.close()
    return [message for message in answer if message is not None]


def test_runs_are_listed_the_latest_first(tmp_path: Path) -> None:
    """Whatever their experiments are called; what they came to stands there once they are analysed."""
    early, late = WatchedRun(tmp_path, "meo"), WatchedRun(tmp_path, "geo", later_s=60)
    early.end()
    early.dir.write_summary({"verdict": "invalid", "reasons": ["capture island is missing"]})
    assert Replays(tmp_path).summaries() == [
        {
            "id": late.id,
            "experiment": "geo",
            "place": "mininet",
            "began_t_ns": late.began_ns,
            "duration_s": 60.0,
            "verdict": None,
            "reasons": [],
            "caveats": [],
            "outcome": "running",
            "finished": False,
        },
        {
            "id": early.id,
            "experiment": "meo",
            "place": "mininet",
            "began_t_ns": early.began_ns,
            "duration_s": 60.0,
            "verdict": "invalid",
            "reasons": ["capture island is missing"],
            "caveats": [],
            "outcome": "completed",
            "finished": True,
        },
    ]


def test_what_changes_in_a_directory_is_seen_by_the_next_look(tmp_path: Path) -> None:
    replays = Replays(tmp_path)
    assert replays.summaries() == []
    run = WatchedRun(tmp_path)
    assert [each["finished"] for each in replays.summaries()] == [False]
    run.end("cancelled at step measure")
    assert [each["finished"] for each in replays.summaries()] == [True]


def test_a_run_that_was_killed_is_over_although_it_says_that_it_is_going_on(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    run.second(0)
    replay = Replays(tmp_path).find(run.id)
    assert replay.is_growing()
    run.age(ABANDONED_S + 1)
    assert not replay.is_growing()
    run.second(1)
    assert replay.is_growing()


def test_one_damaged_directory_hides_no_other(tmp_path: Path) -> None:
    """No JSON, a newer format, a run that does not say what it is to be (yet), a file in place of a directory."""
    good = WatchedRun(tmp_path)
    nothing = ["{", '{"format": 99}', "[]", '{"format": 2}', "", '{"format": 2, "experiment": [1]}']
    nothing += [
        '{"format": 2, "experiment": {"name": "geo"}}',
        '{"format": 2, "experiment": {"name": 1, "duration": ""}}',
    ]
    for number, manifest in enumerate(nothing, start=12):
        path = tmp_path / "geo" / f"20261121T1552{number}Z-1"
        path.mkdir()
        (path / "manifest.json").write_text(manifest)
    (tmp_path / "notes").write_text("of no run")
    replays = Replays(tmp_path)
    assert [each["id"] for each in replays.summaries()] == [good.id]
    assert replays.find(good.id).summary.id == good.id
    with pytest.raises(RunDirError, match="has no complete run request"):
        assert Replay(tmp_path / "geo" / "20261121T155215Z-1").summary


def test_a_run_whose_request_or_events_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    replay = Replay(run.dir.path)
    run.dir.append_event("change", 5, change=7, state="end")
    with pytest.raises(RunDirError, match=r"events\.jsonl: an event is a change that the experiment does not have; "):
        replay.details()
    run.dir.update_manifest({"network": {}})
    with pytest.raises(RunDirError, match="has no complete run request"):
        replay.details()


def test_the_verdict_of_a_run_is_its_last_event_with_its_text(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    run.second(0)
    run.end()
    replay = Replay(run.dir.path)
    before = replay.details()["events"]
    assert "verdict" not in {event["type"] for event in before}
    run.dir.write_summary({"verdict": "valid with caveats", "reasons": [], "caveats": ["a", "b"]})
    *events, last = replay.details()["events"]
    assert events == before
    assert (last["text"], last["severity"]) == ("verdict: valid with caveats: a; b", "info")
    assert (last["seq"], last["t_ns"]) == (len(before) + 1, replay.details()["to_ns"])
    run.dir.write_summary({"verdict": "invalid", "reasons": ["c"], "caveats": ["a"]})
    *_, last = replay.details()["events"]
    assert (last["text"], last["severity"]) == ("verdict: invalid: c", "warning")


def test_of_very_many_runs_the_latest_are_listed_and_all_are_found(tmp_path: Path) -> None:
    oldest = WatchedRun(tmp_path)
    manifest = (oldest.dir.path / "manifest.json").read_text()
    for number in range(MOST_LISTED + 5):
        path = tmp_path / "geo" / f"20261122T{number // 60:02d}{number % 60:02d}00Z-1"
        path.mkdir()
        (path / "manifest.json").write_text(manifest.replace(oldest.dir.name, path.name))
    replays = Replays(tmp_path)
    listed = [each["id"] for each in replays.summaries()]
    assert len(listed) == MOST_LISTED
    assert oldest.id not in listed
    assert replays.find(oldest.id).summary.began_t_ns == oldest.began_ns


def test_runs_from_elsewhere_are_there_too_and_a_renamed_one_keeps_its_name(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path / "elsewhere")
    moved = run.dir.path.rename(tmp_path / "the good one")
    replays = Replays(tmp_path / "runs")
    replays.add(moved)
    assert [each["id"] for each in replays.summaries()] == [run.id]
    assert replays.find(run.id).summary.began_t_ns == run.began_ns


@pytest.mark.parametrize("name", ["geo-20261121T155208Z-2", "", "..", "../geo", "/etc/passwd", "geo"])
def test_there_are_no_others(tmp_path: Path, name: str) -> None:
    WatchedRun(tmp_path)
    with pytest.raises(RequestError, match="there is no run") as refused:
        Replays(tmp_path).find(name)
    assert refused.value.status == 404


def test_points_come_by_the_second_as_they_were_handed_to_those_who_watched(tmp_path: Path) -> None:
    """Without the tags that all have."""
    run = WatchedRun(tmp_path)
    for number in range(3):
        run.second(number)
    run.end()
    answer = messages(Replay(run.dir.path))
    assert [(message["type"], message["run"], len(message["points"])) for message in answer] == [
        ("points", run.id, 3)
    ] * 3
    assert [message["t_ns"] for message in answer] == [run.began_ns + n * SECOND_NS + 200_000_000 for n in range(3)]
    sat = {"box": "sat", "direction": "to_island"}
    assert answer[1]["points"][0] == ["link", sat, {"in_packets": 10}, run.began_ns + SECOND_NS]
    json.dumps(answer, allow_nan=False)


def test_points_are_chosen_by_their_instants(tmp_path: Path) -> None:
    """From the first on, up to before the last; seconds without any are left out."""
    run = WatchedRun(tmp_path)
    for number in range(4):
        run.second(number)
    run.end()
    begin_ns = run.began_ns + SECOND_NS + 100_000_000
    answer = messages(Replay(run.dir.path), begin_ns, run.began_ns + 2 * SECOND_NS + 100_000_000)
    assert [[point[2]["in_packets"] for point in message["points"]] for message in answer] == [[11, 12], [20]]


def test_a_spool_that_was_cut_by_a_kill_is_told_up_to_there(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    run.second(0)
    run.second(1)
    spool = run.dir.path / SPOOL
    spool.write_bytes(spool.read_bytes()[:-5])
    assert len(messages(Replay(run.dir.path))) == 1


def test_points_of_some_measurements_alone_can_be_had(tmp_path: Path) -> None:
    """A name that begins like another one is not meant with it."""
    run = WatchedRun(tmp_path)
    run.second(0)
    run.event("note", 0.5, message="link of a chain")
    run.end()
    replay = Replay(run.dir.path)
    tail = replay.tail()
    assert tail is not None
    frames = list(tail.frames())
    tail.close()

    def named(*measurements: str) -> set[str]:
        answer = [replay.points_sample(frame, 0, 2**63, frozenset(measurements)) for frame in frames]
        return {point[0] for message in answer if message is not None for point in message["points"]}

    assert named() == {"link", "event"}
    assert named("link") == {"link"}
    assert named("event", "ping") == {"event"}
    assert named("lin") == set()


def test_a_damaged_spool_is_told_as_such(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    replay = Replay(run.dir.path)
    with pytest.raises(RunDirError, match=r"metrics\.lp\.zst: damaged"):
        replay.points_sample(b"link,box=sat nothing 17\n", 0, 2**63)
    with pytest.raises(RunDirError, match=r"metrics\.lp\.zst: damaged"):
        replay.points_sample(b"\x00\xff\n", 0, 2**63)


def test_events_are_those_that_the_daemon_tells(tmp_path: Path) -> None:
    """Begins of steps, what was applied and what then stands, latencies found; not each check, no ends of steps."""
    run = WatchedRun(tmp_path)
    run.event("step", 0, step="apply", state="begin")
    run.event("applied", 1, changes=85)
    run.event("step", 1.5, step="apply", state="end")
    run.event("check", 2, src="w1", dst="i1")
    run.event("terrestrial", 2, server="w1", configured_ns=5, measured_ns=6)
    run.event("note", 3, message="sw-c lost its control channel")
    run.event("step", 4, step="measure", state="failed", message="the disk is full")
    run.event("window", 5, start_ns=run.began_ns, end_ns=run.began_ns + 5 * SECOND_NS)
    whole = Replay(run.dir.path).details()
    assert all(event == with_text(event) and event["text"] for event in whole["events"])
    answer = [{key: part for key, part in each.items() if key not in ("text", "severity")} for each in whole["events"]]
    assert [{**event, "t_ns": (event["t_ns"] - run.began_ns) / SECOND_NS} for event in answer] == [
        {"type": "step", "t_ns": 0, "seq": 1, "step": "apply"},
        {
            "type": "applied",
            "t_ns": 1,
            "seq": 2,
            "experiment": "geo",
            "chain": ["tap-w", "sat", "tap-i"],
            "changes": 85,
        },
        {"type": "terrestrial", "t_ns": 2, "seq": 3, "server": "w1", "configured_ns": 5, "measured_ns": 6},
        {"type": "note", "t_ns": 3, "seq": 4, "message": "sw-c lost its control channel"},
        {"type": "step", "t_ns": 4, "seq": 5, "step": "measure", "state": "failed", "message": "the disk is full"},
    ]
    assert (whole["from_ns"], whole["to_ns"]) == (run.began_ns, run.began_ns + 5 * SECOND_NS)
    assert whole["window"] == {"start_ns": run.began_ns, "end_ns": run.began_ns + 5 * SECOND_NS}


def test_pictures_are_of_what_stood_when(tmp_path: Path) -> None:
    """A change that failed changes nothing: its version never stood."""
    run = WatchedRun(tmp_path, "switching")
    run.event("step", 0, step="apply", state="begin")
    for number in (1, 2):
        run.event("change", 12 * number, change=number, state="begin", what=[])
        run.event("change", 12 * number + 1, change=number, state="end", drain_ns=0)
    run.event("change", 36, change=3, state="failed", message="a probe was lost")
    whole = Replay(run.dir.path).details()
    assert whole["picture"] == whole["pictures"][0]["picture"]
    stood = [
        (
            (each["from_ns"] - run.began_ns) // SECOND_NS,
            [hop["name"] for hop in each["picture"]["chains"][0]["hops"]],
            each["picture"]["latencies"]["w1"]["rtt_ns"] / 1e6,
        )
        for each in whole["pictures"]
    ]
    coded = ["tap-w", "coder-w", "sat", "coder-i", "tap-i"]
    assert stood == [(0, ["tap-w", "sat", "tap-i"], 5), (13, coded, 5), (25, coded, 200)]
    applied = [event for event in whole["events"] if event["type"] == "applied"]
    assert [event["chain"] for event in applied] == [coded, coded]


def test_a_run_without_events_yet_can_be_looked_at(tmp_path: Path) -> None:
    """In virtual time it takes the kernel a moment to begin."""
    run = WatchedRun(tmp_path, place="virtual")
    (run.dir.path / SPOOL).unlink()
    replay = Replay(run.dir.path)
    whole = replay.details()
    assert (whole["events"], whole["window"], whole["from_ns"], whole["place"]) == ([], None, run.began_ns, "virtual")
    assert replay.tail() is None


def test_a_run_without_metrics_has_the_points_of_its_counters_and_events(tmp_path: Path) -> None:
    """As its spool would have them, also while it is being written; half a line is read when it is whole."""
    metered, run = WatchedRun(tmp_path / "a"), WatchedRun(tmp_path / "b", metrics=False)
    replay = Replay(run.dir.path)
    assert replay.tail() is None, "nothing has happened yet"
    for each in (metered, run):
        each.second(0)
        each.event("step", 0.5, step="measure", state="begin")
        each.event("check", 0.5, src="w1", dst="i1")
        each.end()
    points = [point for message in messages(replay) for point in message["points"]]
    spooled = [point for message in messages(Replay(metered.dir.path)) for point in message["points"]]
    assert sorted(points, key=str) == sorted(spooled, key=str)
    assert not replay.details()["metrics"]
    counted = run.dir.path / "link.jsonl"
    cut, whole = counted.read_bytes()[:-9], counted.read_bytes()
    counted.write_bytes(cut)
    tail = replay.tail()
    assert tail is not None
    assert b"".join(tail.frames()).count(b"link,") == 2
    counted.write_bytes(whole)
    assert b"".join(tail.frames()).count(b"link,") == 1
    tail.close()


def test_lines_of_which_no_points_are_made_end_no_replay(tmp_path: Path) -> None:
    """A full laboratory's test writes more checks at once than are read at a time, which are no points."""
    run = WatchedRun(tmp_path, metrics=False)
    run.event("step", 0, step="check", state="begin")
    run.second(0)
    replay = Replay(run.dir.path)
    tail = replay.tail()
    assert tail is not None
    answer = [replay.points_sample(frame, 0, 2**63) for frame in tail.frames()]
    assert [message and message["points"][0][0] for message in answer] == ["event", "link"], "what happened comes first"
    run.event("check", 0.5, src="w1", dst="i1")
    assert list(tail.frames()) == []
    run.event("step", 0.6, step="check", state="failed", message="off")
    assert [replay.points_sample(frame, 0, 2**63) is not None for frame in tail.frames()] == [True]
    tail.close()


@pytest.mark.parametrize(
    "line", [b"{}", b'{"box":"sat","type":"counters"}', b'{"type":"counters","t_ns":1}', b"nonsense"]
)
def test_damaged_counters_are_told_as_such(tmp_path: Path, line: bytes) -> None:
    run = WatchedRun(tmp_path, metrics=False)
    run.event("step", 0, step="apply", state="begin")
    (run.dir.path / "link.jsonl").write_bytes(line + b"\n")
    with pytest.raises(RunDirError, match="damaged"):
        messages(Replay(run.dir.path))


@pytest.mark.parametrize("outcome", ["completed", "failed at step check: the configuration test failed"])
def test_how_a_run_ended_is_told_in_its_own_words(tmp_path: Path, outcome: str) -> None:
    run = WatchedRun(tmp_path)
    assert Replay(run.dir.path).details()["outcome"] == "running"
    run.end(outcome)
    assert Replay(run.dir.path).details()["outcome"] == outcome
