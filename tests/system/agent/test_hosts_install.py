# SPDX-License-Identifier: Apache-2.0
"""`hosts install` on machines that are no PCs: chosen by what `uname -m` says there, compared, tried, then moved."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll_hosts.binary import find_binary
from atoll_hosts.ssh.installation import FOLDER
from tests.support.rack import LAB, Rack, rack_of
from tests.support.sandbox import ATOLL

pytestmark = pytest.mark.lab

PI = "i1"
THERE = ".local/bin/atoll-host"
_EM_AARCH64 = 183  # elf.h
_MACHINE_AT = 18  # of an ELF header


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A rack on one of whose machines `uname` is a file; its processor is this one."""
    with rack_of(LAB, tmp_path_factory.mktemp("pi")) as rack:
        assert rack.run(ATOLL, "hosts", "enroll", "--yes", "--inventory", rack.inventory).returncode == 0
        says(rack, "aarch64").chmod(0o755)
        assert rack.on(PI, "mount", "--bind", str(rack.directory / "uname"), "/usr/bin/uname").returncode == 0
        yield rack


def says(rack: Rack, arch: str) -> Path:
    """What `uname` says on that machine from now on."""
    uname = rack.directory / "uname"
    uname.write_text(f"#!/bin/sh\necho {arch}\n")
    return uname


def on_it(rack: Rack, *argv: str) -> str:
    """What a command prints on that machine, in its user's home."""
    done = rack.run(ATOLL, "hosts", "exec", "--inventory", rack.inventory, "--host", PI, "--", *argv)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(rack: Rack, binaries: Path) -> subprocess.CompletedProcess[str]:
    words = [str(ATOLL), "hosts", "install", "--json", "--inventory", str(rack.inventory), PI]
    return rack.run("sh", "-c", f"{FOLDER}={shlex.quote(str(binaries))} exec {shlex.join(words)}")


def test_the_binary_of_the_machine_arrives_whole_and_one_that_does_not_run_changes_nothing(
    rack: Rack, tmp_path: Path
) -> None:
    """A shell script stands for the program of a Pi, as it runs anywhere; a program of a Pi's own does not run here."""
    program = tmp_path / "atoll-host-aarch64"
    says(rack, "riscv64")
    missing = install(rack, tmp_path).stderr
    assert f"{PI}: `uname -m` says riscv64, and there is no atoll-host-riscv64 in {tmp_path} or " in missing
    assert f"or {FOLDER} names its directory" in missing

    says(rack, "aarch64")
    program.write_text("#!/bin/sh\necho atoll-host 0.1.0\n# " + 100_000 * "x")
    done = install(rack, tmp_path)
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["machines"].values()
    assert (answer["arch"], answer["bytes_sent"]) == ("aarch64", program.stat().st_size)
    held = rack.on(PI, "sha256sum", THERE).stdout
    held = on_it(rack, "sha256sum", THERE)
    assert answer["sha256"] in held

    elf = bytearray(find_binary().read_bytes())
    elf[_MACHINE_AT : _MACHINE_AT + 2] = _EM_AARCH64.to_bytes(2, "little")
    program.write_bytes(elf)
    refused = install(rack, tmp_path)
    assert refused.returncode == 1
    assert f"`uname -m` says aarch64 there, and {program} does not run" in refused.stderr
    assert on_it(rack, "sha256sum", THERE) == held, "what was there is still there"
    assert "atoll-host.new" not in on_it(rack, "ls", ".local/bin"), "and nothing beside it"
