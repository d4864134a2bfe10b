# SPDX-License-Identifier: Apache-2.0
"""Text that a shell prints before an agent greets, or instead of it, is quoted in the error."""

import json
from collections.abc import Callable

import pytest

from atoll_core.errors import LabError
from atoll_hosts.agent import Agent
from atoll_hosts.line_stream import LineProcess, LineStream

HELLO = json.dumps({"type": "hello", "protocol": 2, "speaks": [[2, 0]], "version": "0", "pid": 1, "arch": "x86_64"})
REMEDY = "if ~/.bashrc, ~/.profile or /etc/profile.d does so, let it print only on a terminal"


async def connect(script: str) -> Agent:
    """An agent at the far end of a stream, where ``sh`` runs the script."""

    async def open_stream(on_line: Callable[[bytes], None], longest: int) -> LineStream:
        process = LineProcess(on_line, longest)
        await process.start(["sh", "-c", script])
        return process

    return await Agent.connect(open_stream, "ws", silence_s=8, remedy="install the right one")


@pytest.mark.parametrize("text", ["Welcome to ws", r"\n{}\nWelcome to ws\nhave fun", "5"])
async def test_a_line_printed_before_the_greeting_is_quoted(text: str) -> None:
    with pytest.raises(LabError) as error:
        await connect(f"printf '{text}\\n'; echo '{HELLO}'; exec cat >/dev/null")
    first = next(line for line in text.split(r"\n") if line)
    assert str(error.value) == f"the connection to ws's agent broke: the shell there printed '{first}'; {REMEDY}"


async def test_the_text_of_nologin_is_quoted() -> None:
    with pytest.raises(LabError) as error:
        await connect("echo 'This account is currently not available.'; exit 1")
    assert str(error.value).startswith(
        "ws's agent did not start: exit status 1; the shell there printed 'This account is currently not available.'"
    )


async def test_text_before_a_greeting_that_does_not_come_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll_hosts.agent._HELLO_TIMEOUT_S", 0.3)
    with pytest.raises(LabError, match=r"^ws's agent sent no greeting within 0\.3 s .* printed '\ufffd\[2JWelcome'"):
        await connect(r"printf '\033[2JWelcome\n'; exec cat >/dev/null")


async def test_a_shell_that_prints_without_end_is_cut_off() -> None:
    with pytest.raises(LabError, match=r"^the connection to ws's agent broke: 'y' is not a message: "):
        await connect("exec yes")
