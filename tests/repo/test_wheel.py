# SPDX-License-Identifier: Apache-2.0
"""An installed wheel works outside of a checkout: package data, examples and labs are in it."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from atoll_hosts.binary import find_binary


@pytest.fixture(scope="module")
def installed(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel; dependencies are those of the environment of the tests.

    Python reads no .pth file in a directory that a .pth file names, so the checkout itself is not importable.
    """
    base = tmp_path_factory.mktemp("wheel")
    uv, environment = Path(sys.executable).with_name("uv"), base / "environment"
    build = [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--offline", "--out-dir", base]
    subprocess.run([*build, "--python", sys.executable, project], check=True, timeout=100)
    subprocess.run(
        [uv, "venv", "--quiet", "--offline", "--python", sys.executable, environment], check=True, timeout=60
    )
    (wheel,) = base.glob("*.whl")
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", environment / "bin/python", wheel]
    subprocess.run(install, check=True, timeout=60)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (environment / "lib" / version / "site-packages" / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return environment


def atoll(installed: Path, *words: str | Path) -> str:
    """Standard output of the installed `atoll`, run in a directory that has nothing to do with the checkout."""
    return output(installed, installed / "bin/atoll", *words)


def output(installed: Path, *command: str | Path) -> str:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environment["ATOLL_HOST"] = str(find_binary())  # a wheel has no Rust program
    done = subprocess.run(
        command, cwd=installed, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
