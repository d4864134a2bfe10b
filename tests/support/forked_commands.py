# SPDX-License-Identifier: Apache-2.0
"""Commands of `atoll` in processes of their own, forked from one that has loaded it: a start takes half a second."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

# Its objects are neither copied nor collected by the forked ones. It ends with its input.
_LOADED = """
import gc, importlib, json, os, pkgutil, sys
import atoll_cli.commands
for module in pkgutil.iter_modules(atoll_cli.commands.__path__, "atoll_cli.commands."):
    importlib.import_module(module.name)
import atoll_core.description.loader, atoll_switches.configuration
from atoll_cli.main import main
gc.freeze()
while line := sys.stdin.readline():
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(asked["directory"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        for stream, name in enumerate(("/dev/null", asked["out"], asked["err"])):
            os.dup2(os.open(name, os.O_RDWR), stream)
        sys.argv = ["atoll", *asked["words"]]
        main()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def _loaded() -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _LOADED]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def atoll(
    *words: str | Path, directory: Path | None = None, environment: Mapping[str, str] = os.environ
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    loaded = _loaded()
    assert loaded.stdin is not None
    assert loaded.stdout is not None
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        asked = {
            "words": [str(word) for word in words],
            "directory": str(directory or Path.cwd()),
            "environment": dict(environment),
            "out": out.name,
            "err": err.name,
        }
        print(json.dumps(asked), file=loaded.stdin, flush=True)
        code = int(loaded.stdout.readline())
        return subprocess.CompletedProcess([*words], code, out.read().decode(), err.read().decode())
