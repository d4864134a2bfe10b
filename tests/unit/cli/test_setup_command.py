# SPDX-License-Identifier: Apache-2.0
"""`atoll setup`: what the distribution has to give, on machines that lack some of it."""

import json
from pathlib import Path

import pytest

from atoll_cli.commands.setup import set_up
from atoll_core.errors import MachineError
from atoll_emulation.this_machine import packages
from atoll_emulation.this_machine.packages import USES

INSTALL = "apt-get update && apt-get install --yes --no-install-recommends bison iputils-ping nftables"
LINES = [
    "--on mininet        missing: nft",
    "--on virtual        missing: nft",
    "atoll kernel build  missing: bison",
    "iperf3, ping        missing: ping",
]
MISSING = ("bison", "nft", "ping")

# Notes its words, prints, fails if there is a file `fails`, and installs if there is a file `works`.
APT_GET = """#!/bin/sh
echo "$*" >>{0}/asked
echo progress
[ ! -e {0}/fails ] || exit 100
[ "$1" = update ] || [ ! -e {0}/works ] || for name in bison nft ping; do /bin/ln -s /bin/true {0}/tools/$name; done
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Debian that has all but three programs, for root, with an apt-get of the test's."""
    tools, needs = tmp_path / "tools", packages._needs()
    tools.mkdir()
    for name in {need.name for need in needs if need.kind == "program"} - {*MISSING, "apt-get"}:
        (tools / name).symlink_to("/bin/true")
    (tools / "apt-get").write_text(APT_GET.format(tmp_path))
    (tools / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr("atoll_cli.commands.setup.complete_path", lambda: str(tools))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "debian"})
    monkeypatch.setattr(packages, "find_mininet", lambda: "found")
    monkeypatch.setattr(packages, "_needs", lambda: tuple(need for need in needs if need.kind != "file"))
    return tmp_path


def test_every_need_has_a_package_of_every_family_but_mininet() -> None:
    needs = packages._needs()
    assert {use for uses in USES.values() for use in uses} == {need.use for need in needs}
    assert {need.kind for need in needs} == {"program", "file", "module"}
    assert {need.packages["debian"] for need in needs if "-" in need.packages.values()} == {"mininet"}


def test_without_a_terminal_nothing_is_installed(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert set_up(yes=False, as_json=False) == 1
    out, err = capfd.readouterr()
    assert (out.splitlines(), err) == ([*LINES, INSTALL], "to run this command: atoll setup --yes\n")
    assert not (machine / "asked").exists()


def test_root_installs_what_is_missing_and_sees_that_it_is_there(
    machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (machine / "works").touch()
    assert set_up(yes=True, as_json=False) == 0
    assert [f"apt-get {line}" for line in (machine / "asked").read_text().splitlines()] == INSTALL.split(" && ")
    lines = capfd.readouterr().out.splitlines()
    assert (lines[:4], [line.endswith("  nothing is missing") for line in lines[5:]]) == (LINES, [True] * 4)


def test_json_is_one_object_and_says_what_is_still_missing(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert set_up(yes=True, as_json=True) == 1
    assert json.loads(capfd.readouterr().out) == {
        "missing": dict(zip(USES, (["nft"], ["nft"], ["bison"], ["ping"]), strict=True)),
        "packages": ["bison", "iputils-ping", "nftables"],
        "command": INSTALL,
        "installed": True,
        "family": "debian",
    }
    assert (machine / "asked").exists()


def test_a_package_manager_that_fails_is_one_line(machine: Path) -> None:
    (machine / "fails").touch()
    with pytest.raises(MachineError, match=r"^apt-get update: failed with exit code 100; its messages are above$"):
        set_up(yes=True, as_json=False)


def test_who_is_not_root_gets_the_command_for_sudo(
    machine: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    assert set_up(yes=True, as_json=False) == 1
    assert capfd.readouterr().err == f"not root: sudo sh -c '{INSTALL}'\n"
    assert not (machine / "asked").exists()


NOT_TESTED = "(names of packages not tested)"
DISTRIBUTIONS = {
    "linuxmint, ubuntu debian": INSTALL,
    "rocky, rhel centos fedora": f"dnf install --assumeyes bison iputils nftables  {NOT_TESTED}",
    "arch, ": f"pacman -S --needed --noconfirm bison iputils nftables  {NOT_TESTED}",
    "nixos, ": "this distribution is unknown; in Debian these packages have it: bison iputils-ping nftables",
}


@pytest.mark.parametrize("names", DISTRIBUTIONS)
def test_each_distribution_has_its_command(
    machine: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    release = dict(zip(("ID", "ID_LIKE"), names.split(", "), strict=True))
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: release)
    assert set_up(yes=False, as_json=False) == 1
    assert capfd.readouterr().out.splitlines() == [*LINES, DISTRIBUTIONS[names]]
    assert not (machine / "asked").exists()


def test_mininet_without_a_package_is_to_be_installed_by_hand(
    machine: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "fedora"})
    monkeypatch.setattr(packages, "find_mininet", lambda: None)
    (machine / "tools/mnexec").unlink()
    assert set_up(yes=False, as_json=False) == 1
    *_, by_hand, command = capfd.readouterr().out.splitlines()
    assert by_hand == "this distribution has no package of mnexec, mininet's Python package; install by hand"
    assert command.startswith("dnf install --assumeyes bison iputils nftables ")


def test_the_service_of_open_vswitch_is_announced(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (machine / "tools/ovs-vsctl").unlink()
    assert set_up(yes=False, as_json=False) == 1
    assert "systemctl disable --now openvswitch-switch" in capfd.readouterr().out.splitlines()[-1]
