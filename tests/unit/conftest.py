# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the unit tests in more than one file."""

import os
from pathlib import Path

import pytest

from atoll_emulation.uml.cache import build_cache


@pytest.fixture
def kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This test's own cache of kernels for virtual time; the machine's shared cache is the test's own, too."""
    monkeypatch.delenv("ATOLL_KERNEL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ATOLL_SHARED_KERNELS", str(tmp_path / "machine" / "kernel"))
    return build_cache()


@pytest.fixture
def shared_kernels(tmp_path: Path, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shared cache, to which root's builds go."""
    assert kernel_cache
    if os.geteuid() != 0:
        pytest.skip("building for every user takes root")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "machine" / "kernel"
