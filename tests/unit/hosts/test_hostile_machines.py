# SPDX-License-Identifier: Apache-2.0
"""A machine of the rack that somebody has taken over, met by the daemon: a real agent process, a real SSH server.

Whatever it says, nothing here is written but what its jobs were asked to write, and nobody else is disturbed.
"""

import asyncio
import contextlib
import json
import shlex
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from atoll_core.description.loader import load_lab
from atoll_core.errors import LabError, RunError
from atoll_core.events.event_bus import EventBus
from atoll_core.lab.inventory import Inventory, InventoryMachine, NamedInterface, SshAccess
from atoll_core.plan.plan import JobSpec, Phase
from atoll_hosts.agent import Agent
from atoll_hosts.machine import ClockOffset
from atoll_hosts.ssh import installation
from atoll_hosts.ssh.connections import SshConnections
from atoll_hosts.ssh.remote_agent import start_agent
from atoll_testbed.metrics.metric_points import box_points, job_points
from atoll_testbed.platforms import hardware
from atoll_testbed.platforms.hardware import HardwarePlatform
from atoll_testbed.platforms.machine_checks import missing_prerequisites
from atoll_testbed.run.run_recorder import RunRecorder
from tests.support import synthetic_run
from tests.support.sandbox import ROOT

AGENT = Path(__file__).parents[2] / "guests" / "hostile_agent.py"

FLOWS = "logs/flows-i1.csv"
MACHINE = InventoryMachine("i1", SshAccess("127.0.0.1"), ())


def asked_to_capture() -> JobSpec:
    config = {"file": "{run}/captures/world.pcap", "interface": "x"}
    return JobSpec("capture-world", "cap", Phase.CAPTURE, ("atoll-host", "capture"), config, stderr="logs/capture.err")


def hostile(directory: Path, says: dict[str, Any]) -> list[str]:
    """The command of an agent that says this."""
    output = directory / "says.json"
    output.write_text(json.dumps(says))
    return [sys.executable, str(AGENT), str(output)]


@asynccontextmanager
async def hostile_agent(directory: Path, says: dict[str, Any]) -> AsyncGenerator[Agent]:
    """An agent on this machine that says this."""
    agent = await Agent.start(hostile(directory, says), Path("unused"))
    try:
        yield agent
    finally:
        await agent.close()
        await asyncio.sleep(0.05)  # asyncio closes the pipes of a process some turns after its end


class Server(asyncssh.SSHServer):
    """Lets everybody in: it is on loopback, for the time of a test."""

    def begin_auth(self, username: str) -> bool:
        return False


@asynccontextmanager
async def place(directory: Path, answers: dict[str, Any]) -> AsyncGenerator[HardwarePlatform]:
    """A rack of one machine, whose agent gives these answers and whose other commands are this machine's own."""
    spool = {"spool": {"path": str(directory)}}
    children: list[subprocess.Popen[bytes]] = []

    async def serve(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        command = process.command or ""
        if "agent --silence" in command:
            command = shlex.join(hostile(directory, {"answers": {**spool, **answers}}))
        child = subprocess.Popen(  # noqa: ASYNC220 - asyncssh relays its pipes
            command, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        children.append(child)
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        try:
            await process.stdout.drain()  # to its end
            await process.stderr.drain()
            process.exit(await asyncio.to_thread(child.wait))
        finally:
            await process.wait_closed()  # what asyncssh has still to do for the pipes

    key = asyncssh.generate_private_key("ssh-ed25519")
    listening = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=Server, server_host_keys=[key], process_factory=serve, encoding=None
    )
    async with asyncssh.connect("127.0.0.1", listening.get_port(), known_hosts=None, username="root") as connection:
        agent = await start_agent(connection, "i1", MACHINE.access)
        reached = hardware._RemoteMachine(MACHINE, connection, agent, {}, ClockOffset(0, 0, 0))
        inventory = Inventory("rack.yaml", IPv4Address("127.0.0.1"), 6653, (MACHINE,))
        made = HardwarePlatform(synthetic_run.network(), inventory, SshConnections(), {"i1": reached})
        yield made
        await made.stop()
    listening.close()
    for child in children:
        child.kill()
        child.wait()


def offer(there: Path, *files: tuple[str, int]) -> dict[str, Any]:
    """The answer to ``files``."""
    listed = [{"name": name, "bytes": size} for name, size in files]
    return {"files": {"spool": {"path": str(there), "files": listed}}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory, two levels below what must not be written to."""
    made = tmp_path / "runs" / "geo" / "1"
    for folder in ("captures", "logs"):
        (made / folder).mkdir(parents=True)
    return made


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The machine's spool, with a file that its jobs were asked to write and others that they were not."""
    spool = tmp_path / "there"
    (spool / "logs").mkdir(parents=True)
    (spool / "captures").mkdir()
    (spool / FLOWS).write_text("channel,flow\n")
    (tmp_path / "escaped").write_text("of the machine")
    return spool


async def collected(run: Path, there: Path, answers: dict[str, Any]) -> tuple[str, ...]:
    """What is told of a machine whose jobs were asked to write the log of flows."""
    async with place(there, answers) as made:
        await made.directory("i1", run, {FLOWS})
        return await made.collect(run)


def written(run: Path) -> set[str]:
    """The files below the run directory and beside it, but for what the machine itself has."""
    base = run.parents[2]
    found = {str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith("there/")} - {"escaped"}


async def test_a_file_that_was_asked_for_is_brought(run: Path, there: Path) -> None:
    """Otherwise the other tests would prove nothing."""
    assert await collected(run, there, offer(there, (FLOWS, 13))) == ()
    assert (run / FLOWS).read_text() == "channel,flow\n"


@pytest.mark.parametrize(
    "name",
    [
        "../escaped",
        "../../escaped",
        "logs/../../../../escaped",
        "/tmp/atoll-test-escaped",
        "captures/world.pcap",
        "captures/world.pcap.zst",
        "logs/../logs/flows-i1.csv",
        "logs/flows-i2.csv",
        "logs/\x1b]0;owned\x07.csv",
        "logs/flows-i1.csv\n.csv",
        "manifest.json",
        "logs",
        "",
    ],
)
async def test_a_name_that_its_jobs_were_not_given_is_refused(run: Path, there: Path, name: str) -> None:
    """Outside the run, another machine's, the daemon's own, with control characters: nothing is written anywhere."""
    before = written(run)
    output = await collected(run, there, offer(there, (FLOWS, 13), (name, 14)))
    assert len(output) == 1
    assert output[0].startswith("i1: its agent offers ")
    assert output[0].isprintable()
    assert written(run) == before
    assert not Path("/tmp/atoll-test-escaped").exists()


async def test_a_file_longer_than_offered_is_cut_off(run: Path, there: Path) -> None:
    """It could go on for ever."""
    with (there / FLOWS).open("wb") as file:
        file.truncate(8_000_000)
    output = await collected(run, there, offer(there, (FLOWS, 1000)))
    assert output == ("i1: logs/flows-i1.csv has more than the 1000 bytes that the machine announced",)
    assert sum((run.parents[2] / name).stat().st_size for name in written(run)) <= 1000


@pytest.mark.parametrize(
    ("size", "refusal"), [(10**15, "half of the free space on the disk"), (-1, "with an invalid size")]
)
async def test_a_machine_cannot_fill_the_disk(run: Path, there: Path, size: int, refusal: str) -> None:
    (output,) = await collected(run, there, offer(there, (FLOWS, size)))
    assert refusal in output
    assert written(run) == set()


async def test_the_same_file_twice_is_refused(run: Path, there: Path) -> None:
    assert (await collected(run, there, offer(there, *[(FLOWS, 13)] * 1000)))[0].endswith("with an invalid size")


async def test_what_the_run_has_is_not_overwritten_and_no_link_is_followed(run: Path, there: Path) -> None:
    outside = run.parents[2] / "outside"
    outside.write_text("mine")
    for name in (FLOWS, f"{FLOWS}.part"):
        (run / name).symlink_to(outside)
        assert len(await collected(run, there, offer(there, (FLOWS, 13)))) == 1
        (run / name).unlink()
    (run / FLOWS).write_text("mine")
    output = await collected(run, there, offer(there, (FLOWS, 13)))
    assert output == ("i1: logs/flows-i1.csv is in the run directory already and was not overwritten",)
    assert (outside.read_text(), (run / FLOWS).read_text()) == ("mine", "mine")


@pytest.mark.parametrize(
    "answers",
    [
        {"files": {"spool": "x"}},
        {"files": {"spool": {"path": 5, "files": []}}},
        {"files": {"spool": {"path": "/", "files": [{"name": 5, "bytes": 1}]}}},
        {"files": {"spool": {"path": "/", "files": [{"name": FLOWS, "bytes": True}]}}},
        {"files": {}},
    ],
)
async def test_an_answer_of_another_shape_is_named(run: Path, there: Path, answers: dict[str, Any]) -> None:
    output = await collected(run, there, answers)
    assert len(output) == 1
    assert output[0].startswith("i1: its agent's answer to 'files' is invalid: ")


async def test_a_command_that_never_stops_talking_is_cut_off(run: Path, there: Path) -> None:
    async with place(there, {}) as made:
        connection = made._remotes["i1"].connection
        with pytest.raises(LabError, match="i1: yes: the program prints more than 65536 bytes"):
            await installation.run_remote(connection, "i1", "yes")


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "5",
        "{}",
        '{"type":5}',
        '{"type":"line"}',
        '{"type":"line","job":[],"stream":"stdout","line":"{}"}',
        '{"type":"line","job":"load","stream":"stdout","line":5}',
        '{"type":"exit","job":"load","code":"0","signal":null}',
        '{"type":"answer","id":{},"ok":true}',
        '{"type":"answer","id":99,"ok":NaN}',
        '{"type":"hello","version":"1","arch":"x"}',
        '{"type":"metrics","t_ns":"1\\nlink rate=1i 1","machine":{},"hosts":{},"jobs":{},"unread":[]}',
        "[" * 100_000,
        "\\xff",
        '{"type":"line","job":"load","stream":"stdout","line":"{\\"type\\":\\"counters\\",\\"t_ns\\":[]}"}',
    ],
)
async def test_a_line_that_makes_no_sense_ends_its_own_agent_and_nothing_else(tmp_path: Path, line: str) -> None:
    """With one printable line as the reason; requests fail with it, and no handler of ours breaks."""
    broken: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    spec = JobSpec("load", "i1", Phase.CLIENT, ("load",))
    says = {"answers": {"clock": {"t_ns": 1}, "start": {"pid": 2}, "measure": {}}, "lines": [line]}
    async with hostile_agent(tmp_path, says) as agent:
        await agent.start_job("load", ["x"], config={}, on_line=lambda said: deque(job_points(spec, said)).clear())
        await agent.measure(1.0, [("i1", None, [])], lambda _: None)
        with contextlib.suppress(LabError):  # it may have been answered before
            await agent.request("clock")
        reason = await asyncio.shield(agent.closed)
        assert reason.startswith("the connection to the agent broke: ")
        assert reason.isprintable()
        assert len(reason) < 3000
        assert not broken


async def test_a_request_that_is_never_answered_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent may go on saying that it is there."""
    async with hostile_agent(tmp_path, {"answers": {"clock": {"t_ns": 1}}, "unanswered": ["files"]}) as agent:
        with monkeypatch.context() as patch:
            patch.setattr("atoll_hosts.agent._LONGEST_REQUEST_S", 0.2)
            with pytest.raises(LabError, match=r"its agent has not answered 'files' within 0\.2 s"):
                await agent.request("files")
        await agent.request("clock")


async def test_words_of_a_machine_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    """Refusals, standard error of a job and what a machine says of itself: all of it printable, and bounded."""
    evil = "\x1b]0;owned\x07\x1b[2J\r\nforged line\u202e" + "x" * 100_000
    stderr = json.dumps({"type": "line", "job": "load", "stream": "stderr", "line": evil})
    ended = json.dumps({"type": "exit", "job": "load", "code": None, "signal": evil[:30], "exceeded": evil[:30]})
    described = {
        "hostname": evil,
        "kernel": evil,
        "user": 0,
        "cpus": 1,
        "memory_bytes": 1,
        "free_bytes": 1,
        "may_configure": False,
        "may_capture": False,
        "missing_tools": [evil],
        "interfaces": {"e": {"mac": evil, "mtu": 1, "up": True, "carrier": True, "addresses": [evil]}},
    }
    says: dict[str, Any] = {"answers": {"clock": {"t_ns": 1}, "start": {"pid": 2}}, "lines": [stderr, ended]}
    says["answers"]["set"] = {"ok": False, "error": evil}
    says["answers"]["describe"] = described
    async with hostile_agent(tmp_path, says) as agent:
        job = await agent.start_job("load", ["x"])
        await agent.request("clock")
        await job.wait()
        with pytest.raises(LabError) as refused:
            await agent.request("set")
        machine = InventoryMachine("i1", SshAccess("x"), (NamedInterface("interface", "e"),))
        wrong = missing_prerequisites(
            machine, await agent.describe(), ClockOffset(0, 0, 0), "", load_lab(ROOT / "tests/data/rack-lab.yaml")
        )
        assert any("has an invalid MAC address" in line for line in wrong)
        for output in (job.exit_text(), str(refused.value), *wrong):
            assert output.isprintable(), output[:200]
        assert len(job.exit_text()) < 2000
        assert len(str(refused.value)) <= 2000


METRICS: dict[str, Any] = {
    "type": "metrics",
    "t_ns": 1,
    "machine": {},
    "agent": {},
    "clock": None,
    "unread": [],
    "hosts": {},
    "jobs": {},
}


async def test_metrics_of_what_nobody_asked_for_make_no_series(tmp_path: Path) -> None:
    """Each name would be a series of its own, in the page's memory and in the database."""
    figures = {"interfaces": {"e0": {"rx_packets": 1}, "made-up": {"rx_packets": 1}}, "tcp": {}}
    output = {**METRICS, "hosts": {"i1": figures, "i2": figures}, "jobs": {"made-up": {"host": "i1"}}}
    says = {"answers": {"clock": {"t_ns": 1}, "measure": {}}, "lines": [json.dumps(output)]}
    taken: list[dict[str, Any]] = []
    async with hostile_agent(tmp_path, says) as agent:
        await agent.measure(1.0, [("i1", None, ["e0"])], taken.append)
        await agent.request("clock")
    assert [(found["hosts"], found["jobs"]) for found in taken] == [
        ({"i1": {**figures, "interfaces": {"e0": {"rx_packets": 1}}}}, {})
    ]


async def test_metrics_without_pause_end_their_agent(tmp_path: Path) -> None:
    """Each message makes points in the run's spool: thousands a second would fill the disk."""
    says = {"answers": {"clock": {"t_ns": 1}, "measure": {}}, "lines": [json.dumps(METRICS)] * 1000}
    taken: list[dict[str, Any]] = []
    async with hostile_agent(tmp_path, says) as agent:
        await agent.measure(3600.0, [("i1", None, [])], taken.append)
        with pytest.raises(
            LabError, match=r"^the connection to the agent broke: metrics more often than every 3600 s$"
        ):
            await agent.request("clock")
    assert len(taken) == 10


async def test_metrics_that_come_together_are_taken(tmp_path: Path) -> None:
    """The daemon or the network may have been busy for some seconds: none of them was sent too soon."""
    says = {"answers": {"clock": {"t_ns": 1}, "measure": {}}, "lines": [json.dumps(METRICS)] * 8}
    taken: list[dict[str, Any]] = []
    async with hostile_agent(tmp_path, says) as agent:
        await agent.measure(3600.0, [("i1", None, [])], taken.append)
        await agent.request("clock")
    assert len(taken) == 8


def test_figures_that_are_none_and_names_that_nobody_gave_become_no_points() -> None:
    ping = JobSpec("ping", "ws", Phase.PING, ("ping",), {"targets": [{"name": "is", "address": "10.20.1.1"}]})
    reply = {"type": "reply", "sent_ns": 1, "rtt_ns": "2,admin=true"}
    assert not [*job_points(ping, {**reply, "target": "made-up"})]
    (point,) = job_points(ping, {**reply, "target": "is"})
    assert "rtt_ns" not in point.fields
    (link,) = box_points("sat", {"t_ns": 1, "to_island": {"in_packets": {}, "out_packets": 3}}, {}, {})
    assert link.fields == {"out_packets": 3}
    classes = {"t_ns": 1, "classes": {"101": {"in_packets": 1}, "4000": {"in_packets": 1}}}
    assert [point.tags.get("vlan") for point in box_points("delay", classes, {101: "near"}, {})] == [None, "101"]
    with pytest.raises(ValueError, match="instant"):
        list(job_points(ping, {**reply, "target": "is", "sent_ns": "1\nlink rate=1i 1"}))


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecorder:
    """Of a run below ``tmp_path``, in which a job may say little."""
    monkeypatch.setattr("atoll_testbed.run.run_recorder._MAX_OUTPUT_BYTES", 10_000)
    monkeypatch.setattr("atoll_testbed.run.run_recorder._MAX_OUTPUT_BYTES_S", 100)
    lab, asked = synthetic_run.network(), synthetic_run.experiment()
    return RunRecorder(synthetic_run.begin(tmp_path, asked, lab), lab, asked, EventBus())


@pytest.mark.parametrize(("job", "log"), [("load-i1", "logs/load-i1.out"), ("delay", "link.jsonl")])
def test_a_job_or_box_that_floods_its_log_ends_the_run(
    tmp_path: Path, recording: RunRecorder, job: str, log: str
) -> None:
    """The disk would be full before the run is over; the line names who it was."""
    flood = recording.line_recorder(JobSpec(job, "i1", Phase.CLIENT, ("load",)), 0)
    line = {"type": "counters", "t_ns": 1, "text": "x" * 100}
    for _ in range(1000):
        recording.record_box_line(job, line) if job == "delay" else flood(line)
    with pytest.raises(RunError, match=f"^{job} prints more than a job is allowed in a run of this length"):
        recording.raise_if_broken()
    recording.close()
    (kept,) = tmp_path.rglob(log)
    assert kept.stat().st_size <= 11_000


def test_of_a_users_program_that_floods_its_log_the_beginning_is_kept_and_a_note_says_so(
    tmp_path: Path, recording: RunRecorder
) -> None:
    for _ in range(1000):
        recording.record_program_line("relay", "x" * 100)
    recording.raise_if_broken()
    recording.close()
    (kept,) = tmp_path.rglob("logs/relay.out")
    assert kept.stat().st_size <= 11_000
    (events,) = tmp_path.rglob("events.jsonl")
    assert events.read_text().count("relay prints more than") == 1


def test_the_files_of_a_job_are_those_that_it_is_told_of() -> None:
    assert asked_to_capture().files == {"captures/world.pcap", "logs/capture.err"}
    assert JobSpec("x", "i1", Phase.REPORT, ("sh", "--log={run}/logs/x.log")).files == {"logs/x.log"}
