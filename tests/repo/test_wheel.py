# SPDX-License-Identifier: Apache-2.0
"""An installed wheel works outside of a checkout: atoll-host, package data, examples and labs are in it."""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from atoll_hosts.binary import VARIABLE, find_binary, static_name
from atoll_hosts.ssh.installation import FOLDER
from atoll_testbed.run.run_request import clone_revision, revision


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `make release` fills it; only the program of this machine is one."""
    folder = tmp_path_factory.mktemp("binaries")
    for machine in ("x86_64", "aarch64", "armv7l"):
        program = folder / f"atoll-host-{machine}"
        program.write_text("of another architecture\n")
        program.chmod(0o755)
    shutil.copy(find_binary(), folder / static_name(platform.machine()))
    return folder


@pytest.fixture(scope="module")
def installed(project: Path, binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with this machine's wheel; dependencies are those of the environment of the tests.

    Python reads no .pth file in a directory that a .pth file names, so the checkout itself is not importable.
    """
    base = tmp_path_factory.mktemp("wheel")
    uv, environment = Path(sys.executable).with_name("uv"), base / "environment"
    make_wheels(project, binaries, base, umask=0o22)
    subprocess.run(
        [uv, "venv", "--quiet", "--offline", "--python", sys.executable, environment], check=True, timeout=60
    )
    (wheel,) = base.glob(f"*_{platform.machine()}.whl")
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", environment / "bin/python", wheel]
    subprocess.run(install, check=True, timeout=60)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (environment / "lib" / python / "site-packages" / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return environment


def make_wheels(clone: Path, binaries: Path, out: Path, umask: int) -> None:
    command = [sys.executable, clone / "tools/wheels.py", binaries, out]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1800000000"}
    subprocess.run(command, env=environment, umask=umask, check=True, timeout=100, stdout=subprocess.DEVNULL)


def atoll(installed: Path, *words: str | Path) -> str:
    """Standard output of the installed `atoll`, run in a directory that has nothing to do with the checkout."""
    return output(installed, installed / "bin/atoll", *words)


def output(installed: Path, *command: str | Path) -> str:
    outside = {"PYTHONPATH", VARIABLE, FOLDER}
    environment = {name: text for name, text in os.environ.items() if name not in outside}
    done = subprocess.run(
        command, cwd=installed, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_same_files_make_the_same_wheels(project: Path, binaries: Path, tmp_path: Path) -> None:
    """Of two clones in different directories; tools/same-wheels compiles the programs again, too."""
    made: list[dict[str, bytes]] = []
    for name, umask in (("one", 0o22), ("another/clone", 0o77)):
        clone, out = tmp_path / name, tmp_path / f"{name}-out"
        command = ["git", "-c", f"safe.directory={project}", "clone", "--quiet", "--shared", project, clone]
        subprocess.run(command, check=True, timeout=60)
        shutil.copy(project / "tools/wheels.py", clone / "tools/wheels.py")
        make_wheels(clone, binaries, out, umask)
        made.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert made[0] == made[1]
    assert [name.partition("-none-")[2] for name in sorted(made[0])] == [
        "manylinux_2_17_aarch64.whl",
        "manylinux_2_17_x86_64.whl",
    ]


def test_a_wheel_is_not_made_for_an_architecture_without_a_program(
    project: Path, binaries: Path, tmp_path: Path
) -> None:
    (tmp_path / "atoll-host-x86_64").write_bytes((binaries / "atoll-host-x86_64").read_bytes())
    make_wheels(project, tmp_path, tmp_path / "out", umask=0o22)
    assert [path.name.rpartition("_2_17_")[2] for path in (tmp_path / "out").iterdir()] == ["x86_64.whl"]


def test_an_installed_atoll_has_its_own_atoll_host_and_those_of_hosts(installed: Path, binaries: Path) -> None:
    program = (
        "from atoll_hosts.binary import find_binary\n"
        "from atoll_hosts.ssh.installation import binary_for\n"
        "for path in (find_binary(), *map(binary_for, ('x86_64', 'arm64', 'armv8l'))): print(path)"
    )
    own, *of_hosts = map(Path, output(installed, installed / "bin/python", "-c", program).split())
    assert own.is_relative_to(installed)
    assert [path.read_bytes() for path in (own, *of_hosts)] == [
        (binaries / name).read_bytes()
        for name in (static_name(platform.machine()), "atoll-host-x86_64", "atoll-host-aarch64", "atoll-host-armv7l")
    ]


def test_an_installed_atoll_says_what_it_is(installed: Path) -> None:
    first, binary, kernel = atoll(installed, "--version").splitlines()
    assert first == f"atoll {version('atoll')}, revision {revision()}"
    assert binary.startswith(f"atoll-host: {installed}/")
    assert kernel.startswith("kernel for virtual time: ")


def test_remedies_name_nothing_that_only_a_clone_has(installed: Path) -> None:
    """Where no tool of the machine is on PATH, on an architecture for which there is no atoll-host."""
    program = (
        "import os, platform; os.environ['PATH'] = '/nowhere'; platform.machine = lambda: 'riscv64'\n"
        "from atoll_core.errors import AtollError\n"
        "from atoll_emulation.mininet_lab import mininet_path\n"
        "from atoll_emulation.this_machine.host_requirements import missing_tools\n"
        "from atoll_hosts.binary import find_binary\n"
        "from atoll_hosts.ssh.installation import binary_for\n"
        "print(*missing_tools())\n"
        "mininet_path.find_mininet = lambda: None\n"
        "for call in (mininet_path.load_mininet, find_binary, lambda: binary_for('mips64')):\n"
        "    try: print(call())\n"
        "    except (AtollError, ImportError) as error: print(str(error).replace('\\n', ' '))"
    )
    tools, mininet, binary, of_host = output(installed, installed / "bin/python", "-c", program).splitlines()
    assert "mnexec" in tools
    assert "run `atoll setup`" in tools
    assert mininet == "Mininet is not installed: `atoll setup` says how"
    assert binary.endswith("; install a wheel of atoll for riscv64")
    assert of_host.startswith("there is no atoll-host-mips64 in ")
    assert not [line for line in (tools, mininet, binary, of_host) if "make " in line or "tools/" in line]


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [("armv7l", "there are wheels for x86_64 and aarch64"), ("x86_64", "no wheel was made")],
)
def test_wheels_stay_where_no_new_one_is_made(project: Path, tmp_path: Path, architecture: str, reason: str) -> None:
    clone = tmp_path / "clone"
    command = ["git", "-c", f"safe.directory={project}", "clone", "--quiet", "--shared", project, clone]
    subprocess.run(command, check=True, timeout=60)
    for name in ("dist", "wheels.py"):
        shutil.copy(project / "tools" / name, clone / "tools" / name)
    (clone / "tools/release").write_text("#!/bin/sh\nexit 1\n")
    (clone / ".venv").symlink_to(sys.prefix)
    (clone / "dist").mkdir()
    wheel = clone / "dist/atoll-0.1.0-py3-none-manylinux_2_17_x86_64.whl"
    wheel.write_text("made before")
    done = subprocess.run([clone / "tools/dist", architecture], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert reason in done.stderr
    assert wheel.read_text() == "made before"


def test_a_wheel_has_the_revision_of_its_clone(project: Path, binaries: Path, tmp_path: Path) -> None:
    """Not that of the clone whose environment makes it."""
    clone = tmp_path / "clone"
    command = ["git", "-c", f"safe.directory={project}", "clone", "--quiet", "--shared", project, clone]
    subprocess.run(command, check=True, timeout=60)
    shutil.copy(project / "tools/wheels.py", clone / "tools/wheels.py")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", clone, *identity, "commit", "-qam", "one more", "--allow-empty"], check=True)
    make_wheels(clone, binaries, tmp_path, umask=0o22)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        assert wheel.read("atoll_core/revision.txt").decode().strip() == clone_revision(clone / "tools/wheels.py")
    assert clone_revision(clone / "tools/wheels.py") != revision()


def test_the_wheel_holds_every_file_of_the_packages(project: Path, installed: Path) -> None:
    """Each that is tracked, whether Python or data: profiles, templates, schemas, Grafana files, the live page."""
    packages = [path for path in project.glob("*/atoll_*") if path.is_dir()]
    command = ["git", "-c", f"safe.directory={project}", "-C", str(project), "ls-files", "--", *packages]
    tracked = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    (library,) = (installed / "lib").glob("python*/site-packages")
    assert len(packages) == 12
    assert [name for name in tracked if not (library / name.partition("/")[2]).is_file()] == []
    assert Path(
        output(installed, installed / "bin/python", "-c", "import atoll_cli; print(atoll_cli.__file__)").strip()
    ).is_relative_to(library)


def test_examples_are_checked_and_planned_where_they_are_installed(installed: Path) -> None:
    examples = installed / "share/atoll/examples"
    assert "Usage: atoll" in atoll(installed, "--help")
    files = sorted(examples.glob("*.yaml"))
    assert len(files) >= 10
    atoll(installed, "check", *files)
    assert json.loads(atoll(installed, "plan", "--json", examples / "geo.yaml"))["plan"]


def test_an_installed_atoll_writes_the_report_of_a_run(project: Path, installed: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(project / "tests/data/old-runs/runs.tar.xz", tmp_path)
    run = min(tmp_path.iterdir())
    assert json.loads(atoll(installed, "report", "--json", run))["verdict"] == "valid"
    assert (run / "report.html").is_file()


def test_an_installed_atoll_writes_a_template_that_is_right(installed: Path) -> None:
    atoll(installed, "init", "mine")
    assert atoll(installed, "check", *(f"mine/{name}.yaml" for name in ("lab", "experiment", "study"))).count("ok") == 3
    assert json.loads(atoll(installed, "init", "--list", "--json"))["examples"] == f"{installed}/share/atoll/examples"
