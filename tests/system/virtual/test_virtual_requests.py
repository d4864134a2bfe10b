# SPDX-License-Identifier: Apache-2.0
"""A link of the kernel's traffic control answers every request that has an operation and an id."""

from pathlib import Path

import pytest

from tests.support.virtual_runs import said_inside

pytestmark = pytest.mark.virtual


def test_every_request_to_a_tc_link_is_answered(tmp_path: Path) -> None:
    assert said_inside("tests.guests.requests_guest", tmp_path)["answered"] >= 60
