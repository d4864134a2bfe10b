# SPDX-License-Identifier: Apache-2.0
"""A user's program that ends as soon as it is started: the command that started it fails, and the lab is as before."""

from pathlib import Path

import pytest

from tests.support.proxied_experiment import describe
from tests.support.sandbox import ATOLL, Sandbox

pytestmark = pytest.mark.lab


def test_a_program_that_ends_at_once_fails_up_and_apply_and_leaves_the_lab_as_it_was(tmp_path: Path) -> None:
    experiment = describe(tmp_path, "relay.py")
    lab = tmp_path / "lab.yaml"
    text = lab.read_text(encoding="utf-8")
    head, _, tail = text.partition("program: {start: [")
    broken = "sh, -c, 'echo SyntaxError in line 1 >&2; exit 1'"
    lab.write_text(f"{head}program: {{start: [{broken}]{tail[tail.index(']') + 1 :]}", encoding="utf-8")
    direct = tmp_path / "direct.yaml"
    direct.write_text(experiment.read_text(encoding="utf-8").replace("tap-w, pep-w, sat", "tap-w, sat"), "utf-8")
    with Sandbox(tmp_path) as sandbox:
        up = sandbox.run(ATOLL, "up", experiment)
        assert (up.returncode, up.stderr.splitlines()[-1]) == (
            1,
            "program-pep-w ended at once: SyntaxError in line 1 (exit status 1)",
        )
        assert sandbox.run(ATOLL, "status").stdout == "no lab is up\n"
        assert sandbox.run(ATOLL, "up", direct).returncode == 0
        for how in ([], ["--immediate"]):
            apply = sandbox.run(ATOLL, "apply", *how, experiment)
            assert apply.returncode == 1, apply.stdout
            assert "ended at once: SyntaxError in line 1 (exit status 1)" in apply.stderr.splitlines()[-1]
            status = sandbox.run(ATOLL, "status")
            assert "chain tap-w - sat - tap-i" in status.stdout, status.stderr
        assert sandbox.run(ATOLL, "apply", direct).stdout.startswith("0 changes made")
        assert sandbox.run(ATOLL, "down").returncode == 0
