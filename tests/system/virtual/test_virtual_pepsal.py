# SPDX-License-Identifier: Apache-2.0
"""PEPsal as a box: the shipped example, with PEPsal where it is installed, and with a program that stands in for it."""

import shutil
from ipaddress import IPv4Address
from pathlib import Path

import numpy as np
import pytest

from tests.support.sandbox import ROOT
from tests.support.virtual_runs import packets, run_virtually

pytestmark = pytest.mark.virtual
EXAMPLE = ROOT / "examples/pepsal"
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START = '[python3, pepsal.py, "{world}", "{island}", 10.20.0.1]'
TCP, SYN_ACK = 6, 0x12


def described(directory: Path, folder: str) -> Path:
    """The example, in which `pepsal` is the program of this folder, if there is one."""
    lab = (EXAMPLE / "lab.yaml").read_text(encoding="utf-8")
    assert START in lab
    script = EXAMPLE / "pepsal.py"
    start = f'[env, "PATH={folder}:{SYSTEM}", python3, {script}, "{{world}}", "{{island}}", 10.20.0.1]'
    lab = lab.replace(START, start).replace("        pepsal: ", f"        {folder}/pepsal: ")
    (directory / "lab.yaml").write_text(lab, encoding="utf-8")
    return Path(shutil.copy(EXAMPLE / "pepsal.yaml", directory))


@pytest.mark.parametrize("program", ["PEPsal", "stand-in"])
def test_servers_see_one_client_and_everything_reaches_the_island(tmp_path: Path, program: str) -> None:
    folder = ROOT / "tests/guests/as_pepsal"
    if program == "PEPsal":
        found = shutil.which("pepsal", path=SYSTEM)
        if found is None:
            pytest.skip("PEPsal is not installed")
        folder = Path(found).parent
    experiment = described(tmp_path, str(folder))
    short = ("--duration", "20 s", "--set", "transfer.start=2 s", "--set", "transfer.size=2 MB")
    summary = run_virtually(tmp_path, experiment, *short)
    assert summary["verdict"] != "invalid", summary["reasons"]
    assert summary["flows_completed"] > 50
    assert summary["transfer_complete"]
    said = Path(summary["run_dir"], "logs", "program-pep-w.out").read_text(encoding="utf-8").splitlines()
    assert said[0] == "PEPsal takes TCP from pep-w-i"
    accepted = {}
    for name in ("world", "island"):
        found_packets = packets(Path(summary["run_dir"]), name, tmp_path)
        is_answer = (found_packets["proto"] == TCP) & (found_packets["tcp_flags"] & SYN_ACK == SYN_ACK)
        accepted[name] = {str(IPv4Address(int(each))) for each in np.unique(found_packets["dst"][is_answer])}
    assert accepted["world"] == {"10.20.0.1"}
    assert len(accepted["island"]) == 7
