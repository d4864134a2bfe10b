# SPDX-License-Identifier: Apache-2.0
"""Modules that lack bytecode of their own get it before a kernel for virtual time starts."""

import compileall
import os
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from atoll_testbed.virtual.precompile import compile_stale, module_folders, stale_modules

LOADED_INSIDE = (
    "atoll_testbed.virtual.guest_main",
    "atoll_controller.openflow.app",
    "atoll_emulation.mininet_lab.lab_server",
)
"""What the processes of a run in virtual time are, for their imports: the run, the controller, the lab."""

SHOW_FILES = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(*{getattr(module, "__file__", None) for module in sys.modules.values()}, sep="\\n")
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of three modules, one of them deeper, all with bytecode."""
    top = tmp_path / "package"
    (top / "deeper").mkdir(parents=True)
    for name in ("__init__", "one", "deeper/two"):
        (top / f"{name}.py").write_text("answer = 42\n")
    assert compileall.compile_dir(top, quiet=2)
    return top


def test_current_bytecode_is_left_alone(package: Path) -> None:
    assert not list(stale_modules(package))


async def test_what_lacks_bytecode_or_was_changed_since_is_compiled(package: Path) -> None:
    next((package / "deeper" / "__pycache__").iterdir()).unlink()
    (package / "one.py").write_text("answer = 43\n")  # as long as before
    os.utime(package / "one.py", (1, 1))
    assert set(stale_modules(package)) == {package / "one.py", package / "deeper" / "two.py"}
    said: list[str] = []
    assert await compile_stale([package], said.append) == 0
    assert said == ["compiling 2 Python modules once"]
    assert not list(stale_modules(package))
    assert await compile_stale([package], said.append) == 0
    assert len(said) == 1


async def test_what_cannot_be_compiled_is_counted(package: Path) -> None:
    """No Python; and a place where nobody can write, root neither."""
    (package / "python2.py").write_text("print 42\n")
    (package / "closed").mkdir()
    (package / "closed" / "three.py").write_text("answer = 42\n")
    (package / "closed" / "__pycache__").write_text("a file where the folder should be\n")
    said: list[str] = []
    assert await compile_stale([package], said.append) == 2
    assert said[-1] == "2 modules could not be compiled or written, so this run is repeatable in this installation only"


def test_bytecode_that_is_bound_to_its_source_by_a_hash_is_current(package: Path) -> None:
    """As some installers make it (PEP 552): its time says nothing."""
    assert compileall.compile_dir(package, quiet=2, force=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    os.utime(package / "one.py", (1, 1))
    assert not list(stale_modules(package))


@pytest.mark.parametrize("module", LOADED_INSIDE)
def test_all_that_is_loaded_inside_is_looked_at_or_the_systems(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", SHOW_FILES, module], capture_output=True, text=True, check=True)
    files = [Path(line) for line in done.stdout.splitlines() if line.endswith(".py")]
    assert len(files) > 10
    assert not any(file.match("polars/__init__.py") for file in files), "half a second of each run's start"
    ours = module_folders()
    system = {Path(os.__file__).parent, Path("/usr/lib/python3/dist-packages")}
    assert [file for file in files if not any(file.is_relative_to(place) for place in ours | system)] == []
