# SPDX-License-Identifier: Apache-2.0
"""`atoll runs`: runs are listed and filtered, damages are found, captures are dropped and tables kept."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import zstandard
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from atoll_analysis.run_directory import RunDir
from atoll_analysis.stored_runs import drop_captures, stored_run, verify_run
from atoll_core.codec import to_json
from atoll_core.errors import RunDirError
from atoll_core.lab.network import Control
from atoll_core.lab.port_ref import PortRef
from atoll_hosts.binary import find_binary
from atoll_studies.points import make_points
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from tests.conftest import PROJECT
from tests.support.forked_commands import atoll

pytestmark = pytest.mark.long

GEO = PROJECT / "examples/geo.yaml"


@pytest.fixture(scope="module")
def analysed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, seeds 1 and 2; the first one is analysed."""
    folder = tmp_path_factory.mktemp("runs")
    shutil.unpack_archive(project / "tests/data/old-runs/runs.tar.xz", folder)
    done = atoll("report", min(folder.iterdir()))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def runs(analysed: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(analysed, tmp_path / "runs"))


def test_runs_are_listed_and_filtered(runs: Path) -> None:
    first, second = sorted(runs.iterdir())
    (second / "summary.json").unlink()
    (runs / "broken").mkdir()
    (runs / "broken/manifest.json").write_text("{")
    done = atoll("runs", "list", runs, "--json")
    assert done.returncode == 0
    assert done.stderr.startswith(f"left out: {runs}/broken/manifest.json: is damaged (line 1)")
    listed = json.loads(done.stdout)["runs"]
    assert [(each["path"], each["seed"], each["verdict"]) for each in listed] == [
        (str(first), 1, "valid"),
        (str(second), 2, "not analysed"),
    ]
    assert listed[0]["size_bytes"] == sum(path.stat().st_size for path in first.rglob("*") if path.is_file())
    valid = json.loads(atoll("runs", "list", runs, "--verdict", "valid", "--json").stdout)["runs"]
    assert [each["path"] for each in valid] == [str(first)]
    assert atoll("runs", "list", runs, "--experiment", "geo").stdout.endswith("0 runs, 0.0 MB\n")
    for option, word, near in (("--platform", "vrtual", "virtual"), ("--verdict", "vald", "valid")):
        refused = atoll("runs", "list", runs, option, word)
        assert refused.returncode == 2
        assert f"did you mean {near!r}?" in refused.stderr
    missing = atoll("runs", "list", runs / "none")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


def test_runs_of_a_study_are_listed_with_its_name_and_their_configuration(project: Path, runs: Path) -> None:
    of_study = max(runs.iterdir())
    study = load_study(project / "examples/studies/geo-queues.yaml")
    directory, point = StudyDirectory(runs / "studies/mine"), make_points(study)[0]
    directory.write(study, [point])
    of_study = of_study.rename(directory.point_path(point.id) / of_study.name)
    label = ", ".join(point.levels.values())
    line_of_run, line_of_study = atoll("runs", "list", runs).stdout.splitlines()[1:3]
    assert str(of_study) in line_of_study
    assert f"  geo-queues: {label}  " in line_of_study
    assert "geo-queues" not in line_of_run
    listed = json.loads(atoll("runs", "list", runs, "--json").stdout)["runs"]
    assert [(each["study"], each["configuration"]) for each in listed] == [(None, None), ("geo-queues", label)]
    (directory.path / "study.json").write_text("{")
    assert str(of_study) in atoll("runs", "list", runs).stdout


def test_no_runs_yet_is_no_error(tmp_path: Path) -> None:
    listed = atoll("runs", "list", directory=tmp_path)
    answer = "no runs yet: directory runs does not exist; `atoll run EXPERIMENT` makes it\n"
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, answer, "")
    assert json.loads(atoll("runs", "list", "--json", directory=tmp_path).stdout) == {"runs": []}


def test_no_line_that_is_piped_ends_with_a_space(runs: Path) -> None:
    """A terminal's columns are filled up with spaces, and the verdict wraps within them."""
    first, second = sorted(runs.iterdir())
    for words in (["report", first], ["report", "--compare", first, second], ["runs", "list", runs], ["plan", GEO]):
        done = atoll(*words)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) > 2
        assert [line for line in (done.stdout + done.stderr).splitlines() if line != line.rstrip()] == []


def test_a_run_that_was_killed_is_not_running(runs: Path) -> None:
    first, _ = sorted(runs.iterdir())
    manifest = json.loads((first / "manifest.json").read_text())
    (first / "manifest.json").write_text(json.dumps(manifest | {"outcome": "running"}))
    assert stored_run(first).outcome == "running", "it was written just now"
    for file in first.iterdir():
        os.utime(file, (0, 0))
    assert stored_run(first).outcome == "killed"


def test_whole_runs_have_no_damage(runs: Path) -> None:
    assert [verify_run(path, find_binary()) for path in sorted(runs.iterdir())] == [[], []]
    assert atoll("runs", "verify", runs).stdout == "2 runs: 2 whole, 0 damaged\n"


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("captures/world.pcap.zst", lambda path: path.write_bytes(path.read_bytes()[:-100])),
        ("captures/world.pcap.zst", lambda path: path.write_bytes(b"x" * 100)),
        ("captures/world.pcap.zst", Path.unlink),
        ("tables/flows.parquet", lambda path: path.write_bytes(b"PAR1")),
        ("tables/packets-world.parquet", lambda path: shutil.copy(path.parent / "pings.parquet", path)),
        ("summary.json", Path.unlink),
        ("manifest.json", lambda path: path.write_text("[]")),
    ],
)
def test_a_damaged_file_is_named(runs: Path, file: str, damage: Callable[[Path], object]) -> None:
    run = min(runs.iterdir())
    damage(run / file)
    [line] = verify_run(run, find_binary())
    assert line.startswith(str(run / file).removesuffix("/summary.json"))
    done = atoll("runs", "verify", runs)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, line)


def test_verification_writes_and_removes_no_file(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture that ends with an error of the decoder used to cost root its /dev/null."""
    null = tmp_path / "null"
    null.write_text("as before")
    monkeypatch.setattr(os, "devnull", str(null))
    run = min(runs.iterdir())
    capture = run / "captures/world.pcap.zst"
    raw = zstandard.ZstdDecompressor().stream_reader(capture.read_bytes()).read()
    capture.write_bytes(zstandard.compress(raw + b"\xff" * 16))
    before = sorted(runs.rglob("*"))
    [line] = verify_run(run, find_binary())
    assert "claims 4294967295 bytes: the file is damaged" in line
    assert null.read_text() == "as before"
    assert sorted(runs.rglob("*")) == before


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("file", "damage", "wrong"),
    [
        ("events.jsonl", cut, "bytes, but"),
        ("captures/world.pcap.zst", Path.unlink, "is missing"),
        ("logs/load-i1.out", Path.unlink, "is missing"),
        ("link.jsonl", lambda path: path.write_text(path.read_text() + "{}\n"), "bytes, but"),
    ],
)
def test_a_file_that_is_not_as_when_the_run_ended_is_named(
    runs: Path, file: str, damage: Callable[[Path], object], wrong: str
) -> None:
    run = min(runs.iterdir())
    RunDir(run).write_checksums()
    assert verify_run(run, find_binary()) == []
    RunDir.open(run)
    damage(run / file)
    with pytest.raises(RunDirError, match=rf"^{run / file} .*{wrong}.*$"):
        RunDir.open(run)
    [line] = verify_run(run, find_binary())
    assert line.startswith(f"{run / file} ")


def test_every_command_notices_a_damaged_run(runs: Path) -> None:
    run, other = sorted(runs.iterdir())
    RunDir(run).write_checksums()
    cut(run / "events.jsonl")
    [line] = RunDir(run).damages().values()
    for words in (["code-design", run], ["link-traces", "losses", run, "--out", runs.parent / "x"]):
        done = atoll(*words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{line}\n")
    compared = atoll("report", "--compare", run, other)
    assert f"{run}: {line}\n" in compared.stderr
    listed = atoll("runs", "list", runs, "--verdict", "damaged")
    assert str(run) in listed.stdout
    assert "1 run, " in listed.stdout


def test_a_run_with_half_of_its_events_is_invalid(runs: Path) -> None:
    run = min(runs.iterdir())
    RunDir(run).write_checksums()
    assert atoll("report", run).returncode == 0
    assert verify_run(run, find_binary()) == []
    cut(run / "events.jsonl")
    [line] = RunDir(run).damages().values()
    assert atoll("report", run).returncode == 0
    summary = RunDir(run).summary()
    assert (summary["verdict"], summary["reasons"][0]) == ("invalid", line)


def test_other_contents_of_the_same_size_are_damage(runs: Path) -> None:
    run = min(runs.iterdir())
    RunDir(run).write_checksums()
    text = (run / "events.jsonl").read_text()
    (run / "events.jsonl").write_text(text[:-3] + "9" + text[-2:])
    [line] = verify_run(run, find_binary())
    assert "events.jsonl has changed since it was recorded" in line
    (run / "files.json").write_text("{")
    assert "files.json cannot be read" in verify_run(run, find_binary())[0]


def test_dropped_captures_are_no_damage(runs: Path) -> None:
    run = min(runs.iterdir())
    RunDir(run).write_checksums()
    assert drop_captures(run) > 0
    assert verify_run(run, find_binary()) == []


@pytest.mark.parametrize("content", ["", "[]", "{}", "null"])
def test_an_unreadable_summary_is_one_line_with_the_remedy(runs: Path, content: str) -> None:
    run, other = sorted(runs.iterdir())
    (run / "summary.json").write_text(content)
    for words in (
        ["report", "--compare", run, other],
        ["code-design", run],
        ["link-traces", "losses", run, "--out", runs.parent / "x"],
    ):
        done = atoll(*words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
        assert done.stderr.startswith(f"{run / 'summary.json'}: ")
        assert done.stderr.endswith(f"; `atoll report {run}` makes it again\n")


def test_an_unreadable_table_is_one_line_with_the_remedy(runs: Path) -> None:
    run = min(runs.iterdir())
    cut(run / "tables/losses.parquet")
    done = atoll("code-design", run)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"{run / 'tables/losses.parquet'}: cannot be read ")


def test_control_in_a_capture_is_in_no_figure(runs: Path) -> None:
    """A physical tap in a cable that in-band control passes captures it."""
    run = min(runs.iterdir())
    before = json.loads((run / "summary.json").read_text())
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["network"]["control"] = to_json(Control(IPv4Network("192.168.10.0/24"), PortRef("sw-c", 40)))
    (run / "manifest.json").write_text(json.dumps(manifest))
    packet = Ether() / IP(src="192.168.10.31", dst="192.168.10.1") / TCP(sport=22, dport=40001) / Raw(bytes(500))
    with_frames(run / "captures/world.pcap.zst", bytes(packet), 100)
    done = atoll("report", run)
    assert done.returncode == 0, done.stderr
    after = json.loads((run / "summary.json").read_text())
    assert after["captures"]["world"].pop("other_frames") == before["captures"]["world"].pop("other_frames") + 100
    assert {**after, "run_dir": before["run_dir"]} == before
    assert verify_run(run, find_binary()) == []


def with_frames(capture: Path, frame: bytes, count: int) -> None:
    """Insert a frame in the middle of a capture, at the instant of the one before."""
    raw = zstandard.ZstdDecompressor().stream_reader(capture.read_bytes()).read()
    at, ends = 24, [24]  # behind the file header
    while at < len(raw):
        at += 16 + struct.unpack_from("<I", raw, at + 8)[0]
        ends.append(at)
    before, cut = ends[len(ends) // 2 - 1 : len(ends) // 2 + 1]
    inserted = raw[before : before + 8] + struct.pack("<II", len(frame), len(frame)) + frame
    capture.write_bytes(zstandard.compress(raw[:cut] + count * inserted + raw[cut:]))


def test_dropped_captures_leave_tables_and_results(runs: Path) -> None:
    first, second = sorted(runs.iterdir())
    held = sum(path.stat().st_size for path in (first / "captures").iterdir())
    done = atoll("runs", "drop-captures", runs, "--json")
    assert done.returncode == 1
    answer = json.loads(done.stdout)
    assert answer["freed_bytes"] == {str(first): held}
    assert [each["run_dir"] for each in answer["kept"]] == [str(second)]
    assert "not analysed yet, so its captures are the only data" in done.stderr
    assert verify_run(first, find_binary()) == []
    assert list((second / "captures").iterdir())
    again = atoll("report", first)
    assert again.returncode != 0
    assert again.stderr.endswith(
        "its captures were deleted, so it cannot be analysed again; its tables and summary are kept\n"
    )
