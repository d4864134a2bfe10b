# SPDX-License-Identifier: Apache-2.0
"""`atoll apply` on a lab that is up: what it tells of a swap, and what stands when one fails or is interrupted."""

import json
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.runtime import ON_RUNTIME
from tests.support.sandbox import ATOLL, ROOT, Sandbox, wait_for_line

pytestmark = pytest.mark.lab

DATA = ROOT / "tests" / "data" / "swaps"
STAGES = ["install", "probe", "shift", "drain", "collect"]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """The lab for swaps, up with its experiment, the chain tap-w - r1 - sat - tap-i."""
    with Sandbox(tmp_path_factory.mktemp("verb")) as sandbox:
        done = sandbox.run(ATOLL, "up", chained(sandbox.directory, "tap-w, r1, sat, tap-i"), *ON_RUNTIME)
        assert done.returncode == 0, done.stderr
        yield sandbox
        sandbox.run(ATOLL, "down", "--force")


def chained(directory: Path, hops: str) -> Path:
    """The experiment with another chain, as a file."""
    text = (DATA / "experiment.yaml").read_text(encoding="utf-8")
    file = directory / f"{hops.replace(', ', '-')}.yaml"
    text = text.replace("lab: lab.yaml", f"lab: {DATA}/lab.yaml")
    file.write_text(text.replace("[tap-w, r1, sat, tap-i]", f"[{hops}]"), encoding="utf-8")
    return file


def chain(sandbox: Sandbox) -> str:
    """What stands, as `atoll status` tells."""
    done = sandbox.run(ATOLL, "status", "--json")
    return ", ".join(json.loads(done.stdout)["lab"]["chain"])


def test_a_swap_is_told_stage_by_stage_and_summed_up(sandbox: Sandbox) -> None:
    done = sandbox.run(ATOLL, "apply", chained(sandbox.directory, "tap-w, sat, r2, tap-i"))
    assert done.returncode == 0, done.stderr
    answer = [line.split()[1] for line in done.stderr.splitlines() if line.startswith("chains: ")]
    assert answer == STAGES
    assert "; swapped in " in done.stdout.splitlines()[-1]
    assert " ms of it draining); experiment 'swaps' is applied" in done.stdout.splitlines()[-1]
    assert chain(sandbox) == "tap-w, sat, r2, tap-i"


def test_as_json_it_has_the_events_with_their_times(sandbox: Sandbox) -> None:
    done = sandbox.run(ATOLL, "apply", "--json", chained(sandbox.directory, "tap-w, r1, sat, tap-i"))
    assert done.returncode == 0, done.stderr
    events = json.loads(done.stdout)["swap"]
    stages = [event for event in events if event["state"] == "stage"]
    assert [event["stage"] for event in stages] == STAGES
    assert all(one["began_ns"] + one["duration_ns"] <= two["began_ns"] + 10**6 for one, two in pairwise(stages))
    assert [event["state"] for event in events if event["state"] != "stage"] == ["begin", "turned", "end"]
    assert events[-1]["duration_ns"] == events[-1]["drain_ns"] + events[-1]["beyond_drain_ns"]


def test_the_same_again_swaps_nothing(sandbox: Sandbox) -> None:
    done = sandbox.run(ATOLL, "apply", "--json", chained(sandbox.directory, "tap-w, r1, sat, tap-i"))
    assert (json.loads(done.stdout)["swap"], json.loads(done.stdout)["changes"]) == ([], [])


def test_a_box_that_passes_nothing_on_undoes_the_swap(sandbox: Sandbox) -> None:
    """Before any packet has taken the new version; the reason names the box's way."""
    sandbox.run(ATOLL, "shell", input="r3 ip link set r3-i down\n")
    done = sandbox.run(ATOLL, "apply", chained(sandbox.directory, "tap-w, r1, sat, r3, tap-i"))
    sandbox.run(ATOLL, "shell", input="r3 ip link set r3-i up\n")
    assert done.returncode == 1
    assert "swap rolled back; the previous configuration is active: probe" in done.stderr
    assert chain(sandbox) == "tap-w, r1, sat, tap-i"


def test_an_interrupted_swap_goes_back(sandbox: Sandbox) -> None:
    """Ctrl-C while the probes are under way."""
    process = sandbox.start(ATOLL, "apply", chained(sandbox.directory, "tap-w, r2, sat, tap-i"))
    wait_for_line(process, "chains: install")
    pid = sandbox.find("atoll apply")
    assert pid is not None
    sandbox.kill(pid, signal.SIGINT)
    assert process.wait(20) != 0
    assert chain(sandbox) == "tap-w, r1, sat, tap-i"
    done = sandbox.run(ATOLL, "apply", "--json", chained(sandbox.directory, "tap-w, r1, sat, tap-i"))
    assert json.loads(done.stdout)["changes"] == [], done.stdout


def test_a_word_that_is_none_is_refused_before_anything_is_done(sandbox: Sandbox) -> None:
    done = sandbox.run(ATOLL, "apply", chained(sandbox.directory, "sat"), "--connections", "never")
    assert done.returncode == 2
    assert done.stderr.startswith("--connections: 'never' is neither reset nor wait")


def test_a_swap_by_a_version_in_between_is_told_before_and_while_it_is_made(tmp_path: Path) -> None:
    """From a full chain to the one of the example that halves the island, in the lab that comes with atoll."""
    half = ROOT / "examples" / "half-coded.yaml"
    text = half.read_text(encoding="utf-8").replace("../emulation", f"{ROOT}/emulation")
    begin, end = text.split("chain: [tap-w, sat, tap-i]")[0], text[text.index("\nlinks:") :]
    whole = tmp_path / "whole.yaml"
    whole.write_text(f"{begin}chain: [tap-w, pep-w, coder-w, sat, coder-i, pep-i, tap-i]\n{end}", encoding="utf-8")
    with Sandbox(tmp_path) as sandbox:
        try:
            done = sandbox.run(ATOLL, "up", whole, *ON_RUNTIME)
            assert done.returncode == 0, done.stderr
            told = sandbox.run(ATOLL, "apply", half, "--dry-run")
            assert told.returncode == 0, told.stderr
            assert "the swap has 2 parts, one after the other:" in told.stdout.splitlines()
            assert "; no packet passes " in told.stdout
            assert "the swap would have 10 stages; its drains take at least 1.1 s:" in told.stdout.splitlines()
            foreseen = json.loads(sandbox.run(ATOLL, "apply", half, "--dry-run", "--json").stdout)
            assert [(each["part"], each["stage"]) for each in foreseen["stages"]] == [
                (part, stage) for part in (0, 1) for stage in STAGES
            ]
            waits = [each["wait_ns"] for each in foreseen["stages"] if each["stage"] == "drain"]
            assert waits == [part["drain_ns"] for part in foreseen["parts"]]
            assert chain(sandbox) == "tap-w, pep-w, coder-w, sat, coder-i, pep-i, tap-i"
            done = sandbox.run(ATOLL, "apply", half, "--json")
            assert done.returncode == 0, done.stderr
            answer = json.loads(done.stdout)
            stages = [(event["part"], event["stage"]) for event in answer["swap"] if event["state"] == "stage"]
            assert stages == [(part, stage) for part in (0, 1) for stage in STAGES]
            assert [part["subject"] for part in answer["parts"]] == ["chains", "chains"]
            assert {each["fits"] for each in answer["budgets"]} == {True}
            assert "part 1 of 2, chains: install" in done.stderr
            print(told.stdout)
        finally:
            sandbox.run(ATOLL, "down", "--force")
