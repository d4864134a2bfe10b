# SPDX-License-Identifier: Apache-2.0
"""The lab that the options of a command, or the environment, mean."""

import contextlib
from pathlib import Path

import pytest

from atoll_cli.commands.selection import lab_target
from atoll_cli.terminal.options import INVENTORY_VARIABLE
from atoll_core.errors import DescriptionError, UsageError
from atoll_core.platforms import HARDWARE, MININET, VIRTUAL, LabTarget
from atoll_daemon.socket_lock import bind_daemon_socket


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that is meant and not there."""
    file = tmp_path / "rack.yaml"
    monkeypatch.setenv(INVENTORY_VARIABLE, str(file))
    return file


def test_a_rack_whose_file_was_moved_is_meant_as_long_as_a_daemon_holds_it(inventory: Path) -> None:
    target = LabTarget(HARDWARE, inventory)
    with contextlib.closing(bind_daemon_socket(target)):
        assert lab_target(inventory, may_be_missing=True) == lab_target(may_be_missing=True) == target
        with pytest.raises(DescriptionError, match="there is no such file"):
            lab_target(inventory)


def test_of_a_file_that_is_nowhere_no_lab_is_up(inventory: Path) -> None:
    for named in (inventory, None):
        with pytest.raises(DescriptionError, match="there is no such file"):
            lab_target(named, may_be_missing=True)


def test_an_inventory_means_hardware_unless_another_platform_is_named(
    inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the environment gives way to a platform; one that is named with a platform is refused."""
    inventory.touch()
    assert lab_target() == lab_target(None, HARDWARE) == LabTarget(HARDWARE, inventory)
    assert (lab_target(None, MININET), lab_target(None, VIRTUAL)) == (LabTarget(), LabTarget(VIRTUAL))
    with pytest.raises(UsageError, match="--inventory needs --on hardware, not --on mininet"):
        lab_target(inventory, MININET)
    monkeypatch.chdir(tmp_path)
    assert lab_target(Path("rack.yaml")) == LabTarget(HARDWARE, inventory), "the daemon works in another directory"
    monkeypatch.setenv(INVENTORY_VARIABLE, "")
    assert lab_target() == LabTarget()


def test_hardware_needs_an_inventory_except_on_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INVENTORY_VARIABLE, raising=False)
    with pytest.raises(UsageError, match=f"name an inventory with --inventory FILE or {INVENTORY_VARIABLE}"):
        lab_target(None, HARDWARE)
    assert lab_target(None, HARDWARE, planning_only=True) == LabTarget(HARDWARE)
    with pytest.raises(UsageError, match="--on mininett: unknown platform; did you mean 'mininet'"):
        lab_target(None, "mininett")
