# SPDX-License-Identifier: Apache-2.0
"""`atoll setup`: what the distribution has to give, on machines that lack some of it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from atoll_cli.commands.setup import set_up
from atoll_core.errors import MachineError
from atoll_emulation.this_machine import packages
from atoll_emulation.this_machine.host_requirements import missing_tools
from atoll_emulation.this_machine.packages import uses_here

COMMAND = "apt-get update; apt-get install --no-install-recommends bison iputils-ping nftables"
INSTALL = "install --no-install-recommends --yes --no-remove -o DPkg::Lock::Timeout=300 bison iputils-ping nftables"
LINES = [
    "--on mininet        missing: nft",
    "--on virtual        missing: nft",
    "atoll kernel build  missing: bison",
    "iperf3, ping        missing: ping",
]
MISSING = ("bison", "nft", "ping")

# Notes its words, prints, and installs if there is a file `works`. Fails to fetch lists, as for want of one of several
# repositories; fails to install if there is a file `fails`, and if there is a file `old-lists` until they were fetched.
APT_GET = """#!/bin/sh
echo "$*" >>{0}/asked
echo progress
[ "$1" != update ] || { echo >{0}/old-lists.fetched; exit 100; }
[ ! -e {0}/fails ] || exit 100
[ ! -e {0}/old-lists ] || [ -e {0}/old-lists.fetched ] || exit 100
[ ! -e {0}/works ] || for name in bison nft ping; do /bin/ln -s /bin/true {0}/tools/$name; done
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Debian that has all but three programs, for root, with an apt-get of the test's."""
    tools, needs = tmp_path / "tools", packages._needs()
    tools.mkdir()
    for name in {need.name for need in needs if need.kind == "program"} - {*MISSING, "apt-get"}:
        (tools / name).symlink_to("/bin/true")
    (tools / "apt-get").write_text(APT_GET.replace("{0}", str(tmp_path)))
    (tools / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr("atoll_cli.commands.setup.complete_path", lambda: str(tools))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "debian"})
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(packages, "find_mininet", lambda: "found")
    monkeypatch.setattr(packages, "_needs", lambda: tuple(need for need in needs if need.kind != "file"))
    return tmp_path


def test_every_need_has_a_package_of_every_family_but_mininet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    needs = packages._needs()
    assert {use for uses in uses_here().values() for use in uses} == {need.use for need in needs}
    assert {need.kind for need in needs} == {"program", "file", "module"}
    assert {need.packages["debian"] for need in needs if "-" in need.packages.values()} == {"mininet"}


def test_without_a_terminal_nothing_is_installed(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert set_up(yes=False, as_json=False) == 1
    out, err = capfd.readouterr()
    assert (out.splitlines(), err) == ([*LINES, COMMAND], "to install them: atoll setup --yes\n")
    assert not (machine / "asked").exists()


def test_root_installs_what_is_missing_and_sees_that_it_is_there(
    machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (machine / "works").touch()
    assert set_up(yes=True, as_json=False) == 0
    assert (machine / "asked").read_text().splitlines() == [INSTALL]
    lines = capfd.readouterr().out.splitlines()
    assert (lines[:4], [line.endswith("  nothing is missing") for line in lines[5:]]) == (LINES, [True] * 4)


def test_json_is_one_object_and_says_what_is_still_missing(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert set_up(yes=True, as_json=True) == 1
    assert json.loads(capfd.readouterr().out) == {
        "missing": dict(zip(uses_here(), (["nft"], ["nft"], ["bison"], ["ping"]), strict=True)),
        "packages": ["bison", "iputils-ping", "nftables"],
        "command": COMMAND,
        "installed": True,
        "family": "debian",
    }
    assert (machine / "asked").exists()


def test_lists_of_packages_are_fetched_if_need_be_and_a_repository_that_fails_stops_nothing(machine: Path) -> None:
    (machine / "works").touch()
    (machine / "old-lists").touch()
    assert set_up(yes=True, as_json=False) == 0
    assert (machine / "asked").read_text().splitlines() == [INSTALL, "update", INSTALL]


def test_json_asks_nothing_on_a_terminal(
    machine: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "y\n"))
    assert set_up(yes=False, as_json=True) == 1
    out, err = capfd.readouterr()
    assert (json.loads(out)["installed"], err) == (False, "to install them: atoll setup --yes\n")
    assert not (machine / "asked").exists()


@pytest.mark.usefixtures("machine")
def test_the_kernel_needs_nothing_where_it_cannot_run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert set_up(yes=False, as_json=True) == 1
    answer = json.loads(capfd.readouterr().out)
    assert ([*answer["missing"]], answer["packages"]) == (
        ["--on mininet", "iperf3, ping"],
        ["iputils-ping", "nftables"],
    )


@pytest.mark.parametrize(
    ("distribution", "lines"),
    [
        ("debian", ["missing mnexec, nft: run `make setup`, or `apt install mininet nftables`"]),
        ("nixos", ["missing mnexec, nft: run `make setup`, or in Debian: `apt install mininet nftables`"]),
        (
            "fedora",
            [
                "missing nft: run `make setup`, or `dnf install nftables`",
                "missing mnexec: this distribution has no package of it; install by hand",
            ],
        ),
    ],
)
def test_a_lab_names_all_that_is_missing_at_once(
    machine: Path, monkeypatch: pytest.MonkeyPatch, distribution: str, lines: list[str]
) -> None:
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": distribution})
    (machine / "tools/mnexec").unlink()
    assert missing_tools() == lines


def test_a_package_manager_that_fails_is_one_line(machine: Path) -> None:
    (machine / "fails").touch()
    with pytest.raises(MachineError, match=rf"^apt-get {INSTALL}: failed with exit code 100; its messages are above$"):
        set_up(yes=True, as_json=False)


def test_who_is_not_root_gets_the_command_for_sudo(
    machine: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    assert set_up(yes=True, as_json=False) == 1
    assert capfd.readouterr().err == f"not root: sudo sh -c '{COMMAND}'\n"
    assert not (machine / "asked").exists()


NOT_TESTED = "(names of packages not tested)"
DISTRIBUTIONS = {
    "linuxmint, ubuntu debian": COMMAND,
    "rocky, rhel centos fedora": f"dnf install bison iputils nftables  {NOT_TESTED}",
    "arch, ": f"pacman -S --needed bison iputils nftables  {NOT_TESTED}",
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
    assert command.startswith("dnf install bison iputils nftables ")


def test_the_service_of_open_vswitch_is_announced(machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (machine / "tools/ovs-vsctl").unlink()
    assert set_up(yes=False, as_json=False) == 1
    assert "systemctl disable --now openvswitch-switch" in capfd.readouterr().out.splitlines()[-1]
