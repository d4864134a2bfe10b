# SPDX-License-Identifier: Apache-2.0
"""The run directory keeps what was written, whatever happens next."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from atoll_analysis.run_directory import MetricsSpool, RunDir, migrations
from atoll_analysis.run_directory.atomic_files import Appender, replace_text, replacing
from atoll_analysis.run_directory.metrics_spool import read_spool
from atoll_analysis.run_directory.migrations import FORMAT, migrated
from atoll_core.codec import from_json, to_json
from atoll_core.description.loader import load_experiment
from atoll_core.errors import RunDirError, RunError
from atoll_core.experiment.experiment import Experiment, Jitter, JitterShape
from atoll_core.metrics.line_protocol import MetricPoint
from atoll_core.units import Duration, Size

NOON_NS = 1_767_268_800 * 10**9  # 2026-01-01 12:00 UTC


def test_runs_of_one_second_get_directories_of_their_own(tmp_path: Path) -> None:
    first, second = (RunDir.create(tmp_path, "geo", NOON_NS).path for _ in range(2))
    assert [first.name, second.name] == ["20260101T120000Z-1", "20260101T120000Z-2"]
    assert first.parent == tmp_path / "geo"


def test_a_run_that_never_said_how_it_ended_says_running(tmp_path: Path) -> None:
    assert RunDir.open(RunDir.create(tmp_path, "geo", NOON_NS).path).manifest()["outcome"] == "running"


def test_a_directory_without_manifest_is_refused_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"not a run directory .*runs/geo/") as refused:
        RunDir.open(tmp_path)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "1"}', '{"format": 0}', "{", "\xff"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content, encoding="latin-1")
    with pytest.raises(RunDirError):
        RunDir.open(tmp_path)


def test_a_newer_format_is_refused_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(RunDirError, match="newer version"):
        RunDir.open(tmp_path)


def test_older_formats_are_migrated_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {1: lambda old: {**old, "b": old["a"] + 1}, 2: lambda old: {**old, "c": old["b"] + 1}}
    monkeypatch.setattr(migrations, "FORMAT", 3)
    monkeypatch.setattr(migrations, "MIGRATIONS", steps)
    found = migrated({"format": 1, "a": 1}, tmp_path)
    assert found == {"format": 3, "a": 1, "b": 2, "c": 3}


def test_a_run_of_format_1_is_read_with_its_jitter_as_it_was(project: Path, tmp_path: Path) -> None:
    _, experiment = load_experiment(project / "examples" / "geo.yaml")
    described = to_json(experiment)
    link = described["links"][0]
    for way, jitter in (("to_island", 5_000_000), ("to_world", 0)):
        link[way] = {"rate": 1000, "delay": 250_000_000, "queue": 1500, "jitter": jitter}
    found = migrated({"format": 1, "experiment": described}, tmp_path)
    read = from_json(Experiment, found["experiment"]).link("sat")
    assert found["format"] == FORMAT
    assert read.to_island.jitter == Jitter(JitterShape.UNIFORM, Duration(5_000_000))
    assert (read.to_world.jitter, read.to_world.trace, read.to_world.queue) == (None, None, Size(1500))


def test_a_run_of_format_1_that_was_never_planned_is_read(tmp_path: Path) -> None:
    assert migrated({"format": 1, "outcome": "running"}, tmp_path) == {"format": FORMAT, "outcome": "running"}


def test_updating_a_manifest_keeps_its_other_keys(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "geo", NOON_NS)
    run.update_manifest({"seed": 7})
    run.update_manifest({"outcome": "completed"})
    assert run.manifest() == {"format": FORMAT, "outcome": "completed", "seed": 7}


def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")

    def fail_half_way() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise KeyError

    with pytest.raises(KeyError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_of_a_half_written_file_stays_after_kill_9(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal, sys\n"
        "from atoll_analysis.run_directory.atomic_files import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_text('half of the n')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "summary.json"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_with_the_same_id_left_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.with_name(f".summary.json.{os.getpid()}.tmp").write_text("half of the n")
    replace_text(path, "new")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"summary.json": "new"}


def test_events_come_back_in_order_and_a_line_cut_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "geo", NOON_NS)
    run.append_event("step", NOON_NS, step="check", state="begin")
    run.append_event("drained", NOON_NS + 1)
    with (run.path / "events.jsonl").open("a") as file:
        file.write('{"t_ns":3,"type":"st')
    assert run.events() == [
        {"t_ns": NOON_NS, "type": "step", "step": "check", "state": "begin"},
        {"t_ns": NOON_NS + 1, "type": "drained"},
    ]


def test_a_step_that_an_older_version_cancelled_reads_so(tmp_path: Path) -> None:
    """It wrote the name of Python's exception; the file stays as it is."""
    run = RunDir.create(tmp_path, "geo", NOON_NS)
    run.append_event("step", NOON_NS, step="measure", state="failed", message="CancelledError")
    run.append_event("step", NOON_NS, step="measure", state="failed", message="link-sat failed: exit code 1")
    assert [event["message"] for event in run.events()] == ["cancelled", "link-sat failed: exit code 1"]
    assert "CancelledError" in (run.path / "events.jsonl").read_text()


def test_an_event_is_on_file_as_soon_as_it_was_written(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "geo", NOON_NS)
    run.append_event("drained", 1)
    assert (run.path / "events.jsonl").read_text() == '{"t_ns":1,"type":"drained"}\n'


def test_a_full_disk_is_one_plain_line() -> None:
    with pytest.raises(RunError, match=r"^disk full: /dev/full could not be written") as full:
        Appender(Path("/dev/full")).append(b"x")
    assert "\n" not in str(full.value)


def test_a_run_directory_that_cannot_be_made_is_one_plain_line(tmp_path: Path) -> None:
    (tmp_path / "geo").write_text("in the way")
    with pytest.raises(RunError, match=r"geo could not be written: File exists"):
        RunDir.create(tmp_path, "geo", NOON_NS)


def test_compressed_captures_hold_the_same_bytes_even_when_they_were_cut(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "geo", NOON_NS)
    content = bytes(range(256)) * 5000 + b"\x00\x01cut within a pack"
    (run.captures / "world.pcap").write_bytes(content)
    run.compress_captures()
    assert [path.name for path in run.captures.iterdir()] == ["world.pcap.zst"]
    with (run.captures / "world.pcap.zst").open("rb") as file:
        assert zstandard.ZstdDecompressor().stream_reader(file).read() == content
    assert run.capture("world") == run.captures / "world.pcap.zst"


def test_captures_that_are_compressed_later_are_no_damage(tmp_path: Path) -> None:
    """As `atoll report` does for a run that was not analysed when it ended."""
    run = RunDir.create(tmp_path, "geo", NOON_NS)
    for name in ("island", "world"):
        (run.captures / f"{name}.pcap").write_bytes(name.encode())
    run.write_checksums()
    run.compress_captures()
    assert run.damages(contents=True) == {}
    (run.captures / "world.pcap.zst").unlink()
    assert list(run.damages()) == [run.captures / "world.pcap.zst"]


def test_an_interrupted_compression_is_done_again_from_the_original(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path, "geo", NOON_NS)
    (run.captures / "world.pcap").write_bytes(b"whole")
    (run.captures / "world.pcap.zst").write_bytes(b"ha")
    assert run.capture("world") == run.captures / "world.pcap"
    run.compress_captures()
    assert zstandard.ZstdDecompressor().decompress((run.captures / "world.pcap.zst").read_bytes(), 100) == b"whole"


def test_a_capture_that_was_never_made_is_none(tmp_path: Path) -> None:
    assert RunDir.create(tmp_path, "geo", NOON_NS).capture("island") is None


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_kill_loses_at_most_the_last_second_of_metrics(tmp_path: Path) -> None:
    clock = Clock()
    spool = MetricsSpool(tmp_path / "metrics.lp.zst", clock)
    for tenth in range(35):
        clock.now = tenth / 10
        spool.write([MetricPoint("link", {}, {"n": tenth}, tenth)])
    kept = [
        int(line.split()[-1]) for line in read_spool(tmp_path / "metrics.lp.zst")
    ]  # without closing: as after a kill
    assert kept == list(range(len(kept)))
    assert len(kept) >= 35 - 10


def test_a_spool_cut_within_a_frame_gives_what_is_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.lp.zst"
    spool = MetricsSpool(path)
    for number in range(3):
        spool.write([MetricPoint("link", {}, {"n": number}, number)])
        spool.flush()
    spool.close()
    path.write_bytes(path.read_bytes()[:-3])
    assert list(read_spool(path))[:2] == ["link n=0i 0", "link n=1i 1"]


def test_figures_that_cannot_be_written_are_counted_not_lost_in_silence(tmp_path: Path) -> None:
    spool = MetricsSpool(tmp_path / "metrics.lp.zst")
    spool.write(
        [
            MetricPoint("ping", {}, {"rtt_ms": float("nan"), "seq": 1}, 5),
            MetricPoint("ping", {}, {"rtt_ms": float("inf")}, 6),
        ]
    )
    spool.close()
    assert spool.left_out == 2
    assert list(read_spool(tmp_path / "metrics.lp.zst")) == ["ping seq=1i 5"]


def test_a_manifest_says_less_inside_a_virtual_kernel_until_the_run_is_complete(tmp_path: Path) -> None:
    """Killed at any time, the run still has all of it."""
    run = RunDir.create(tmp_path, "geo", 0)
    run.update_manifest({"revision": "abc", "experiment": {"file": "geo.yaml"}})
    run.hide_from_guest({"revision": None, "experiment": {"file": "experiment.yaml"}})
    inside = RunDir.open(run.path, in_guest=True)
    assert "revision" not in inside.manifest()
    assert inside.manifest()["experiment"] == {"file": "experiment.yaml"}
    inside.update_manifest({"plan": {}})
    assert RunDir.open(run.path).manifest() == inside.manifest() | {
        "revision": "abc",
        "experiment": {"file": "geo.yaml"},
    }
    run.restore_manifest({"outcome": "completed"})
    assert inside.manifest() == run.manifest()
    assert (run.manifest()["outcome"], run.manifest()["revision"], run.manifest()["plan"]) == ("completed", "abc", {})
    assert [path.name for path in run.path.glob("*.json")] == ["manifest.json"]
