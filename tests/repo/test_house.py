# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that no linter knows."""

import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

LONGEST_MODULE = 800  # lines; past it a module has more than one subject
FOLDERS = (
    "analysis",
    "api",
    "apps",
    "benchmarks",
    "cli",
    "controller",
    "core",
    "daemon",
    "dashboards",
    "emulation",
    "examples",
    "hosts",
    "studies",
    "switch-configs",
    "testbed",
    "tests",
)


@pytest.fixture(scope="module")
def tracked(project: Path) -> list[Path]:
    """Every file of the repository that is there."""
    command = ["git", "-c", f"safe.directory={project}", "-C", str(project), "ls-files", "-z"]
    listing = subprocess.run(command, capture_output=True, check=True, text=True)
    return [path for name in listing.stdout.split("\0") if name and (path := project / name).is_file()]


def test_no_module_is_longer_than_a_reader_can_hold(tracked: list[Path]) -> None:
    """Python and Rust modules end by line 800, unless their first lines say why not (`house: long`)."""
    too_long = {
        str(path): count
        for path in tracked
        if path.suffix in {".py", ".rs"}
        and (count := len(lines := path.read_text().splitlines())) > LONGEST_MODULE
        and not any("house: long" in line for line in lines[:20])
    }
    assert not too_long


def test_every_source_file_names_its_licence(tracked: list[Path]) -> None:
    """The SPDX line stands among the first three, after a #! line if there is one."""
    sources = [path for path in tracked if is_source(path)]
    assert sources
    silent = [
        str(path)
        for path in sources
        if "SPDX-License-Identifier: Apache-2.0" not in "".join(path.read_text().splitlines(keepends=True)[:3])
    ]
    assert not silent


def is_source(path: Path) -> bool:
    """Whether people wrote the file, in a language that has comments."""
    if path.name == "Cargo.lock" or "data" in path.parts:
        return False
    if path.suffix in {".py", ".rs", ".sh", ".toml", ".yaml"} or path.name == "Makefile":
        return True
    return not path.suffix and path.read_bytes()[:2] == b"#!"


def test_no_public_class_name_is_defined_twice(tracked: list[Path], project: Path) -> None:
    """A name has one meaning in the product; tests and benchmarks may use a name of it for their own."""
    defined: defaultdict[str, list[str]] = defaultdict(list)
    for path in tracked:
        if path.suffix == ".py" and path.relative_to(project).parts[0] not in {"tests", "benchmarks"}:
            for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
                defined[name].append(str(path))
    assert len(defined) > 100
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_says_what_lives_there(project: Path, folder: str) -> None:
    """Each top-level folder has a README that says what may depend on it and how to try it alone."""
    text = (project / folder / "README.md").read_text()
    assert "## Who may depend on it" in text
    assert "## Try it" in text


def test_make_lists_every_target(project: Path) -> None:
    """`make` alone names every target that a person may call."""
    makefile = (project / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    listing = subprocess.run(["make", "-C", str(project)], capture_output=True, check=True, text=True).stdout
    assert [name for name in phony[1].split() if f"make {name} " not in listing] == []


def test_the_lock_names_every_dependency(project: Path) -> None:
    """A package added to pyproject.toml but not to requirements.lock would be missing after `make setup`."""
    import tomllib

    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    names = {
        re.split(r"[\[=<>~! ]", requirement, maxsplit=1)[0].lower().replace(".", "-")
        for requirement in [*described["dependencies"], *described["optional-dependencies"]["dev"]]
    }
    lock = (project / "requirements.lock").read_text()
    assert names - set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)) == set()


# A reader that leaves a pipe before its end: the writer dies of SIGPIPE, and pipefail makes that the pipe's exit code.
LEAVES_EARLY = re.compile(r"""\|\s*(head\b|grep\s[^|]*(-\w*[qm]|--quiet)|sed\s[^|]*\bq\b|awk\s[^|]*\bexit\b)""")


def test_no_script_has_a_reader_that_leaves_a_pipe_early(tracked: list[Path]) -> None:
    scripts = {path: path.read_text() for path in tracked if is_source(path) and path.suffix in {"", ".sh"}}
    guilty = [
        f"{path}: {line.strip()}"
        for path, text in scripts.items()
        if "pipefail" in text or path.suffix == ".sh"
        for line in text.splitlines()
        if LEAVES_EARLY.search(line) and not line.lstrip().startswith("#")
    ]
    assert guilty == []
    assert LEAVES_EARLY.search("apt-cache policy x 2>/dev/null | grep -q 'Candidate: [^(]' || return 0")
