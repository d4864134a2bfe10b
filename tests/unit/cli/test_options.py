# SPDX-License-Identifier: Apache-2.0
"""Options out of bounds, and arguments, in plain words: what is wrong, in one line, and what would be right."""

from typing import Any

import pytest
from typer.core import TyperArgument
from typer.main import get_command

from atoll_cli.main import app
from atoll_cli.terminal.options import INVENTORY_VARIABLE, PlainArguments
from tests.support.forked_commands import atoll


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("plan", "x.yaml", "--seed=-1"), "--seed: -1 is not a whole number from 0 to 9223372036854775807"),
        (("plan", "x.yaml", "--seed", "1.5"), "--seed: 1.5 is not a whole number from 0 to 9223372036854775807"),
        (
            ("link", "calibrate", "x.yaml", "--seconds", "0,6"),
            "--seconds: 0,6 is not a number from 0.5 to 600; decimals follow a point",
        ),
        (("link-traces", "rain", "--out", "x.csv", "--fade", "inf"), "--fade: inf is not a number from 0.1 to 100"),
    ],
)
def test_a_number_out_of_bounds_is_told_in_one_line_before_any_file_is_read(words, answer):
    ended = atoll(*words)
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"{answer}\n")


def test_help_names_arguments_without_python_types():
    answer = atoll("check", "--help").stdout
    assert "FILE...  lab.yaml and experiment.yaml files" in answer
    assert "<" not in answer


def test_usage_names_each_argument_once():
    """And says of one that may be left out that it may."""
    assert "Usage: atoll report [OPTIONS] RUN...\n" in atoll("report", "--help").stdout
    assert "Usage: atoll check [OPTIONS] [FILE...]\n" in atoll("check", "--help").stdout
    assert "Usage: atoll trace [OPTIONS] EXPERIMENT [SRC] [DST]\n" in atoll("trace", "--help").stdout
    assert "--direction <both|to_island|to_world>" in atoll("link", "calibrate", "--help").stdout


def test_every_verb_with_arguments_names_them_so():
    left: list[tuple[str, Any]] = [("atoll", get_command(app))]
    plain = 0
    while left:
        name, command = left.pop()
        left += [(f"{name} {word}", each) for word, each in getattr(command, "commands", {}).items()]
        if any(isinstance(each, TyperArgument) for each in command.params):
            assert isinstance(command, PlainArguments), name
            plain += 1
    assert plain > 15


def test_platforms_that_a_command_refuses_are_not_in_its_help():
    assert "virtual" not in atoll("up", "--help").stdout
    assert "virtual" not in atoll("apply", "--help").stdout


def test_check_has_the_inventory_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(INVENTORY_VARIABLE, "none.yaml")
    ended = atoll("check")
    assert (ended.returncode, ended.stderr) == (2, "none.yaml: there is no such file\n")
