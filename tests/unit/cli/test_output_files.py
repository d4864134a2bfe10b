# SPDX-License-Identifier: Apache-2.0
"""Files that options name: a name that says something else is refused, as is a place that cannot be written."""

import subprocess
import sys
from pathlib import Path

import pytest

PICTURES = ".png, .svg or .pdf"
PINGS = "".join(f"t{number},{number}.5\n" for number in range(90))


def atoll(directory: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "atoll_cli.main", *words],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def filled(words: str, project: Path) -> list[str]:
    """The words of a command line, ``GEO`` being a description that is right."""
    return [str(project / "examples/geo.yaml") if word == "GEO" else word for word in words.split()]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What the verbs below read."""
    (tmp_path / "pings.txt").write_text(PINGS)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "option", "endings"),
    [
        ("plan GEO --graph x.txt", "--graph x.txt", ".svg"),
        ("plan GEO --graph x", "--graph x", ".svg"),
        ("report --compare nothing --out x.txt", "--out x.txt", ".md or .html"),
        ("link-traces leo --duration 10s --out x.csv --plot x.bmp", "--plot x.bmp", PICTURES),
        ("distributions show published --plot x.txt", "--plot x.txt", PICTURES),
        ("latencies import pings.txt --out x.yaml --plot x.jpeg", "--plot x.jpeg", PICTURES),
    ],
)
def test_a_name_that_says_another_form_is_one_line_with_those_there_are(
    project: Path, directory: Path, words: str, option: str, endings: str
) -> None:
    before = sorted(directory.iterdir())
    done = atoll(directory, *filled(words, project))
    told = f"{option}: the name does not say what it is to hold; end it in {endings}\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)
    assert sorted(directory.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("plan GEO --graph none/x.svg", "--graph none/x.svg"),
        ("link-traces leo --duration 10s --out none/x.csv", "--out none/x.csv"),
        ("link-traces leo --duration 10s --out x.csv --plot none/x.png", "--plot none/x.png"),
        ("distributions show published --plot none/x.png", "--plot none/x.png"),
        ("latencies import pings.txt --servers 3 --out none/x.yaml", "--out none/x.yaml"),
        ("run GEO --on virtual --runs pings.txt", "--runs pings.txt"),
    ],
)
def test_a_place_that_cannot_be_written_is_bad_input_whatever_the_verb(
    project: Path, directory: Path, words: str, option: str
) -> None:
    done = atoll(directory, *filled(words, project))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{option}: ")
    assert "; name a" in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 1
