# SPDX-License-Identifier: Apache-2.0
"""Agents of machines of their own: limits, what escapes a job, metrics, versions; with control groups and without."""

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from atoll_core.errors import LabError
from atoll_core.plan.plan import HostSettings, InterfaceSettings, JobLimits, RouteSettings
from atoll_hosts.agent import Agent, Exit
from atoll_hosts.binary import find_binary
from atoll_hosts.message_shapes import SUPPORTED_VERSIONS, version_text
from tests.support.agent_lab import alive, eventually, guard_of, guarded_by, pid_here

pytestmark = pytest.mark.lab

MB = 1_000_000
OURS = version_text(SUPPORTED_VERSIONS)

WITH_GROUPS = ["sh", "-c", 'exec "$1" agent --silence 60', "sh"]
WITHOUT = ["sh", "-c", 'exec "$1" agent --silence 60 --no-cgroups', "sh"]
"""Put before the agent's command line: the agent as it is run on a machine of its own."""


@contextlib.asynccontextmanager
async def agent_of(kind: list[str]) -> AsyncGenerator[Agent]:
    """An agent; the test is skipped where it cannot be of that kind."""
    agent = await Agent.start(kind, find_binary())
    try:
        found = (await agent.describe())["limits"]["leftovers"]
        if kind is WITH_GROUPS and found != "cgroup":
            pytest.skip("this machine lets us make no control groups (cgroup v2)")
        assert found == ("cgroup" if kind is WITH_GROUPS else "subreaper")
        yield agent
    finally:
        await agent.close()


both_kinds = pytest.mark.parametrize("kind", [WITH_GROUPS, WITHOUT], ids=["cgroup", "subreaper"])


def daemon(file: Path) -> list[str]:
    """A program that forks twice and leaves its session, as daemons do. It ends once its process id is read."""
    script = f"""
import os, time
if os.fork():
    while not os.path.exists({f"{file}.read"!r}):
        time.sleep(0.01)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
with open({str(file)!r}, "w") as note:
    print(os.getpid(), file=note)
time.sleep(1000)
"""
    return [sys.executable, "-c", script]


async def noted(agent: Agent, file: Path) -> int:
    """The process id here of a daemon that has noted its own."""
    await eventually(lambda: file.exists() and file.read_text().endswith("\n"), "the daemon runs")
    pid = pid_here(guarded_by(guard_of(agent)), int(file.read_text()))
    Path(f"{file}.read").touch()
    return pid


async def escaped(agent: Agent, file: Path) -> int:
    """The process id of a daemon that outlived its job, having cleared its environment."""
    job = await agent.start_job("daemon", ["env", "-i", *daemon(file)])
    pid = await noted(agent, file)
    assert await job.wait() == Exit(0, None)
    return pid


def groups_of(agent: Agent) -> list[Path]:
    """The control group of an agent, which it holds open as a lock."""
    opened = [file.readlink() for file in Path(f"/proc/{guarded_by(guard_of(agent))}/fd").iterdir()]
    return [path for path in opened if path.name.startswith("atoll-agent-")]


# What escapes


@both_kinds
async def test_a_daemon_ends_with_the_job_that_made_it(kind: list[str], tmp_path: Path) -> None:
    """It has a second, like everything a job leaves; the agent goes on."""
    async with agent_of(kind) as agent:
        job = await agent.start_job("daemon", daemon(tmp_path / "pid"))
        pid = await noted(agent, tmp_path / "pid")
        assert await job.wait() == Exit(0, None)
        await eventually(lambda: not alive(pid), "the daemon is gone")
        assert (await (await agent.start_job("next", ["true"])).wait()).code == 0


async def test_a_daemon_without_its_environment_ends_with_its_job_where_there_are_control_groups(
    tmp_path: Path,
) -> None:
    """Nothing else tells whose it is."""
    async with agent_of(WITH_GROUPS) as agent:
        pid = await escaped(agent, tmp_path / "pid")
        await eventually(lambda: not alive(pid), "the daemon is gone")


@both_kinds
async def test_a_daemon_ends_with_the_agent_at_the_latest(kind: list[str], tmp_path: Path) -> None:
    """Closed as it should be; no group is left."""
    async with agent_of(kind) as agent:
        pid, groups = await escaped(agent, tmp_path / "pid"), groups_of(agent)
        assert bool(groups) == (kind is WITH_GROUPS)
    assert not alive(pid)
    assert not any(group.exists() for group in groups)


@both_kinds
async def test_a_daemon_ends_when_the_agent_is_killed(kind: list[str], tmp_path: Path) -> None:
    """Its guard sees to that, and removes the groups."""
    async with agent_of(kind) as agent:
        pid, groups = await escaped(agent, tmp_path / "pid"), groups_of(agent)
        os.kill(guarded_by(guard_of(agent)), signal.SIGKILL)
        await agent.closed
    assert not alive(pid)
    assert not any(group.exists() for group in groups)


async def test_what_an_agent_and_its_guard_left_is_ended_by_the_next(tmp_path: Path) -> None:
    """Both killed at once: nobody but the next agent of this user removes the groups."""
    async with agent_of(WITH_GROUPS) as agent:
        pid, groups = await escaped_from_both(agent, tmp_path / "pid")
    async with agent_of(WITH_GROUPS):
        await eventually(lambda: not alive(pid), "the daemon is gone")
        assert not any(group.exists() for group in groups)


async def test_without_control_groups_a_daemon_ends_when_an_agent_of_root_is_killed_with_its_guard(
    tmp_path: Path,
) -> None:
    """Also one without its environment: the kernel kills all processes of the agent's PID namespace."""
    if os.geteuid() != 0:
        pytest.skip("an agent in a PID namespace of its own takes root")
    async with agent_of(WITHOUT) as agent:
        pid, _ = await escaped_from_both(agent, tmp_path / "pid")
        await eventually(lambda: not alive(pid), "the daemon is gone")


async def escaped_from_both(agent: Agent, file: Path) -> tuple[int, list[Path]]:
    """Kill an agent and its guard; the process id of a daemon that they had, and their control groups."""
    pid, groups, guard = await escaped(agent, file), groups_of(agent), guard_of(agent)
    killed = guarded_by(guard)
    os.kill(guard, signal.SIGKILL)
    os.kill(killed, signal.SIGKILL)
    await agent.closed
    return pid, groups


async def test_agents_that_begin_at_once_leave_each_other_s_groups_alone() -> None:
    """Each looks for what others left, and none takes what another has just made."""
    async with contextlib.AsyncExitStack() as agents:
        begun = await asyncio.gather(*(agents.enter_async_context(agent_of(WITH_GROUPS)) for _ in range(6)))
        jobs = [await agent.start_job("job", ["sleep", "1000"]) for agent in begun]
        groups = [path for agent in begun for path in groups_of(agent)]
        assert len(groups) == len(begun)
        assert all(path.exists() for path in groups)
        assert all(
            alive(pid_here(guarded_by(guard_of(agent)), job.pid)) for agent, job in zip(begun, jobs, strict=True)
        )
    assert not any(path.exists() for path in groups)


# Limits


@both_kinds
async def test_a_job_that_takes_too_long_is_ended_and_says_why(kind: list[str]) -> None:
    """TERM first; one that does not hear it is killed a second later."""
    async with agent_of(kind) as agent:
        within = await agent.start_job("within", ["true"], limits=JobLimits(wall_ns=60 * 10**9))
        polite = await agent.start_job("polite", ["sleep", "1000"], limits=JobLimits(wall_ns=200_000_000))
        script = "trap '' TERM; while :; do sleep 0.02; done"
        deaf = await agent.start_job("deaf", ["sh", "-c", script], limits=JobLimits(wall_ns=200_000_000))
        assert await within.wait() == Exit(0, None)
        assert str(await polite.wait()) == "killed: time limit 0.2 s"
        assert await deaf.wait() == Exit(None, "KILL", "time limit 0.2 s")


@both_kinds
async def test_a_job_that_uses_too_much_cpu_time_is_ended_and_says_why(kind: list[str]) -> None:
    """Counted by the kernel, in whole seconds of CPU time."""
    async with agent_of(kind) as agent:
        job = await agent.start_job("busy", ["sh", "-c", "while :; do :; done"], limits=JobLimits(cpu_ns=10**9))
        assert str(await job.wait()) == "killed: CPU time limit 1 s"


@both_kinds
async def test_a_job_that_writes_too_large_a_file_is_ended_and_says_why(kind: list[str], tmp_path: Path) -> None:
    """The file ends at the limit."""
    async with agent_of(kind) as agent:
        argv = ["head", "-c", str(2 * MB), "/dev/zero"]
        job = await agent.start_job("writer", argv, stdout=tmp_path / "file", limits=JobLimits(file_bytes=MB))
        assert str(await job.wait()) == "killed: file size limit 1 MB"
        assert (tmp_path / "file").stat().st_size == MB


@both_kinds
async def test_a_job_that_takes_too_much_memory_fails_and_says_why(kind: list[str]) -> None:
    """Killed where a control group bounds it; else refused, and named if that is near what it had in use."""
    script = "held = []\nwhile True: held.append(bytearray(b'x') * 1000000)"
    async with agent_of(kind) as agent:
        limits = JobLimits(memory_bytes=100 * MB)
        job = await agent.start_job("greedy", [sys.executable, "-c", script], limits=limits)
        ended = await job.wait()
        by_group = (await agent.describe())["limits"]["memory"] == "cgroup"
        said = "killed: memory limit 100 MB" if by_group else "exit status 1: memory limit 100 MB"
        assert str(ended) == said, job.exit_text()


async def test_niceness_that_the_session_could_not_be_given_is_said() -> None:
    """Where /proc is read-only, or others use up what plain users may set, it would count for little without a word."""
    if not Path("/proc/self/autogroup").exists():
        return  # this kernel does not group sessions: niceness counts
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    read_only = 'mount --bind /proc /proc && mount -o remount,bind,ro /proc && exec "$1" agent'
    async with agent_of(["unshare", "--mount", *user, "sh", "-c", read_only, "sh"]) as agent:
        said = {
            nice: (await agent.start_job(f"nice-{nice}", ["sleep", "60"], limits=JobLimits(nice=nice))).unapplied_limit
            for nice in (None, 0, 7)
        }
    assert said == {
        None: None,
        0: None,
        7: (
            "niceness 7 has an effect within its session only: "
            "the niceness of the session is 0 and could not be changed"
        ),
    }


@both_kinds
async def test_a_limit_of_memory_is_raised_while_the_job_runs(kind: list[str]) -> None:
    """A link may become faster. A higher limit stays, and a job without one has none."""
    shown = "print(resource.getrlimit(resource.RLIMIT_DATA)[0] // 1000000, flush=True)"
    script = f"import resource\ninput()\nwhile input(): {shown}"
    async with agent_of(kind) as agent:
        for limits, expected in ((JobLimits(data_bytes=400 * MB), [400, 900, 900]), (JobLimits(), [-1, -1, -1])):
            said: asyncio.Queue[str] = asyncio.Queue()
            argv = [sys.executable, "-c", script]
            job = await agent.start_job("link", argv, config={}, on_output=said.put_nowait, limits=limits)
            found: list[int] = []
            for raised in (None, 900 * MB, 500 * MB):
                if raised:
                    await job.raise_memory(raised)
                await job.send({})
                found.append(int(await said.get()))
            assert found == expected
            await job.stop(0)
            await job.wait()


@pytest.mark.parametrize("own_user_namespace", [False, True])
async def test_a_program_can_lift_its_limit_of_memory_only_if_the_agent_may_raise_no_hard_limit(
    own_user_namespace: bool,
) -> None:
    """The agent raises hard limits with CAP_SYS_RESOURCE in the initial user namespace; elsewhere the limit is soft."""
    script = """
import contextlib, resource
input()
while input():
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(*resource.getrlimit(resource.RLIMIT_DATA), flush=True)
"""
    initial = Path("/proc/self/ns/user").readlink() == Path("user:[4026531837]")
    capabilities = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16)
    is_hard = initial and bool(capabilities >> 24 & 1) and not own_user_namespace
    unshare = ["unshare", "--user", "--map-root-user"] if own_user_namespace else []
    async with agent_of([*unshare, *WITHOUT]) as agent:
        said: asyncio.Queue[str] = asyncio.Queue()
        without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        argv, limits = [*without, sys.executable, "-c", script], JobLimits(data_bytes=400 * MB)
        job = await agent.start_job("link", argv, config={}, on_output=said.put_nowait, limits=limits)
        for limit in (400 * MB, 900 * MB):
            await job.raise_memory(limit)
            await job.send({})
            assert await said.get() == (f"{limit} {limit}" if is_hard else "-1 -1")
        await job.stop(0)
        await job.wait()


async def test_bounds_that_end_nothing_hold_as_well() -> None:
    """Descriptors, niceness and CPUs, of the job and of what it starts; none of the agent's own are touched.

    Where the kernel groups sessions automatically, niceness counts between the processes of a session only: the job's
    session has it, too.
    """
    script = """
import json, os
try:
    autogroup = open("/proc/self/autogroup").read()
except FileNotFoundError:
    autogroup = ""
found = {"nice": os.nice(0), "cpus": sorted(os.sched_getaffinity(0)), "open_files": os.sysconf("SC_OPEN_MAX")}
found["autogroup"] = int(autogroup.split()[-1]) if autogroup else None
print(json.dumps(found))
"""
    cpu = min(os.sched_getaffinity(0))
    async with agent_of(WITHOUT) as agent:
        said: list[dict[str, Any]] = []
        for limits in (JobLimits(open_files=99, nice=7, cpus=(cpu,)), JobLimits()):
            argv = [sys.executable, "-c", script]
            job = await agent.start_job("say", argv, on_line=said.append, limits=limits)
            assert (await job.wait()).code == 0, job.exit_text()
        grouped = said[0]["autogroup"] is not None
        assert said[0] == {"nice": 7, "cpus": [cpu], "open_files": 99, "autogroup": 7 if grouped else None}
        assert (said[1]["nice"], said[1]["autogroup"]) == (os.nice(0), 0 if grouped else None)
        assert said[1]["cpus"] == sorted(os.sched_getaffinity(0))
        with pytest.raises(LabError, match="CPU 900 is not available"):
            await agent.start_job("nowhere", ["true"], limits=JobLimits(cpus=(900,)))


async def test_the_agent_has_all_descriptors_it_may_have_and_its_jobs_those_it_was_started_with() -> None:
    """Programs that use select() know 1024, whatever the agent needs for a large laboratory."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    script = "import json, resource; print(json.dumps({'open_files': resource.getrlimit(resource.RLIMIT_NOFILE)}))"
    async with agent_of(["sh", "-c", 'ulimit -Sn 200; exec "$1" agent --silence 60 --no-cgroups', "sh"]) as agent:
        assert resource.prlimit(guarded_by(guard_of(agent)), resource.RLIMIT_NOFILE) == (hard, hard)
        said: list[dict[str, Any]] = []
        for limits in (JobLimits(), JobLimits(open_files=99)):
            job = await agent.start_job("say", [sys.executable, "-c", script], on_line=said.append, limits=limits)
            assert (await job.wait()).code == 0, job.exit_text()
        assert [answer["open_files"] for answer in said] == [[200, hard], [99, 99]]


async def test_a_job_that_no_control_group_can_be_made_for_runs_without_and_is_bounded_by_itself() -> None:
    """Whatever the reason; here no more groups are allowed."""
    script = "import json, resource; print(json.dumps({'data': resource.getrlimit(resource.RLIMIT_DATA)}))"
    async with agent_of(WITH_GROUPS) as agent:
        for group in groups_of(agent):
            (group / "cgroup.max.descendants").write_text("0")
        said: list[dict[str, Any]] = []
        argv, limits = [sys.executable, "-c", script], JobLimits(memory_bytes=100 * MB)
        job = await agent.start_job("say", argv, on_line=said.append, limits=limits)
        assert (await job.wait()).code == 0, job.exit_text()
        assert [answer["data"][0] for answer in said] == [100 * MB]


# Metrics


@both_kinds
async def test_metrics_come_at_the_interval_asked_for(kind: list[str]) -> None:
    """A job that computes is seen in its own CPU time and in the machine's."""
    answer: list[dict[str, Any]] = []
    async with agent_of(kind) as agent:
        await agent.start_job("busy", ["sh", "-c", "while :; do :; done"])
        await agent.measure(0.2, [("here", None, ["lo"])], answer.append)
        await eventually(lambda: len(answer) >= 4, "four samples came")
        await agent.stop_measuring()
        count = len(answer)
        await asyncio.sleep(0.5)
        assert len(answer) == count, "no more after that"
    first, last = answer[0], answer[-1]
    passed_ns = last["t_ns"] - first["t_ns"]
    assert passed_ns >= 0.5e9
    used_ns = last["jobs"]["busy"]["cpu_ns"] - first["jobs"]["busy"]["cpu_ns"]
    assert 0 < used_ns < 2 * passed_ns  # a machine that stands still may read it long after t_ns
    assert last["jobs"]["busy"]["host"] == "here"
    assert last["machine"]["busy_ns"] > first["machine"]["busy_ns"]
    assert first["machine"]["busy"] is None
    # The last may come so soon after the one before that the kernel has counted no time since.
    assert all(0 < sample["machine"]["busy"] <= 1 for sample in answer[1:-1])
    assert last["machine"]["cpus"] == os.cpu_count()
    assert set(last["hosts"]["here"]) == {"interfaces", "tcp", "udp"}
    assert last["agent"]["jobs"] == 1
    assert last["clock"]["maximum_error_ns"] > 0
    assert last["unread"] == []


# Versions


def pretending(hello: str) -> list[str]:
    """Put before the agent's command line: a peer that greets like this, reads one line, and waits for its end."""
    return ["sh", "-c", f"echo '{hello}'; cat >/dev/null", "sh"]


@pytest.mark.parametrize(
    ("speaks", "answer"),
    [('"protocol":3,"speaks":[[3,0]]', "3.0"), ('"protocol":1', "1.0"), ('"protocol":"x"', "no version")],
)
async def test_an_agent_that_speaks_another_language_is_named_with_the_remedy(speaks: str, answer: str) -> None:
    """Older, newer, and one that says nothing of the kind."""
    hello = f'{{"type":"hello",{speaks},"version":"9.0.0","pid":1,"arch":"x86_64"}}'
    wrong = f"9.0.0 speaks protocol {answer}, but {OURS} is needed: build both from one revision"
    with pytest.raises(LabError, match=wrong):
        await Agent.start(pretending(hello), find_binary())


async def test_an_agent_ends_when_it_is_greeted_in_another_language(tmp_path: Path) -> None:
    """In one line that says what to do."""
    process = await asyncio.create_subprocess_exec(
        find_binary(), "agent", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    said, _ = await process.communicate(b'{"op":"hello","speaks":[[3,5]]}\n{"id":1,"op":"clock"}\n')
    assert process.returncode == 0
    _, refusal = said.decode().splitlines()[:2]
    assert f"speaks protocol {OURS}, not 3.5: install the one that fits" in refusal


async def test_an_agent_before_2_3_gets_no_key_of_2_3_that_has_its_default(tmp_path: Path) -> None:
    """It would refuse all settings of the machine."""
    asked = tmp_path / "asked"
    hello = '{"type":"hello","protocol":2,"speaks":[[2,2]],"version":"0","pid":1,"arch":"x86_64"}'
    answer = '{"type":"answer","id":1,"ok":true,"was":{"sysctls":[],"offloads":{}}}'
    older = f"echo '{hello}'; read -r _; read -r line; echo \"$line\" > {asked}; echo '{answer}'; cat > /dev/null"
    agent = await Agent.start(["sh", "-c", older, "sh"], find_binary())
    try:
        interface = InterfaceSettings("w1-eth0", "02:00:00:00:00:01", None, (RouteSettings("10.20.0.0/16"),), ())
        await agent.set_host(HostSettings("w1", (interface,)))
    finally:
        await agent.close()
    assert "10.20.0.0/16" in asked.read_text()
    assert "quick_ack" not in asked.read_text()


@both_kinds
async def test_files_in_memory_have_a_bound_and_what_was_written_stays(kind: list[str]) -> None:
    """On a machine whose disk rests while it measures; afterwards jobs may write as much as before."""
    name = f"memory-{os.getpid()}"
    write = ["head", "-c", "1000000", "/dev/zero"]
    async with agent_of(kind) as agent:
        with pytest.raises(LabError, match=r"room for [0-9]+ MB in memory, .* set files_limit of the machine, or"):
            await agent.request("spool", name=name, memory_bytes=1 << 60)
        directory = Path((await agent.request("spool", name=name, memory_bytes=300_000))["path"])
        assert directory.is_relative_to("/dev/shm")
        try:
            job = await agent.start_job("writer", write, stdout=directory / "logs" / "all")
            ended = await job.wait()
            assert ended.signal == "XFSZ"
            assert ended.exceeded == "files_limit of the inventory, for files in memory, 300 kB"
            spool = (await agent.request("files", name=name))["spool"]
            assert spool == {"path": str(directory), "files": [{"name": "logs/all", "bytes": 300_000}]}
        finally:
            await agent.request("discard", name=name)
        assert not directory.exists()
        on_disk = Path((await agent.request("spool", name=name))["path"])
        try:
            job = await agent.start_job("writer", write, stdout=on_disk / "logs" / "all")
            assert await job.wait() == Exit(0, None)
            assert on_disk.is_relative_to("/var/tmp")
        finally:
            await agent.request("discard", name=name)
