# SPDX-License-Identifier: Apache-2.0
"""Addresses and neighbours that no lab has, but the machine whose state `atoll check --machine` shows may have."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.lab

ENDS = """
ip link add left type veth peer name right
ip link set left up
ip link set right up
ip address add 10.0.0.1 peer 10.0.0.2 dev left
ip neighbour add 10.0.0.3 dev left nud incomplete
"""
SHOW = """
import json
from atoll_emulation.this_machine.network_state import network_state
print(json.dumps(network_state()))
"""


def test_a_point_to_point_link_has_its_own_address_and_a_neighbour_that_has_not_answered_its_state() -> None:
    shown = subprocess.run(
        ["unshare", "--net", "sh", "-ec", ENDS + 'exec "$0" -c "$1"', sys.executable, SHOW],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    state = json.loads(shown.stdout)
    (left,) = (interface for interface in state["interfaces"] if interface["name"] == "left")
    assert "10.0.0.1/32" in left["addresses"]
    assert state["neighbours"]["incomplete"] == 1
