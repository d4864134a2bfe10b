# SPDX-License-Identifier: Apache-2.0
"""The C library of a machine, as `atoll check --machine` shows it."""

import os

import pytest

from atoll_emulation.this_machine.restrictions import c_library


def test_glibc_is_shown_with_its_version() -> None:
    assert c_library().startswith("glibc 2.")


@pytest.mark.parametrize("error", [OSError(22, "Invalid argument"), ValueError("unrecognized configuration name")])
def test_another_c_library_is_shown_with_the_remedy(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """As musl answers, and a Python that does not know the name."""

    def confstr(name: str) -> str:
        raise error

    monkeypatch.setattr(os, "confstr", confstr)
    assert c_library().startswith("not glibc")
    assert "container" in c_library()
