# SPDX-License-Identifier: Apache-2.0
"""Twins in front of the bridges of tests, as processes that are given commands."""

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from atoll_core.codec import to_json
from atoll_emulation.twin.__main__ import settings_of
from atoll_emulation.twin.twin_proxy import TwinSpec
from tests.support.bridges import Switches
from tests.support.sandbox import ROOT

TwinProcess = subprocess.Popen[str]


def start_twin(
    bridges: Switches, stack: ExitStack, dpid: int, driver: str, settings: list[str], port: int, listen: int
) -> TwinProcess:
    """A twin that ends with the stack; its bridge connects to port ``listen``, and it to the controller's ``port``."""
    spec = TwinSpec(f"sw-{dpid}", driver, listen, settings_of(settings))
    argv = [*bridges.enter, sys.executable, "-m", "atoll_emulation.twin"]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, text=True)
    stack.callback(process.wait, 20)
    tell(process, {"controller": port, "twins": [to_json(spec)]})
    assert process.stdin is not None
    stack.callback(process.stdin.close)
    bridges.connect(listen, f"br{dpid}")
    return process


def tell(process: TwinProcess, line: dict[str, Any]) -> None:
    """Give a line to a process of twins (docs/contracts.md, "Twins")."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()
