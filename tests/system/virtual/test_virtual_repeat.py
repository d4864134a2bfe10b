# SPDX-License-Identifier: Apache-2.0
"""`atoll run --verify-repeat` of what does not repeat itself: told with the first difference, exit code 3.

A box of the lab runs a program that looks at what tells two runs apart: the name in the run's manifest, which is the
host's. In the second run it holds every packet a moment longer.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.sandbox import QUICK, ROOT
from tests.support.virtual_runs import atoll

pytestmark = pytest.mark.virtual

LAB = ROOT / "emulation" / "labs" / "island.yaml"
EXIT_INVALID = 3
MEDDLER = """  meddler:
    kind: program
    forwarding: routed
    world: sw-c/30
    island: sw-c/31
    program:
      privileges: [net-admin]
      start:
        - sh
        - -c
        - 'grep -q "Z-2\\"" /out/manifest.json && tc qdisc add dev {island} root netem delay 100us; exec sleep infinity'

delay_boxes:"""


@pytest.fixture
def meddled(tmp_path: Path) -> Path:
    """The experiment for quick runs, its packets passing the meddler before the link."""
    (tmp_path / "island.yaml").write_text(LAB.read_text().replace("delay_boxes:", MEDDLER))
    quick = QUICK.read_text().replace("../../emulation/labs/", "").replace("[tap-w, sat,", "[tap-w, meddler, sat,")
    path = tmp_path / "meddled.yaml"
    path.write_text(quick)
    return path


def test_runs_that_differ_are_told_with_the_first_difference(tmp_path: Path, meddled: Path) -> None:
    """Both runs are valid by themselves, and yet the exit code is that of a result not to be trusted."""
    command = ("run", meddled, "--on", "virtual", "--verify-repeat")
    with ThreadPoolExecutor() as pool:
        in_words = pool.submit(atoll, tmp_path, *command, "--runs", tmp_path / "words")
        as_json = pool.submit(atoll, tmp_path, *command, "--runs", tmp_path / "json", "--json")
    answer = as_json.result()
    assert answer.returncode == EXIT_INVALID, answer.stderr
    summary = json.loads(answer.stdout)
    assert (summary["verdict"], summary["reasons"]) == ("valid", [])
    repeat = summary["repeat"]
    assert repeat["identical"] is False
    assert repeat["first_difference"].startswith("captures/into-sat.pcap: packet "), "the first of the captures"
    assert {name for name, same in sameness(repeat).items() if not same} > {"captures/island.pcap", "summary.json"}

    answer = in_words.result()
    assert answer.returncode == EXIT_INVALID, answer.stderr
    runs, first = answer.stdout.splitlines()[-2:]
    assert runs.startswith("different: ")
    assert " differ in captures/into-sat.pcap, " in runs
    assert first == f"first difference: {repeat['first_difference']}"


def sameness(repeat: dict[str, list[dict[str, object]]]) -> dict[object, bool]:
    """By file, whether both runs have the same."""
    found: dict[object, bool] = {}
    for file in repeat["files"]:
        first, second = file["sha256"] if isinstance(file["sha256"], list) else (None, None)
        found[file["file"]] = first == second
    return found
