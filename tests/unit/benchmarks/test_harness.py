# SPDX-License-Identifier: Apache-2.0
"""What the programs of benchmarks have in common: results in a file, tables of them, and their place in a document."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atoll_core.errors import AtollError
from benchkit import harness


def options(monkeypatch: pytest.MonkeyPatch, *words: object) -> argparse.Namespace:
    """What a benchmark makes of these words."""
    monkeypatch.setattr("sys.argv", ["run", *map(str, words)])
    return harness.parser("ways", "How long ways take.").parse_args()


def measured() -> dict[str, Any]:
    return {"results": [2, 3]}


def never() -> dict[str, Any]:
    raise AssertionError("there is nothing to measure")


def tables(known: Mapping[str, Any]) -> str:
    return f"| {known['results']} |"


def test_what_is_measured_is_kept_and_rendered_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "ways.json", tmp_path / "ways.md"
    assert harness.run(options(monkeypatch, "--json", file), "ways", "results", measured, tables) == 0
    assert capsys.readouterr().out == f"| [2, 3] |\n\nJSON: {file}\n"
    page.write_text("old")
    rendered = options(monkeypatch, "--json", file, "--render", tmp_path)
    assert harness.run(rendered, "ways", "results", never, tables) == 0
    assert capsys.readouterr().out.endswith(f"written: {page}\n")
    head, machine, table = page.read_text().split("\n\n")
    assert (head, table) == ("# Ways", "| [2, 3] |\n")
    assert "revision" in machine


def test_a_folder_that_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(monkeypatch, "--render", tmp_path / "none")
    assert f"--render: {tmp_path}/none: there is no such folder" in capsys.readouterr().err


def test_what_cannot_be_measured_or_rendered_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> dict[str, Any]:
        raise AtollError("run it as root")

    file = tmp_path / "ways.json"
    assert harness.run(options(monkeypatch, "--json", file), "ways", "results", refused, tables) == 1
    assert capsys.readouterr().err == "run it as root\n"
    assert not file.exists()
    assert (
        harness.run(options(monkeypatch, "--json", file, "--render", tmp_path), "ways", "results", never, tables) == 1
    )
    assert capsys.readouterr().err == f"{file}: there is no such file; measuring makes it\n"
