# SPDX-License-Identifier: Apache-2.0
"""The rack that a verb means where its inventory is not where it was."""

import contextlib
import os
from pathlib import Path

import pytest

from atoll_cli.commands.selection import use_inventory
from atoll_core.errors import DescriptionError
from atoll_daemon.socket_lock import INVENTORY_VARIABLE, bind_daemon_socket


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that is meant and not there."""
    file = tmp_path / "rack.yaml"
    monkeypatch.setenv(INVENTORY_VARIABLE, str(file))
    return file


def test_a_rack_whose_file_was_moved_is_meant_as_long_as_a_daemon_holds_it(inventory: Path) -> None:
    with contextlib.closing(bind_daemon_socket()):
        use_inventory(inventory, moved=True)
        assert os.environ[INVENTORY_VARIABLE] == str(inventory)
        with pytest.raises(DescriptionError, match="there is no such file"):
            use_inventory(inventory)


def test_of_a_file_that_is_nowhere_no_lab_is_up(inventory: Path) -> None:
    for named in (inventory, None):
        with pytest.raises(DescriptionError, match="there is no such file"):
            use_inventory(named, moved=True)
