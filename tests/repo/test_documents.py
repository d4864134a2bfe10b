# SPDX-License-Identifier: Apache-2.0
"""The documents: links lead somewhere, the index is complete, the examples of README and tutorial work as shown."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from typer.main import get_command

from atoll_cli.main import app

LINK = re.compile(r"!?\[[^]]*\]\(<?([^)>\s]+)>?\)")
WITHOUT_A_LAB = re.compile(r"(atoll (check|plan|trace|switches config)|sed|echo) (?!.*--live)")


@pytest.fixture(scope="module")
def documents(project: Path) -> list[Path]:
    """Every Markdown file of the repository."""
    command = ["git", "-c", f"safe.directory={project}", "-C", str(project), "ls-files", "-z", "*.md"]
    listing = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return [path for name in listing.split("\0") if name and (path := project / name).is_file()]


def links(document: Path) -> list[str]:
    """The relative links of a document outside its code."""
    text = re.sub(
        r"^```.*?^```|^ {4}.*?$|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    return [target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a document."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: Counter[str] = Counter()
    names: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        shown = LINK.sub(lambda link: link[0][1 : link[0].index("]")], heading).lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def test_every_relative_link_leads_to_a_file_and_a_heading(project: Path, documents: list[Path]) -> None:
    broken: list[str] = []
    count = 0
    for document in documents:
        for link in links(document):
            count += 1
            path, _, anchor = unquote(link).partition("#")
            target = (document.parent / path).resolve() if path else document
            whole = target.exists() and target.is_relative_to(project.resolve())
            if not whole or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                broken.append(f"{document.relative_to(project)}: {link}")
    assert broken == []
    assert count > 100


def test_every_decision_that_sources_name_exists(project: Path) -> None:
    """By its number, or by its whole name."""
    command = ["git", "-c", f"safe.directory={project}", "-C", str(project), "grep", "-hoE"]
    named = subprocess.run(
        [*command, r"docs/decisions/[0-9]{4}(-[a-z0-9-]+\.md)?", "--", "*.py", "*.rs", "*.toml"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split()
    assert len(named) > 3
    assert [name for name in named if not list(project.glob(f"{name}*"))] == []


def test_a_decision_has_at_most_400_words(project: Path) -> None:
    """Its measurements are in benchmarks/figures/decisions."""
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in project.glob("docs/decisions/0*.md")}
    assert len(words) > 50
    assert {name: number for name, number in words.items() if number > 400} == {}


def test_the_index_has_every_page_once(project: Path) -> None:
    """docs/README.md links each page of docs/ in one line, which says what the page answers."""
    docs = project / "docs"
    pages = {path.name for path in docs.iterdir() if path.suffix in {".md", ".json"}} - {"README.md"}
    linked = Counter(link for link in links(docs / "README.md") if not link.startswith("../"))
    assert linked == Counter({*pages, "decisions/README.md"})


def test_every_command_has_a_line_in_the_reference(project: Path) -> None:
    text = (project / "docs" / "commands.md").read_text(encoding="utf-8")
    described: set[str] = set()
    for row in re.findall(r"^\| `atoll ([^`]+)`", text, re.MULTILINE):
        group, *alternatives = re.sub(r" \[?[A-Z].*", "", row.replace("\\", "")).split("|")
        described |= {group} | {f"{group.rpartition(' ')[0]} {name}" for name in alternatives}
    assert described == commands()


def commands() -> set[str]:
    """Every command that does something, by its words."""
    found: set[str] = set()
    left: list[tuple[str, Any]] = [("", get_command(app))]
    while left:
        name, command = left.pop()
        within = getattr(command, "commands", {})
        left += [(f"{name} {word}".strip(), each) for word, each in within.items()]
        if not within or getattr(command, "invoke_without_command", False):
            found.add(name)
    return found - {""}


def blocks(document: Path, language: str) -> list[str]:
    text = document.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def executed(command: str, folder: Path) -> list[str]:
    """The lines that a shell prints for a command, with atoll on its path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def test_the_lab_of_the_readme_is_complete(project: Path, tmp_path: Path) -> None:
    lab, experiment = blocks(project / "README.md", "yaml")
    (tmp_path / "lab.yaml").write_text(lab)
    (tmp_path / "experiment.yaml").write_text(experiment)
    assert [line.partition(" (")[0] for line in executed("atoll check lab.yaml experiment.yaml", tmp_path)] == [
        "lab.yaml: ok",
        "experiment.yaml: ok",
    ]


def test_commands_of_the_tutorial_print_what_it_shows(project: Path, tmp_path: Path) -> None:
    tutorial = project / "docs" / "tutorial.md"
    for text in blocks(tutorial, "yaml"):
        (tmp_path / text.split()[1]).write_text(text)
    assert printed_as_shown(tutorial, tmp_path) > 8


def test_commands_for_technicians_print_what_is_shown(project: Path) -> None:
    assert printed_as_shown(project / "docs" / "hardware.md", project) == 5


def printed_as_shown(document: Path, folder: Path) -> int:
    """Try the commands of a page that need no lab; their number. `...` stands for lines that are left out."""
    shown: list[tuple[str, list[str]]] = []
    prose = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for line in prose.splitlines():
        if line.startswith("    $ "):
            shown.append((line[6:], []))
        elif line.startswith("    ") and shown:
            shown[-1][1].append(line[4:])
        elif line:
            shown.append(("", []))
    tried = [(command, lines) for command, lines in shown if WITHOUT_A_LAB.match(command)]
    for command, lines in tried:
        printed = executed(command, folder)
        if "..." not in lines:
            assert printed == lines, command
        rest = iter(printed)
        assert [line for line in lines if line.strip() != "..." and line not in rest] == [], command
    return len(tried)
