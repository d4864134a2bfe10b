# SPDX-License-Identifier: Apache-2.0
"""No module imports, directly or not, one that imports it: not even within a function, where Python would let it."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGES = {
    "atoll": "api",
    "atoll_analysis": "analysis",
    "atoll_apps": "apps",
    "atoll_cli": "cli",
    "atoll_controller": "controller",
    "atoll_core": "core",
    "atoll_daemon": "daemon",
    "atoll_dashboards": "dashboards",
    "atoll_emulation": "emulation",
    "atoll_hosts": "hosts",
    "atoll_studies": "studies",
    "atoll_switches": "switch-configs",
    "atoll_testbed": "testbed",
}
_OF_CRATE = re.compile(r"\bcrate::(\w+|\{[^}]*\})")


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A circle of modules, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def python_modules(project: Path) -> dict[str, Path]:
    """Every module of the packages by its name."""
    found: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in (project / folder / package).rglob("*.py"):
            parts = path.relative_to(project / folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """What a file imports when it runs, at its top or later."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hints = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hints:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_python_modules_import_each_other(project: Path) -> None:
    known = python_modules(project)
    assert len(known) > 300
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        names = set(imported(path))
        parts = {each.rpartition(".")[0] for each in names & set(known)}  # `from package import module` is the module
        graph[name] = {each for each in names & set(known) if each not in parts} - {name}
    assert circle(graph) == []


def test_no_rust_modules_use_each_other(project: Path) -> None:
    sources = [*project.glob("*/crates/*/src"), project / "hosts" / "atoll-host" / "src"]
    assert len(sources) > 5
    for source in sources:
        modules = {path.stem: path for path in source.glob("*.rs") if path.stem not in ("lib", "main")}
        graph = {
            name: {word for used in _OF_CRATE.findall(code_of(path)) for word in re.findall(r"\w+", used)}
            & set(modules)
            for name, path in modules.items()
        }
        assert circle({name: used - {name} for name, used in graph.items()}) == [], source


def code_of(path: Path) -> str:
    """A Rust file without its comments, which may name any module, and without its tests, which may use any."""
    lines = path.read_text(encoding="utf-8").partition("#[cfg(test)]")[0].splitlines()
    return "\n".join(line.partition("//")[0] for line in lines)


@pytest.mark.parametrize(("graph", "found"), [({"a": {"b"}, "b": {"c"}}, False), ({"a": {"b"}, "b": {"a"}}, True)])
def test_a_circle_is_found(graph: dict[str, set[str]], found: bool) -> None:
    assert bool(circle(graph)) is found
