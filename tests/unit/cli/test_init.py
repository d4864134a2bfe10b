# SPDX-License-Identifier: Apache-2.0
"""`atoll init`: each template is right as it is written, and nothing that was there is overwritten."""

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

from atoll_core.errors import UsageError
from atoll_studies.templates import template_names, write_template
from tests.support.forked_commands import atoll

pytestmark = pytest.mark.long

FILES = ["lab.yaml", "experiment.yaml", "study.yaml", "README.md"]


@pytest.mark.parametrize("template", template_names())
def test_a_template_has_neither_mistakes_nor_warnings_and_needs_no_other_file(tmp_path: Path, template: str) -> None:
    done = atoll("init", "studies/mine", "--template", template, "--json", directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"directory": "studies/mine", "template": template, "files": FILES}
    directory = tmp_path / "studies/mine"
    assert sorted(path.name for path in directory.iterdir()) == sorted(FILES)
    checked = atoll("check", *FILES[:3], "--strict", directory=directory)
    assert (checked.returncode, checked.stderr, checked.stdout.count(": ok (")) == (0, "", 3)
    assert not [file for file in FILES if re.search(r"\$schema|\.\./|docs/", (directory / file).read_text())]


def test_the_commands_of_the_readme_can_be_typed_as_they_are(tmp_path: Path) -> None:
    assert atoll("init", "mine", directory=tmp_path).returncode == 0
    directory = tmp_path / "mine"
    text = (directory / "README.md").read_text()
    assert text.startswith("# mine\nMade by `atoll init --template demo`. The demo: a GEO link of 16 Mbit/s")
    commands = [line.partition("  #")[0].split()[1:] for line in text.splitlines() if line.startswith("    atoll ")]
    assert [words[0] for words in commands] == ["check", "plan", "setup", "kernel", "run", "watch", "sweep"]
    for words in commands:
        if words[0] in {"check", "plan"}:  # others need a kernel or a browser
            done = atoll(*words, directory=directory)
            assert (done.returncode, done.stderr) == (0, ""), words


@pytest.mark.parametrize("there", ["mine", "mine/lab.yaml", "mine/.hidden"])
def test_what_is_there_is_not_overwritten(tmp_path: Path, there: str) -> None:
    """A file in the place of the directory, one of the files, or any other."""
    (tmp_path / there).parent.mkdir(exist_ok=True)
    (tmp_path / there).write_text("mine")
    done = atoll("init", "mine", directory=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("mine: ")
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    assert atoll("init", ".", directory=tmp_path).returncode == 0
    assert (tmp_path / "README.md").read_text().startswith(f"# {tmp_path.name}\n")


def test_the_command_that_is_printed_can_be_typed_as_it_is(tmp_path: Path) -> None:
    done = atoll("init", "my study", directory=tmp_path)
    assert done.stdout.splitlines()[-1] == "cd 'my study' && atoll check lab.yaml experiment.yaml study.yaml"


def test_of_a_template_that_cannot_be_written_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refuse_the_last(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "README.md" and path.is_relative_to(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse_the_last)
    with pytest.raises(UsageError, match=r"mine: No space left on device; name a new directory"):
        write_template(tmp_path / "mine", "demo")
    assert list((tmp_path / "mine").iterdir()) == []
    monkeypatch.undo()
    write_template(tmp_path / "mine", "demo")


def test_the_list_has_every_template_and_the_folder_of_examples(tmp_path: Path) -> None:
    answer = json.loads(atoll("init", "--list", "--json", directory=tmp_path).stdout)
    assert tuple(answer["templates"]) == template_names()
    assert all(answer["templates"].values())
    assert (Path(answer["examples"]) / "geo.yaml").is_file()
    lines = atoll("init", "--list", directory=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*template_names(), "examples"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "name a new directory, or --list"),
        (["mine", "--list"], "--list writes nothing: leave out DIR, or --list"),
        (
            ["mine", "--template", "pepp"],
            "--template pepp: unknown template; did you mean 'pep'? known templates: demo, pep, coder",
        ),
    ],
)
def test_a_wrong_word_is_one_line(tmp_path: Path, words: list[str], line: str) -> None:
    done = atoll("init", *words, directory=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{line}\n")
    assert list(tmp_path.iterdir()) == []
