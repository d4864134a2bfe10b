# SPDX-License-Identifier: Apache-2.0
"""Follow a command of Python through packages and modules.

`.venv/bin/python tools/call_path.py .venv/bin/atoll plan examples/geo.yaml` follows the planning of an experiment. For
each of its processes: the packages and modules entered, and their stays. A stay is a series of first calls of functions
in one package or module. Functions of `core` (once `model`) are left out, as all packages call methods of its
values. Pairs: a function, and a function of another module that calls it. Programs in the virtual kernel are not
followed. The file is its own profiler: processes of the command import it as `sitecustomize`.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_FOLDER = "ATOLL_CALL_PATH"
_FUNCTION = 0x1  # CO_OPTIMIZED (inspect): bodies of modules and classes, which imports call, do not have it
_VALUES = ("core", "model")


def _module(frame: FrameType | None) -> str | None:
    """``controller.planner.planner``; None: not of this project, or made by a decorator."""
    if frame is None or frame.f_code.co_filename.startswith("<"):
        return None
    package, dot, name = str(frame.f_globals.get("__name__", "")).partition(".")
    if package == "atoll" and dot:  # a revision whose packages were parts of one (efb9886)
        return name
    return f"{package.removeprefix('atoll_')}.{name}" if package.startswith("atoll_") else None


def record() -> None:
    """Note each first call of a function, and each first call from another module, until the process ends."""
    first: dict[CodeType, str] = {}
    pairs: set[tuple[CodeType, CodeType]] = set()

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not frame.f_code.co_flags & _FUNCTION or (module := _module(frame)) is None:
            return
        first.setdefault(frame.f_code, module)
        caller = frame.f_back
        if caller is not None and _module(caller) not in (None, module):
            pairs.add((caller.f_code, frame.f_code))

    def write() -> None:
        sys.setprofile(None)
        trace = {"command": " ".join(sys.argv), "modules": list(first.values()), "pairs": len(pairs)}
        (Path(os.environ[_FOLDER]) / f"{os.getpid()}.json").write_text(json.dumps(trace), encoding="utf-8")

    atexit.register(write)
    threading.setprofile(called)
    sys.setprofile(called)


def main() -> int:
    """Run the command; returns its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").symlink_to(Path(__file__).resolve())
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        done = subprocess.run(sys.argv[1:], env={**os.environ, _FOLDER: folder, "PYTHONPATH": path}, check=False)
        for file in sorted(Path(folder).glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
            trace = json.loads(file.read_text(encoding="utf-8"))
            modules = [module for module in trace["modules"] if module.partition(".")[0] not in _VALUES]
            packages = [package for package, _ in groupby(module.partition(".")[0] for module in modules)]
            stays = len(list(groupby(modules)))
            entered = (
                f"packages {len(set(packages))}, stays {len(packages)}; modules {len(set(modules))}, stays {stays}"
            )
            sys.stderr.write(f"{trace['command'][:100]}\n  {entered}; pairs {trace['pairs']}\n  {' '.join(packages)}\n")
    return done.returncode


if __name__ == "sitecustomize":
    record()
elif __name__ == "__main__":
    sys.exit(main())
