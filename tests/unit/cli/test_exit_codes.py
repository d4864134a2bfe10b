# SPDX-License-Identifier: Apache-2.0
"""Exit codes are those of docs/exit-codes.md, whatever the verb; what was wrong is one line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from atoll_cli.main import app
from atoll_core.errors import AtollError, InterruptedByUserError, LabError, MachineError, PlanError, UsageError
from tests.support.forked_commands import atoll
from tests.support.synthetic_run import begin, experiment, network

pytestmark = pytest.mark.long

NOTHING_THERE = """
check none.yaml
plan none.yaml
trace none.yaml w1 i1
up none.yaml
apply none.yaml
run none.yaml
run none.yaml --on virtual
sweep none.yaml
init /proc/none
report runs/none
report --compare runs/none
watch runs/none
runs import none.yaml none.pcap none.pcap
down --inventory none.yaml
status --inventory none.yaml
distributions import none.csv --out x.csv
distributions show none.csv
latencies import none.txt --out x.yaml
latencies from-flows none.csv --to 10.20.0.0/16 --out x.txt
link calibrate none.yaml
link-traces losses runs/none --out x.txt
code-design runs/none
metrics load runs/none
metrics check
dashboards install
kernel build --source none.tar.xz
hosts enroll --inventory none.yaml
hosts install --inventory none.yaml
hosts ping --inventory none.yaml
hosts status --inventory none.yaml
hosts exec --inventory none.yaml true
switches --inventory none.yaml
switches entries --inventory none.yaml
switches counters --inventory none.yaml
switches config sw-c none.yaml
switches diff sw-c none.txt none.yaml
switches control none.yaml
switches probe sw-c none.yaml
"""


FILES = {
    "LAB": ("emulation/labs/island.yaml", "a lab", "`atoll up FILE` brings it up"),
    "EXPERIMENT": ("examples/geo.yaml", "an experiment", "`atoll run FILE` runs it"),
    "STUDY": (
        "examples/studies/geo-queues.yaml",
        "a study",
        (
            "`atoll sweep FILE --dry-run` estimates its runs, `atoll sweep FILE` makes them, "
            "`atoll report runs/studies/geo-queues` reports them"
        ),
    ),
    "INVENTORY": (
        "examples/rack/inventory.yaml",
        "an inventory of machines",
        "`atoll check --inventory FILE` checks it",
    ),
}
TAKEN = {
    "an experiment": ["run", "plan", "apply", "trace FILE w1 i1", "link calibrate"],
    "a lab or an experiment": ["up", "check FILE"],
    "a study": ["sweep"],
    "an inventory of machines": ["hosts ping --inventory", "check --inventory"],
    "a run directory": ["report", "code-design", "metrics load", "link-traces losses --out x.txt", "watch"],
}
"""Commands by what they take."""


def ended(directory: Path, commands: Sequence[Sequence[str]]) -> "list[subprocess.CompletedProcess[str]]":
    """How each of these commands ends, in a directory and home without anything."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("ATOLL_")}
    environment |= {"HOME": str(directory), "XDG_CONFIG_HOME": str(directory / "config")}
    return [atoll(*words, directory=directory, environment=environment) for words in commands]


def verbs() -> dict[str, Any]:
    """Every verb that does something, by its words."""
    found: dict[str, Any] = {}
    left = [("", get_command(app))]
    while left:
        name, command = left.pop()
        within = getattr(command, "commands", {})
        left += [(f"{name} {word}".strip(), each) for word, each in within.items()]
        if not within:
            found[name] = command
    return found


def test_what_is_not_there_is_bad_input_and_one_line_for_every_verb(tmp_path: Path) -> None:
    commands = [line.split() for line in NOTHING_THERE.split("\n") if line]
    before = {path.name for path in tmp_path.iterdir()}
    for words, found in zip(commands, ended(tmp_path, commands), strict=True):
        assert (found.returncode, found.stdout) == (2, ""), (words, found)
        assert len(found.stderr.splitlines()) == 1, (words, found.stderr)
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_name_that_is_too_long_is_bad_input_and_one_line(tmp_path: Path) -> None:
    name = 256 * "x"
    verbs = ("run", "sweep", "report", "report --compare", "watch", "watch --runs", "runs list")
    for found in ended(tmp_path, [[*verb.split(), name] for verb in verbs]):
        assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1), found
        assert found.stderr.startswith(name)


def test_an_option_that_there_is_not_is_bad_input_and_one_line_for_every_verb(tmp_path: Path) -> None:
    commands = [[*name.split(), "--verbosely"] for name in verbs()]
    assert len(commands) > 30
    for words, found in zip(commands, ended(tmp_path, commands), strict=True):
        assert (found.returncode, found.stdout) == (2, ""), (words, found)
        (line,) = found.stderr.splitlines()
        verb = " ".join(["atoll", *words[:-1]])
        assert line.startswith(f"{verb}: no such option: --verbosely"), line
        assert line.endswith(f"; see `{verb} --help`")


def test_each_verb_that_reads_a_file_is_tried_without_it() -> None:
    """Else the list above grows old; those left out read none."""
    tried = {" ".join(word for word in line.split() if "." not in word) for line in NOTHING_THERE.split("\n")}
    without = {name for name in verbs() if not any(words.startswith(name) for words in tried)}
    traces = {f"link-traces {kind}" for kind in ("rain", "meo", "leo")}
    assert (
        without
        == {
            "shell",
            "metrics names",
            "kernel status",
            "kernel path",
            "kernel clean",
            "setup",
            "clean",
            "runs list",
            "results",
            "runs verify",
            "runs drop-captures",
        }
        | traces
    )


def test_words_that_are_wrong_are_one_line_in_the_words_of_the_verb(tmp_path: Path, project: Path) -> None:
    geo = str(project / "examples/geo.yaml")
    answer = {
        f"rnu {geo}": "atoll: no such command 'rnu'. Did you mean 'run'? see `atoll --help`",
        "run": "atoll run: missing argument 'EXPERIMENT'; see `atoll run --help`",
        f"run {geo} --seed": "atoll run: option '--seed' requires an argument; see `atoll run --help`",
        f"link calibrate {geo} --backend": "atoll link calibrate: option '--backend' requires an argument; ",
        f"plan {geo} --backend tcc": "atoll plan: invalid value for '--backend': 'tcc' is not one of 'engine', 'tc'; ",
        f"run {geo} --on virtaul": "--on virtaul: unknown platform; did you mean 'virtual'? known platforms: ",
        f"run {geo} --duration=-5s": "--duration: '-5s' is not a duration; it is never negative",
        f"run {geo} --set trafic.channels=5": "--set 'trafic.channels=5': unknown key 'trafic'; did you mean",
        f"run {geo} --on virtual --set tcp.congestion_control=hybra": "control 'hybra' is not in the virtual",
    }
    for line, found in zip(answer.values(), ended(tmp_path, [words.split() for words in answer]), strict=True):
        assert (found.returncode, found.stdout) == (2, "")
        assert len(found.stderr.splitlines()) == 1
        assert line in found.stderr


def test_a_slip_in_a_description_is_one_line_with_its_place_whatever_the_verb(tmp_path: Path) -> None:
    slips = {
        "tab.yaml": ("name: x\nlinks:\n\tsat: {}\n", "tab.yaml:3: not valid YAML: the line is indented with a tab"),
        "list.yaml": ("# x\n- a\n- b\n", "list.yaml:2: a list, but a description begins with keys"),
        "empty.yaml": ("", "empty.yaml:1: the file is empty"),
    }
    for name, (text, _) in slips.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    answer = {f"plan {name}": line for name, (_, line) in slips.items()}
    answer |= {f"{verb} tab.yaml": slips["tab.yaml"][1] for verb in ("check", "up", "apply", "run", "link calibrate")}
    answer |= {"trace tab.yaml w1 i1": slips["tab.yaml"][1], "run folder": "folder: is a directory; give a YAML file"}
    for line, found in zip(answer.values(), ended(tmp_path, [words.split() for words in answer]), strict=True):
        assert (found.returncode, found.stdout) == (2, "")
        assert len(found.stderr.splitlines()) == 1
        assert found.stderr.startswith(line)


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_kind_is_one_line_with_the_command_that_takes_it(project: Path, kind: str) -> None:
    file, name, remedy = FILES[kind]
    commands = {
        command.replace("FILE", file) if "FILE" in command else f"{command} {file}": needed
        for needed, verbs in TAKEN.items()
        for command in verbs
        if name not in needed and (command, name) != ("check FILE", "a study")
    }
    for needed, found in zip(commands.values(), ended(project, [words.split() for words in commands]), strict=True):
        answer = f"{file}: is {name}, but {needed} is needed; {remedy.replace('FILE', file)}\n"
        assert (found.returncode, found.stdout, found.stderr) == (2, "", answer), found.args


def test_a_file_that_is_no_description_is_of_no_kind(tmp_path: Path) -> None:
    """A run's summary has keys of an experiment, its manifest those of a study."""
    experiment = dict.fromkeys(("seed", "limits", "links", "captures", "udp", "changes", "boxes"))
    (tmp_path / "summary.json").write_text(json.dumps(experiment | {f"figure_{n}": n for n in range(80)}))
    (tmp_path / "compose.yaml").write_text("name: x\nservices: {}\n")
    for name in ("summary.json", "compose.yaml"):
        (found,) = ended(tmp_path, [["report", name]])
        assert (found.returncode, found.stderr.count("\n")) == (2, 1)
        assert found.stderr.startswith(f"{name}: not a run directory (no manifest.json); ")


def test_a_verb_without_its_words_shows_its_help(tmp_path: Path) -> None:
    bare, traces = ended(tmp_path, [[], ["link-traces"]])
    assert (bare.returncode, traces.returncode) == (2, 2)
    assert bare.stderr.startswith("Usage: atoll [OPTIONS] COMMAND")
    assert traces.stderr.startswith("Usage: atoll link-traces ")


def test_a_run_directory_of_somebody_else_is_bad_input(tmp_path: Path) -> None:
    """Of one without the right to write; root is not the root here who may write everything."""
    run = begin(tmp_path / "runs", experiment(), network()).path
    run.chmod(0o555)
    somebody = ["--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    words = ["setpriv", *somebody, sys.executable, "-m", "atoll_cli.main", "report", run]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    answer = f"{run}: this user may not write there; copy the directory and analyse the copy\n"
    assert (done.returncode, done.stderr) == (2, answer)


def test_ctrl_c_where_nothing_was_begun_is_one_word_and_code_130(project: Path) -> None:
    program = (
        "import os, signal, atoll_controller.planner.planner\n"
        "atoll_controller.planner.planner.make_plan = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\n"
        "from atoll_cli.main import main\nmain()"
    )
    words = [sys.executable, "-c", program, "plan", project / "examples/geo.yaml"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "interrupted\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [(MachineError, 1), (LabError, 1), (PlanError, 2), (UsageError, 2), (InterruptedByUserError, 130)],
)
def test_an_error_carries_the_code_of_its_kind(error: type[AtollError], code: int) -> None:
    assert error.exit_code == code


def test_the_table_has_every_code(project: Path) -> None:
    table = (project / "docs/exit-codes.md").read_text(encoding="utf-8")
    assert [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][1:] == [
        *("0", "1", "2", "3", "130")
    ]


def test_ctrl_c_while_the_program_is_being_loaded_is_one_line() -> None:
    """Loading takes half a second, more on a busy machine."""
    program = """
import os, signal, sys
from atoll_cli.entry import main
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "atoll_cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, CtrlC())
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
