# SPDX-License-Identifier: Apache-2.0
"""Which atoll-host a machine gets, and that what it computes is what it computed on the day it was written down."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from atoll_core.errors import MachineError
from atoll_hosts.binary import VARIABLE, find_binary
from atoll_hosts.ssh import installation

FOREIGN = {"aarch64": "aarch64", "arm64": "aarch64", "armv7l": "armv7l", "armv8l": "armv7l"}


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `make release` leaves its binaries, empty; nothing else is named."""
    monkeypatch.setattr(installation, "static_folder", lambda: tmp_path)
    monkeypatch.delenv(installation.FOLDER, raising=False)
    return tmp_path


@pytest.mark.parametrize(("said", "arch"), [each for each in FOREIGN.items() if each[1] != platform.machine()])
def test_a_foreign_machine_gets_the_released_binary_of_its_architecture(said: str, arch: str, released: Path) -> None:
    """By what `uname -m` says there, under any of its names."""
    with pytest.raises(MachineError) as missing:
        installation.binary_for(said)
    assert f"there is no atoll-host-{arch} in {released}; `make release ARGS={arch}` builds it" in str(missing.value)
    (released / f"atoll-host-{arch}").write_bytes(b"a program")
    assert installation.binary_for(said) == released / f"atoll-host-{arch}"


def test_a_named_directory_goes_before_the_released_ones(
    released: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("binaries")
    for place in (released, folder):
        (place / "atoll-host-armv7l").write_bytes(b"a program")
    monkeypatch.setenv(installation.FOLDER, str(folder))
    assert installation.binary_for("armv7l") == folder / "atoll-host-armv7l"
    (folder / "atoll-host-armv7l").unlink()
    assert installation.binary_for("armv7l") == released / "atoll-host-armv7l"


def test_a_machine_like_this_one_gets_the_newer_of_the_released_binary_and_the_one_used_here(
    released: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = released / "used"
    used.write_bytes(b"a program")
    used.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(used))
    assert installation.binary_for(platform.machine()) == used
    one = released / f"atoll-host-{platform.machine()}"
    one.write_bytes(b"a program")
    os.utime(used, (1000, 1000))
    assert installation.binary_for(platform.machine()) == one
    os.utime(one, (500, 500))
    assert installation.binary_for(platform.machine()) == used


def test_what_is_computed_is_what_releases_for_other_architectures_are_held_to(project: Path, tmp_path: Path) -> None:
    """A hundred thousand flows by a seed and the records of a capture; `tools/release` tries them under an emulator."""
    program, known = str(find_binary()), project / "tests" / "data" / "computed.sha256"
    draw = [program, "flows", "--seed", "1", "--channel", "0", "--count", "100000", "--servers", "6"]
    with (tmp_path / "flows.csv").open("wb") as flows:
        subprocess.run(draw, stdout=flows, check=True)
    capture = project / "tests" / "data" / "flow-records" / "sample.pcap"
    read = [program, "pcap", "records", str(capture), "records.bin", "--side", "10.20.0.0/16"]
    subprocess.run(read, cwd=tmp_path, stdout=subprocess.DEVNULL, check=True)
    held = subprocess.run(
        ["sha256sum", "--check", str(known)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert held.returncode == 0, held.stdout
