# SPDX-License-Identifier: Apache-2.0
"""What `atoll init` writes runs as its README says."""

from pathlib import Path

import pytest

from atoll_studies.templates import template_names
from tests.support.virtual_runs import atoll, run_virtually

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("template", template_names())
def test_a_run_of_a_template_is_valid_and_its_study_can_be_swept(tmp_path: Path, template: str) -> None:
    assert atoll(tmp_path, "init", "mine", "--template", template).returncode == 0
    assert atoll(tmp_path / "mine", "sweep", "study.yaml", "--dry-run").returncode == 0
    summary = run_virtually(tmp_path / "mine", "experiment.yaml", "--duration", "20 s")
    assert summary["reasons"] == []
    assert set(summary["caveat_codes"]) <= {"TRANSFER_UNFINISHED"}, "which begins after 10 s"
