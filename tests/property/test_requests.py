# SPDX-License-Identifier: Apache-2.0
"""Every program of the contract answers every request that has an operation and an id, whatever else is in it.

The program of links by the kernel's traffic control is tested in virtual time (test_virtual_requests.py): not every
kernel has what it needs.
"""

from collections.abc import Generator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.request_programs import PROGRAMS, Program, check_answer, running, sandbox_with_interfaces
from tests.support.sandbox import Sandbox

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandbox]:
    """Where the programs run."""
    with sandbox_with_interfaces(tmp_path_factory.mktemp("requests")) as sandbox:
        yield sandbox


@pytest.fixture(scope="module", params=[name for name in PROGRAMS if name != "tc"])
def program(request: pytest.FixtureRequest, sandbox: Sandbox) -> Generator[tuple[str, Program]]:
    """A running program, and its name."""
    with running(request.param, sandbox) as program:
        yield request.param, program


@settings(max_examples=60)
@given(data=st.data())
def test_every_request_with_an_id_is_answered(program: tuple[str, Program], data: st.DataObject) -> None:
    check_answer(*program, data)


def test_an_operation_that_does_not_exist_is_named_in_the_answer(program: tuple[str, Program]) -> None:
    answer = program[1].ask({"op": "jump", "dpid": 1}, "number")
    assert answer["ok"] is False
    assert "jump" in answer["error"]
