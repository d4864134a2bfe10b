# SPDX-License-Identifier: Apache-2.0
"""Tokens in the environment of who brings a lab up are in that of nothing in the lab, where strangers' programs run."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from atoll_core.secret_variables import SECRETS
from tests.support.sandbox import ATOLL, ROOT, Sandbox

pytestmark = pytest.mark.lab

SECRET = "a-token-that-nobody-is-to-know"
KEEPER = "atoll_daemon"
EXAMPLE = ROOT / "examples" / "geo.yaml"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A lab brought up by somebody who has all tokens in the environment, and no database there."""
    with Sandbox(tmp_path_factory.mktemp("secrets")) as sandbox:
        tokens = [f"{name}={SECRET}" for name in sorted(SECRETS)]
        words = ["env", f"HOME={sandbox.directory}", *tokens, "ATOLL_INFLUX_URL=http://127.0.0.1:9"]
        up = sandbox.run(*words, ATOLL, "up", EXAMPLE)
        assert up.returncode == 0, up.stderr
        yield sandbox
        sandbox.run(ATOLL, "down", limit_s=100)


def environments(sandbox: Sandbox) -> dict[str, bytes]:
    """Of each process in the sandbox, by its command line and pid."""
    found: dict[str, bytes] = {}
    for pid, line in sandbox.processes().items():
        done = subprocess.run(sandbox.command(["cat", f"/proc/{pid}/environ"]), capture_output=True, check=False)
        found[f"{line} ({pid})"] = done.stdout
    return found


def test_only_the_daemon_has_the_token_of_the_database(lab: Sandbox) -> None:
    """Not the lab's first process, Open vSwitch, the controller, the agent, the boxes, the machines' shells."""
    found = environments(lab)
    for part in (
        "atoll_emulation.mininet_lab.ns_init",
        "ovs-vswitchd",
        "atoll_controller.openflow",
        "agent",
        " link",
        "mininet:w1",
    ):
        assert any(part in line for line in found), part
    knowing = [line for line, environment in found.items() if SECRET.encode() in environment]
    assert len(knowing) == 1, knowing
    assert KEEPER in knowing[0]
    (held,) = (environment for line, environment in found.items() if line == knowing[0])
    assert [part for part in held.split(b"\0") if SECRET.encode() in part] == [f"ATOLL_INFLUX_TOKEN={SECRET}".encode()]


def test_neither_a_machine_nor_the_command_line_tells_it(lab: Sandbox) -> None:
    """What users type, and what they start on a machine; a shell opened by one who has the tokens included."""
    script = "w1 env\nsh env\npy __import__('os').environ\nw1 cat /proc/[0-9]*/environ\n"
    variables = {**os.environ, **dict.fromkeys(SECRETS, SECRET)}
    done = subprocess.run(
        lab.command([ATOLL, "shell"]),
        input=script.encode(),
        capture_output=True,
        timeout=60,
        check=False,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    assert b"PATH=" in done.stdout
    assert SECRET.encode() not in done.stdout + done.stderr
