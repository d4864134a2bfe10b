# SPDX-License-Identifier: Apache-2.0
"""Programs that users bring for boxes: what `check` says of them, and what is kept of what they print."""

from pathlib import Path
from typing import Any, cast

import pytest

from atoll_analysis.run_directory import RunDir
from atoll_cli.commands.check import check
from atoll_core.description.loader import load_lab_or_experiment
from atoll_core.events.event_bus import EventBus
from atoll_emulation.this_machine.box_programs import missing_programs
from atoll_hosts.job import Exit, Job
from atoll_testbed.platforms.base import EmulatedPlatform
from atoll_testbed.run.run_recorder import RunRecorder


def lab_with(folder: Path, project: Path, start: str, more: str = "") -> Path:
    """The island laboratory with a program for its box pep-w, in a folder of its own."""
    text = (project / "emulation/labs/island.yaml").read_text(encoding="utf-8")
    router = "pep-w: {kind: router, world: sw-c/11, island: sw-c/12}"
    program = (
        f"pep-w: {{kind: program, forwarding: routed, world: sw-c/11, island: sw-c/12,\n    program: {{start: {start}"
    )
    assert router in text
    path = folder / "lab.yaml"
    path.write_text(text.replace(router, f"{program}{more}}}}}"), encoding="utf-8")
    return path


WHERE = "in FOLDER, the folder of the lab's file; write a path relative to that folder, or an absolute path"


@pytest.mark.parametrize(
    ("start", "more", "messages"),
    [
        (
            "[relayd]",
            "",
            ["start: there is no program 'relayd' in PATH; install it, or write its path, such as ./relayd"],
        ),
        (
            "[./relay, '{world}']",
            ", report: [bin/counts]",
            [f"start: there is no program './relay' {WHERE}", f"report: there is no program 'bin/counts' {WHERE}"],
        ),
        ("[python3, relay.py]", "", [f"start: there is no file 'relay.py' {WHERE}"]),
        ("[sh, -c, 'exit 0']", "", []),
        ("[sh, -c, 'exit 0']", ", needs: {sh: of the system, ./there.py: that is there}", []),
        (
            "[sh, -c, 'exit 0']",
            ", needs: {relayd: example.org has it, ./relayd: 'make it'}",
            [
                "needs: there is no program 'relayd'; example.org has it",
                "needs: there is no program './relayd'; make it",
            ],
        ),
        ("[python3, there.py]", "", []),
        ("[./there.py]", "", []),
        (
            "[./noexec.py]",
            "",
            ["start: './noexec.py' is not executable: chmod +x, or [python3, noexec.py, ...]"],
        ),
        ("[./noexec]", "", ["start: './noexec' is not executable: chmod +x"]),
    ],
)
def test_check_looks_for_the_programs_of_boxes(
    start: str, more: str, messages: list[str], tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From wherever it is called: paths are those from the lab's file."""
    (tmp_path / "there.py").touch(mode=0o755)
    (tmp_path / "noexec.py").touch(mode=0o644)
    (tmp_path / "noexec").touch(mode=0o644)
    lab = lab_with(tmp_path, project, start, more)
    assert check([lab], as_json=False) == (2 if messages else 0)
    said = capsys.readouterr().err.splitlines()
    assert said == [f"{lab}:39: box 'pep-w': program: {each.replace('FOLDER', str(tmp_path))}" for each in messages]


@pytest.mark.parametrize(
    ("start", "more", "messages"),
    [
        ("[sh, '{wrold}']", "", ["start: unknown placeholder '{wrold}'; did you mean '{world}'?"]),
        ("[sh, '--to={Island}']", "", ["start: unknown placeholder '{Island}'; did you mean '{island}'?"]),
        (
            "[sh, -c, 'exec relay {wrold} {island}']",
            "",
            ["start: unknown placeholder '{wrold}'; did you mean '{world}'?"],
        ),
        (
            "[sh, '{interface}']",
            ", stop: [sh, '{wolrd}']",
            [
                "start: unknown placeholder '{interface}'; known are '{world}' and '{island}'; for the text itself",
                "stop: unknown placeholder '{wolrd}'; did you mean '{world}'?",
            ],
        ),
        (
            "[sh, '{run}']",
            ", report: [sh, '--log={run}/x', '{run}']",
            ["start: unknown placeholder '{run}'; known are"],
        ),
    ],
)
def test_an_unknown_placeholder_is_a_mistake(
    start: str, more: str, messages: list[str], tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = lab_with(tmp_path, project, start, more)
    assert check([lab], as_json=False) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(messages)
    for line, message in zip(said, messages, strict=True):
        assert line.startswith(f"{lab}:39: box 'pep-w': program: {message}")


@pytest.mark.parametrize(
    "argument",
    [
        "{world}",
        "in={world},out={island}",
        '{"world": 1}',
        "{}",
        "{ print }",
        "{print $1}",
        "ip link | awk '{print}'",
        "${word}",
        "{{word}}",
        "a{1,3}",
        "{1}",
    ],
)
def test_other_braces_are_no_placeholders(argument: str, tmp_path: Path, project: Path) -> None:
    quoted = "'" + argument.replace("'", "''") + "'"
    load_lab_or_experiment(lab_with(tmp_path, project, f"[sh, -c, {quoted}]"))


def test_programs_of_the_system_are_found_though_a_plain_users_path_does_not_name_them(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # tc is in /usr/sbin
    assert missing_programs(load_lab_or_experiment(lab_with(tmp_path, project, "[tc, monitor]"))[0]) == ()


def test_programs_of_boxes_that_no_chain_has_are_not_looked_for_in_a_run(
    tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = lab_with(tmp_path, project, "[relayd]")
    demo = (project / "examples/geo.yaml").read_text(encoding="utf-8")
    path = tmp_path / "geo.yaml"
    path.write_text(demo.replace("../emulation/labs/island.yaml", "lab.yaml"), encoding="utf-8")
    network, experiment = load_lab_or_experiment(path)
    assert (len(missing_programs(network)), missing_programs(network, experiment)) == (1, ())
    path.write_text(path.read_text().replace("[tap-w, sat", "[tap-w, pep-w, sat"), encoding="utf-8")
    assert len(missing_programs(*load_lab_or_experiment(path))) == 1
    assert check([path], as_json=False) == 2
    out, err = capsys.readouterr()
    assert out == "", "an experiment is not ok where its lab has mistakes"
    assert err.startswith(f"{lab}:")


def test_emulated_boxes_run_programs_in_the_folder_of_the_labs_file(monkeypatch: pytest.MonkeyPatch) -> None:
    place = EmulatedPlatform.__new__(EmulatedPlatform)
    place.network = cast("Any", type("Network", (), {"file": "labs/mine.yaml"}))
    monkeypatch.chdir("/usr")
    assert place.lab_folder == "/usr/labs"


async def test_what_a_program_prints_is_kept_and_its_last_lines_say_why_it_failed() -> None:
    """Lines of JSON, too: they are the program's own."""
    said: list[str] = []
    job = Job("program-pep-w", cast("Any", None), None, said.append)
    printed = [
        ("stdout", "listening"),
        ("stdout", '{"type": "state"}'),
        ("stderr", "no route"),
        ("stdout", "giving up"),
    ]
    for stream, line in printed:
        job.on_output_line(stream, line)
    job.on_exit(Exit(2, None))
    assert said == [line for _, line in printed]
    assert job.exit_text() == "listening; no route; giving up (exit status 2)"


def test_a_runs_logs_hold_what_programs_of_boxes_printed(tmp_path: Path, project: Path) -> None:
    network, experiment = load_lab_or_experiment(project / "examples/geo.yaml")
    assert experiment is not None
    run = RunDir.create(tmp_path, "geo", 1_780_000_000 * 10**9)
    recording = RunRecorder(run, network, experiment, EventBus())
    for line in ("listening", "connection 1 \N{GREEK SMALL LETTER ALPHA}"):
        recording.record_program_line("program-pep-w", line)
    recording.close()
    assert (run.logs / "program-pep-w.out").read_text(
        encoding="utf-8"
    ) == "listening\nconnection 1 \N{GREEK SMALL LETTER ALPHA}\n"
