# SPDX-License-Identifier: Apache-2.0
"""What jobs may do beyond what any process may: what they were left, tried by programs that want more."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll_hosts.agent import Agent, Exit
from atoll_hosts.binary import find_binary
from tests.support.agent_lab import READY_S, SANDBOX, eventually

pytestmark = pytest.mark.lab

NET_RAW = 1 << 13
NOBODY, PLAIN = 65_534, 64_801


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    """An agent of root."""
    if os.geteuid() != 0:
        pytest.skip("having something to lose takes root")
    agent = await Agent.start([], find_binary())
    yield agent
    await agent.close()


def status(pid: int) -> dict[str, str]:
    """What the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


def held(pid: int) -> int:
    """The capabilities of a process."""
    return int(status(pid)["CapEff"], 16)


async def test_a_program_of_others_can_neither_write_roots_files_nor_get_rights_back(
    agent: Agent, tmp_path: Path
) -> None:
    """It is nobody, whatever it runs; the agent ends it all the same."""
    mine = tmp_path / "mine"
    mine.write_text("mine", encoding="utf-8")
    script = f"""
import os, socket, subprocess, time
def tried(what, attempt):
    try:
        attempt()
        print(what, "done")
    except OSError as error:
        print(what, error.strerror)
tried("write", lambda: open({str(mine)!r}, "w"))
tried("passwords", lambda: open("/etc/shadow"))
tried("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
tried("root", lambda: os.setuid(0))
tried("become", lambda: print(subprocess.run(["su", "-c", "id"], stdin=subprocess.DEVNULL).returncode != 0))
print("ready", flush=True)
time.sleep(1000)
"""
    said: list[str] = []
    argv = ["python3", "-c", script]
    job = await agent.start_job("stranger", argv, on_output=said.append, privileges=())
    await eventually(lambda: "ready" in said, "all was tried")
    now = status(job.pid)
    assert (now["Uid"].split(), now["Groups"]) == ([str(NOBODY)] * 4, "")
    assert {now[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert now["NoNewPrivs"] == "1"
    denied = ("Permission denied", "Operation not permitted")
    for what in ("write", "passwords", "packets", "root"):
        assert any(line in [f"{what} {why}" for why in denied] for line in said), said
    assert "True" in said
    assert mine.read_text(encoding="utf-8") == "mine"
    await job.stop(READY_S)
    assert await job.wait() == Exit(None, "TERM")


async def test_a_program_keeps_what_it_is_given_and_passes_it_on(agent: Agent) -> None:
    """By name; that of an agent who has it."""
    raw = "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('opened')"
    said: list[str] = []
    argv = ["sh", "-c", '"$@"', "sh", "python3", "-c", raw]
    job = await agent.start_job("raw", argv, on_output=said.append, privileges=["net-raw"])
    assert ((await job.wait()).code, said) == (0, ["opened"])


async def test_a_program_in_a_private_folder_is_its_owners(agent: Agent) -> None:
    """Nobody could not even read it; of root's folder it is root's, without any rights."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for owner, mode, user in ((PLAIN, 0o700, PLAIN), (PLAIN, 0o755, NOBODY), (0, 0o700, 0)):
            os.chown(folder, owner, owner)
            Path(folder).chmod(mode)
            job = await agent.start_job("one", ["sleep", "1000"], privileges=(), directory=folder)
            assert status(job.pid)["Uid"].split() == [str(user)] * 4
            assert (Path(f"/proc/{job.pid}/cwd").resolve(), held(job.pid)) == (Path(folder), 0)
            await job.stop(READY_S)
            await job.wait()


async def test_a_capture_writes_where_only_root_may_and_keeps_packets_alone(agent: Agent, tmp_path: Path) -> None:
    """In a folder of another user's: the right to open its file is gone when it is ready."""
    folder = tmp_path / "run"
    folder.mkdir()
    os.chown(folder, PLAIN, PLAIN)
    folder.chmod(0o700)
    config = {"interface": "lo", "file": str(folder / "lo.pcap"), "snap_bytes": 96, "direction": "both"}
    config |= {"buffer_bytes": 1 << 20}
    job = await agent.start_job(
        "capture", ["atoll-host", "capture"], config=config, privileges=("net-raw", "dac-override")
    )
    await job.ready(READY_S)
    assert held(job.pid) == NET_RAW
    assert status(job.pid)["Name"] == "atoll-host"
    await job.stop(READY_S)
    assert (await job.wait()).code == 0
    assert (folder / "lo.pcap").stat().st_size >= 24


async def test_agents_that_have_few_rights_or_no_other_user_start_jobs_as_before(tmp_path: Path) -> None:
    """Of a plain user, and of root in a user namespace of one user."""
    binary = tmp_path / "atoll-host"
    shutil.copy(find_binary(), binary)
    kinds = [SANDBOX if os.geteuid() else ["unshare", "--user", "--map-root-user", "--"]]
    if os.geteuid() == 0:
        public = Path(tempfile.mkdtemp(dir="/tmp"))
        public.chmod(0o755)
        binary = Path(shutil.move(binary, public / "atoll-host"))
        kinds.append(["setpriv", f"--reuid={PLAIN}", f"--regid={PLAIN}", "--clear-groups", "--"])
    for kind in kinds:
        agent = await Agent.start(kind, binary)
        said: list[str] = []
        job = await agent.start_job("id", ["id", "-u"], on_output=said.append, privileges=["net-raw"])
        assert (await job.wait()).code == 0
        assert said == [str(PLAIN if kind[0] == "setpriv" else 0)]
        own = await agent.start_job("own", ["atoll-host", "flows", "--help"], privileges=())
        assert (await own.wait()).code == 0
        await agent.close()
    if os.geteuid() == 0:
        shutil.rmtree(binary.parent)
