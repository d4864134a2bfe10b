# SPDX-License-Identifier: Apache-2.0
"""Output that cannot be written is an error of one line: a file that an option names, or standard output."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from atoll_analysis.run_directory.atomic_files import replace_text
from atoll_cli.terminal.output import refuse_overwriting, with_write_errors, write_file
from atoll_core.errors import RunError, UsageError
from tests.support.forked_commands import atoll
from tests.support.synthetic_run import begin, experiment, network

pytestmark = pytest.mark.long

PICTURES = ".png, .svg or .pdf"
PINGS = "".join(f"t{number},{number}.5\n" for number in range(90))


def filled(words: str, project: Path) -> list[str]:
    """The words of a command line, ``GEO`` and ``STUDY`` being descriptions that are right."""
    files = {"GEO": "examples/geo.yaml", "STUDY": "examples/studies/geo-queues.yaml"}
    return [str(project / files[word]) if word in files else word for word in words.split()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Holds a file that the commands below read."""
    (tmp_path / "pings.txt").write_text(PINGS)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "option", "endings"),
    [
        ("plan GEO --graph x.txt", "--graph x.txt", ".svg"),
        ("plan GEO --graph x", "--graph x", ".svg"),
        (
            "report --compare nothing --out x.txt",
            "--out x.txt",
            ".html, .md, .csv, .parquet, .json, .svg, .pdf or .png",
        ),
        ("link-traces leo --duration 10s --out x.csv --plot x.bmp", "--plot x.bmp", PICTURES),
        ("distributions show published --plot x.txt", "--plot x.txt", PICTURES),
        ("latencies import pings.txt --out x.yaml --plot x.jpeg", "--plot x.jpeg", PICTURES),
    ],
)
def test_a_wrong_ending_is_one_line_with_the_known_endings(
    project: Path, directory: Path, words: str, option: str, endings: str
) -> None:
    before = sorted(directory.iterdir())
    done = atoll(*filled(words, project), directory=directory)
    expected = f"{option}: the name does not end in {endings}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    assert sorted(directory.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("plan GEO --graph none/x.svg", "--graph none/x.svg"),
        ("link-traces leo --duration 10s --out none/x.csv", "--out none/x.csv"),
        ("link-traces leo --duration 10s --out x.csv --plot none/x.png", "--plot none/x.png"),
        ("distributions show published --plot none/x.png", "--plot none/x.png"),
        ("latencies import pings.txt --servers 3 --out none/x.yaml", "--out none/x.yaml"),
        ("run GEO --on virtual --runs pings.txt", "pings.txt"),
        ("run GEO --on virtual --runs /proc/x", "/proc/x"),
        ("run GEO --runs /proc/x --set tcp.congestion_control=reno", "/proc/x"),
        ("sweep STUDY /proc/x", "/proc/x"),
        ("watch --runs pings.txt", "pings.txt"),
    ],
)
def test_a_path_that_cannot_be_written_is_bad_input_for_every_command(
    project: Path, directory: Path, words: str, option: str
) -> None:
    done = atoll(*filled(words, project), directory=directory)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{option}: ")
    assert "; name a" in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("distributions import flows.csv --out flows.csv", "--out flows.csv"),
        ("distributions import flows.csv --out ../DIRECTORY/flows.csv", "--out ../DIRECTORY/flows.csv"),
        ("distributions import flows.csv --out link.csv", "--out link.csv"),
        ("distributions show sizes.png --plot sizes.png", "--plot sizes.png"),
        ("latencies import pings.txt --out pings.txt", "--out pings.txt"),
        ("latencies import pings.txt --servers 3 --out x.png --plot x.png", "--plot x.png"),
        ("link-traces leo --duration 10s --out x.png --plot x.png", "--plot x.png"),
        ("link-traces losses RUN --out RUN/events.jsonl", "--out RUN/events.jsonl"),
        ("report --compare RUN RUN --out RUN/summary.json", "--out RUN/summary.json"),
        ("report --compare RUN RUN --out RUN/files.json", "--out RUN/files.json"),
    ],
)
def test_a_file_that_the_command_reads_or_writes_already_is_not_overwritten(
    project: Path, directory: Path, words: str, option: str
) -> None:
    shutil.copy(project / "tests/data/flow-records/nfdump.csv", directory / "flows.csv")
    (directory / "sizes.png").write_text("size_bytes,count\n1,1\n")
    (directory / "link.csv").symlink_to("flows.csv")
    (directory / "RUN").mkdir()
    for name in ("manifest.json", "events.jsonl", "summary.json"):
        (directory / "RUN" / name).write_text('{"format": 2}\n')
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    done = atoll(*words.replace("DIRECTORY", directory.name).split(), directory=directory)
    expected = (
        f"{option.replace('DIRECTORY', directory.name)}: this command reads or writes that file; name another one\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before


def test_the_page_of_a_study_may_be_in_its_directory(tmp_path: Path) -> None:
    """A study has no report.html of its own, a run has one."""
    (tmp_path / "study.json").write_text("{}")
    refuse_overwriting({"--out": tmp_path / "report.html"}, [tmp_path])
    for part in ("study.json", "runs.csv", "points/1/20260102T030405Z-1/report.html"):
        with pytest.raises(UsageError, match="this command reads or writes that file"):
            refuse_overwriting({"--out": tmp_path / part}, [tmp_path])
    (tmp_path / "study.json").unlink()
    with pytest.raises(UsageError, match="this command reads or writes that file"):
        refuse_overwriting({"--out": tmp_path / "report.html"}, [tmp_path])


def test_a_write_that_fails_leaves_the_file_of_before_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("before")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, limit[1]))
    try:
        with pytest.raises(UsageError, match="cannot be written"):
            write_file("--out", path, "after, and longer")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [(path, "before")]


def test_a_pipe_or_device_is_written_and_stays(tmp_path: Path) -> None:
    """A file renamed to the name of a device, /dev/null for one, would replace the device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_file("--out", pipe, "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(RunError, match="pipe could not be written: it is a device or a pipe; name a file"):
        replace_text(pipe, "text")
    assert pipe.is_fifo()


def test_a_link_to_a_file_stays(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "x.csv").symlink_to("other/x.csv")
    write_file("--out", tmp_path / "x.csv", "text")
    assert (tmp_path / "x.csv").is_symlink()
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["x.csv"]


def atoll_to(*words: str, out: str, unbuffered: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the program with its standard output redirected by a shell: to a file or a pipe."""
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONUNBUFFERED"}
    environment |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    script = f'"$0" -m atoll_cli.main "$@" {out}'
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", script, sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("words", [["--version"], ["plan", "--help"], ["plan", "examples/geo.yaml"]])
def test_a_full_disk_is_one_line(
    words: list[str], unbuffered: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    done = atoll_to(*words, out="> /dev/full", unbuffered=unbuffered)
    assert (done.returncode, done.stderr) == (1, "standard output cannot be written: No space left on device\n")


def test_a_full_disk_is_one_line_for_output_of_rich(tmp_path: Path) -> None:
    run = begin(tmp_path, experiment(), network())
    done = atoll_to("report", str(run.path), out="> /dev/full")
    assert (done.returncode, done.stderr) == (1, "standard output cannot be written: No space left on device\n")


def test_a_closed_pipe_is_no_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    for words in (["--help"], ["plan", "examples/geo.yaml"]):
        done = atoll_to(*words, out="| true")
        assert (done.returncode, done.stderr) in [(0, ""), (1, "")]


def test_a_closed_standard_output_is_no_error() -> None:
    done = atoll_to("--version", out=">&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unbuffered", [False, True])
def test_output_keeps_its_buffer_or_has_none(unbuffered: bool) -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    with os.fdopen(read, "rb", 0) as reader, os.fdopen(write, "w", encoding="utf-8") as ours:
        ours.reconfigure(write_through=unbuffered)
        with with_write_errors(ours) as output:
            output.write("step")
            assert reader.read() == (b"step" if unbuffered else None)
            output.flush()
        assert unbuffered or reader.read() == b"step"
