# SPDX-License-Identifier: Apache-2.0
"""However a run ends, the machine is as it was and what was measured is kept."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from atoll_analysis.run_directory import RunDir
from tests.support.sandbox import ATOLL, QUICK, ROOT, Sandbox, wait_for_line

pytestmark = pytest.mark.lab


# Every step a run announces, in order; those of a group are tried side by side, each in a sandbox of its own.
STEPS = [
    ("daemon", "namespaces", "controller and agent"),
    ("Open vSwitch", "machines", "apply"),
    ("check", "settings"),
    ("captures", "servers"),
    ("clients", "measure"),
    ("stop", "drain"),
    ("record", "analyse", "down"),
]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path) as box:
        yield box


def start_run(sandbox: Sandbox, *options: str) -> subprocess.Popen[str]:
    return sandbox.start(ATOLL, "run", QUICK, *options)


def end(process: subprocess.Popen[str], limit_s: float = 40) -> tuple[str, str]:
    try:
        return process.communicate(timeout=limit_s)
    finally:
        process.kill()


@pytest.mark.parametrize("steps", STEPS, ids="/".join)
def test_kill_of_the_run_leaves_nothing(tmp_path: Path, steps: tuple[str, ...]) -> None:
    """`kill -9` of `atoll run` at any step: lab, daemon and every job are gone without any further command."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(kill_at, steps, [tmp_path / str(place) for place in range(len(steps))]))


def kill_at(step: str, directory: Path) -> None:
    directory.mkdir()
    with Sandbox(directory) as sandbox:
        process = start_run(sandbox)
        wait_for_line(process, step)
        pid = sandbox.find("atoll", "run", "quick.yaml")
        assert pid is not None
        sandbox.kill(pid)
        process.communicate(timeout=100)
        sandbox.wait_clean()


@pytest.mark.parametrize(
    ("victim", "words"),
    [
        ("daemon", ("-m", "atoll_daemon")),
        ("lab", ("python", "-m", "atoll_emulation.mininet_lab.ns_init")),
        ("agent", ("atoll-host", "agent")),
    ],
)
def test_kill_of_a_part_ends_the_run_and_keeps_what_was_measured(
    sandbox: Sandbox, victim: str, words: tuple[str, ...]
) -> None:
    """`kill -9` of daemon, lab or agent: one clear line, non-zero exit, captures kept, nothing left."""
    process = sandbox.start(ATOLL, "run", QUICK, "--duration", "20 s")
    wait_for_line(process, "measure")
    wait_for_traffic(sandbox)
    pid = sandbox.find(*words)
    assert pid is not None, f"no {victim} among {sandbox.processes()}"
    sandbox.kill(pid)
    _, errors = end(process)
    assert process.returncode == 1, errors
    assert len(errors.strip().splitlines()) >= 1
    assert "Traceback" not in errors
    sandbox.wait_clean()
    run = only_run(sandbox)
    captures = [path for path in (run / "captures").iterdir() if path.stat().st_size > 24]
    assert len(captures) == 3
    report = sandbox.run(ATOLL, "report", run, "--json")
    assert report.returncode == 0, report.stderr
    assert json.loads(report.stdout)["verdict"] == "invalid"


def test_kill_of_a_coder_ends_the_run_with_a_line_that_names_it(sandbox: Sandbox) -> None:
    """`kill -9` of a coder during the measurement: no packet passes any more, so the run ends, and is invalid."""
    process = sandbox.start(ATOLL, "run", ROOT / "examples/coder-geo.yaml", "--duration", "20 s")
    wait_for_line(process, "measure")
    wait_for_traffic(sandbox, "coder-geo", 4)
    pid = sandbox.find("atoll-host coder")
    assert pid is not None, sandbox.processes()
    sandbox.kill(pid)
    _, errors = end(process)
    assert process.returncode == 1, errors
    assert re.search(r"^coder-coder-[wi] ended unexpectedly: ended by SIGKILL$", errors, re.MULTILINE), errors
    assert "Traceback" not in errors
    sandbox.wait_clean()
    run = only_run(sandbox, "coder-geo")
    assert json.loads((run / "manifest.json").read_text())["outcome"] != "complete"
    report = sandbox.run(ATOLL, "report", run, "--json")
    assert report.returncode == 0, report.stderr
    summary = json.loads(report.stdout)
    assert summary["verdict"] == "invalid"
    cut_short = summary["reasons"][summary["reason_codes"].index("CUT_SHORT")]
    assert re.search(r"coder-coder-[wi] ended unexpectedly", cut_short), summary["reasons"]


def test_kill_of_the_controller_stops_no_packet(sandbox: Sandbox) -> None:
    """`kill -9` of the controller: it is started again, the switches forward meanwhile, the run completes.

    Pings alone: a full queue may drop one of them.
    """
    experiment = sandbox.directory / "pings.yaml"
    text = QUICK.read_text().replace("../../emulation", str(ROOT / "emulation"))
    experiment.write_text(text.replace("traffic: {channels: 12}", "traffic: {channels: 0}\nping: {interval: 5 ms}"))
    process = sandbox.start(ATOLL, "run", experiment, "--duration", "5 s", "--json")
    wait_for_line(process, "measure")
    pid = sandbox.find("atoll_controller.openflow")
    assert pid is not None
    sandbox.kill(pid)
    output, errors = end(process, 60)
    assert process.returncode in (0, 3), errors
    assert "controller restarted" in errors
    summary = json.loads(output)
    assert summary["ping_sent"] > 500
    assert summary["ping_lost"] == 0
    assert (summary["loss_bytes_captures"], summary["loss_bytes_link"]) == (0, 0)
    sandbox.wait_clean()


def test_the_lab_of_a_run_is_taken_down_while_the_run_is_analysed(sandbox: Sandbox) -> None:
    """The lab is gone although the analysis is held up; the run then ends as usual, and nothing is left."""
    process = start_run(sandbox, "--json")
    wait_for_line(process, "analyse")
    while (analysis := sandbox.find("-m", "atoll_analysis")) is None:
        assert process.poll() is None
    sandbox.kill(analysis, signal.SIGSTOP)
    while sandbox.find("-m", "atoll_emulation.mininet_lab.ns_init") is not None:
        assert process.poll() is None
    sandbox.kill(analysis, signal.SIGCONT)
    output, errors = end(process)
    assert process.returncode in (0, 3), errors  # 3: the machine was too busy for a run in real time
    assert json.loads(output)["ping_sent"] > 0
    assert json.loads((only_run(sandbox) / "manifest.json").read_text())["outcome"] == "completed"
    assert sandbox.traces() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_during_the_analysis_leaves_nothing(sandbox: Sandbox, number: signal.Signals) -> None:
    process = start_run(sandbox)
    wait_for_line(process, "analyse")
    pid = sandbox.find("atoll", "run", "quick.yaml")
    assert pid is not None
    sandbox.kill(pid, number)
    _, errors = end(process)
    assert process.returncode == 130, errors
    assert sandbox.traces() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_cancels_cleanly(sandbox: Sandbox, number: signal.Signals) -> None:
    """Ctrl-C: one line that says where the partial results are, exit code 130, nothing left when it returns."""
    process = sandbox.start(ATOLL, "run", QUICK, "--duration", "20 s")
    wait_for_line(process, "measure")
    wait_for_traffic(sandbox)
    pid = sandbox.find("atoll", "run", "quick.yaml")
    assert pid is not None
    sandbox.kill(pid, number)
    _, errors = end(process)
    assert process.returncode == 130
    assert "cancelled; the measurements so far are in" in errors.splitlines()[-1]
    assert sandbox.traces() == []
    run = only_run(sandbox)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["outcome"].startswith("cancelled at step measure")
    events = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    failed = [event for event in events if event["type"] == "step" and event["state"] == "failed"]
    assert [(event["step"], event["message"]) for event in failed] == [("measure", "cancelled")]
    assert {"manifest.json", "events.jsonl"} <= set(json.loads((run / "files.json").read_text())["files"])
    assert RunDir(run).damages(contents=True) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", ["", "namespaces"], ids=["daemon starts", "lab starts"])
def test_an_interrupted_up_leaves_no_daemon(sandbox: Sandbox, step: str, number: signal.Signals) -> None:
    """A daemon without a lab would hold the machine's lock, and later runs would find no lab on it."""
    process = sandbox.start(ATOLL, "up", QUICK)
    if step:
        wait_for_line(process, step)
    while sandbox.find("-m", "atoll_daemon") is None:
        assert process.poll() is None
    pid = sandbox.find("atoll", "up", "quick.yaml")
    assert pid is not None
    sandbox.kill(pid, number)
    end(process)
    assert process.returncode != 0
    sandbox.wait_clean()


def test_an_up_interrupted_after_its_lab_came_up_takes_it_down_and_says_so(sandbox: Sandbox) -> None:
    """Between lab and experiment nobody would know that a lab is up."""
    process = sandbox.start(ATOLL, "up", QUICK)
    wait_for_line(process, "apply: ")
    pid = sandbox.find("atoll", "up", "quick.yaml")
    assert pid is not None
    sandbox.kill(pid, signal.SIGTERM)
    _, errors = end(process)
    assert (process.returncode, errors.splitlines()[-1]) == (130, "cancelled; no lab is up")
    assert sandbox.traces() == []


def test_a_lab_that_was_up_stays_up_when_a_run_on_it_is_killed(sandbox: Sandbox) -> None:
    """A run borrows the lab: killed, its jobs end and the lab stays; `atoll down` then leaves nothing."""
    assert sandbox.run(ATOLL, "up", QUICK).returncode == 0
    process = start_run(sandbox)
    wait_for_line(process, "measure")
    pid = sandbox.find("atoll", "run", "quick.yaml")
    assert pid is not None
    sandbox.kill(pid)
    process.communicate(timeout=100)
    status = wait_idle(sandbox)
    assert status["lab"]["experiment"] == "quick"
    assert status["lab"]["file"] == str(ROOT / "emulation" / "labs" / "island.yaml")  # wherever one asks from
    assert sandbox.find("atoll-host", "capture") is None
    assert sandbox.find("atoll-host", "load") is None
    again = sandbox.run(ATOLL, "apply", QUICK, "--json")
    assert json.loads(again.stdout)["changes"] == []
    assert sandbox.run(ATOLL, "down").returncode == 0
    sandbox.wait_clean()


def test_status_says_why_a_lab_failed(sandbox: Sandbox) -> None:
    """Also after its daemon has ended, with exit code 1; `atoll down` ends that."""
    assert sandbox.run(ATOLL, "up", QUICK).returncode == 0
    agent = sandbox.find("atoll-host", "agent")
    assert agent is not None
    sandbox.kill(agent)
    sandbox.wait_clean()
    status = sandbox.run(ATOLL, "status")
    assert status.returncode == 1
    assert re.fullmatch(
        r"no lab is up; island failed at .*: the agent died; every job on every machine.*\n", status.stdout
    )
    answer = json.loads(sandbox.run(ATOLL, "status", "--json").stdout)
    assert (answer["lab"], answer["failure"]["lab"]) == (None, "island")
    assert sandbox.run(ATOLL, "down").returncode == 0
    status = sandbox.run(ATOLL, "status")
    assert (status.returncode, status.stdout) == (0, "no lab is up\n")


def test_keep_leaves_the_lab_up(sandbox: Sandbox) -> None:
    """`atoll run --keep` ends with a lab that stays; the next run uses it, `atoll down` ends it."""
    kept = sandbox.run(ATOLL, "run", QUICK, "--keep", "--json")
    assert kept.returncode in (0, 3), kept.stderr
    assert json.loads(sandbox.run(ATOLL, "status", "--json").stdout)["lab"]["name"] == "island"
    again = start_run(sandbox, "--seed", "7", "--json")
    output, errors = end(again, 60)
    assert "namespaces" not in errors
    assert json.loads(output)["seed"] == 7
    assert sandbox.run(ATOLL, "down").returncode == 0
    sandbox.wait_clean()


def wait_idle(sandbox: Sandbox) -> dict[str, dict[str, str]]:
    for _ in range(100):
        status = json.loads(sandbox.run(ATOLL, "status", "--json").stdout)
        if status["busy"] is None:
            return status
    raise AssertionError("the daemon is still busy")


def wait_for_traffic(sandbox: Sandbox, experiment: str = "quick", points: int = 3) -> None:
    """Wait until the captures hold something; ``points``: how many there are."""
    run = only_run(sandbox, experiment)
    for _ in range(200):
        captures = list((run / "captures").glob("*.pcap"))
        if len(captures) == points and all(path.stat().st_size > 2000 for path in captures):
            return
        sandbox.run("sleep", "0.1")
    raise AssertionError(f"no traffic captured in {run}")


def only_run(sandbox: Sandbox, experiment: str = "quick") -> Path:
    (run,) = (sandbox.directory / "runs" / experiment).iterdir()
    return run
