# SPDX-License-Identifier: Apache-2.0
"""An agent that minds silence, while it is at work itself."""

import itertools
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from atoll_hosts.binary import find_binary

pytestmark = pytest.mark.lab


def test_an_agent_at_work_for_longer_than_the_silence_allows_is_there_and_ends_nothing(tmp_path: Path) -> None:
    """A tool that takes 4 s, a silence of 2 s: beats go on both ways meanwhile, requests are served, jobs live."""
    slow = tmp_path / "sha256sum"
    slow.write_text("#!/bin/sh\nsleep 4\n")
    slow.chmod(0o755)
    with subprocess.Popen(
        [find_binary(), "agent", "--silence", "2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, heard = process.stdin, process.stdout
        begun = time.monotonic()

        def ask(**request: object) -> None:
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()

        said: list[tuple[float, dict[str, object]]] = []

        def listen() -> None:
            said.extend((time.monotonic() - begun, json.loads(line)) for line in heard)

        listener = threading.Thread(target=listen)
        listener.start()
        ask(id=1, op="start", job="sleeper", argv=["sleep", "1000"])
        ask(id=2, op="describe")
        ask(id=3, op="clock")
        while time.monotonic() < begun + 7 and process.poll() is None:
            ask(op="beat")
            time.sleep(0.5)
        lived = process.poll() is None
        requests.close()
        listener.join()
    answers = {message["id"]: at for at, message in said if message["type"] == "answer"}
    assert lived, said
    assert answers[3] < 3 < answers[2]
    beats = [at for at, message in said if message["type"] == "beat"]
    assert max(b - a for a, b in itertools.pairwise(beats)) < 3, beats
