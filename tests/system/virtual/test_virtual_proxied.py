# SPDX-License-Identifier: Apache-2.0
"""What captures prove of a lossy link when a box between the taps ends TCP, loses packets or swallows payload."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis.verdict.loss_agreement import proofs
from tests.support import proxied_experiment
from tests.support.virtual_runs import atoll, run_virtually

pytestmark = pytest.mark.virtual


def judged(directory: Path, *program: str, declared: str = "") -> dict[str, Any]:
    """The summary of a run through that box, whatever the verdict."""
    experiment = proxied_experiment.describe(directory, *program, declared=declared)
    done = atoll(directory, "run", "--on", "virtual", "--json", experiment)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_a_lossy_link_behind_a_proxy_is_proven_at_its_own_ports(tmp_path: Path) -> None:
    """Random and queue losses, retransmissions by the proxy: the link's count is right to the byte."""
    summary = run_virtually(tmp_path, proxied_experiment.describe(tmp_path, "splitter.py"))
    assert summary["loss_bytes_link"] > 0
    assert (summary["loss_bytes_captures"], summary["tcp_payload_loss_bytes"]) == (None, None)
    at_link, behind, payload = proofs(summary["stretches"], summary["payload"])
    lost = summary["loss_bytes_link"]
    assert at_link == f"captures into-sat and link-sat differ by {lost} bytes, which sat counted as dropped"
    assert behind == "captures link-sat and island are equal to the byte"
    assert payload.startswith("TCP payload through pep-w: ")
    assert summary["payload"]["received_bytes"] <= summary["payload"]["island_bytes"]
    page = Path(summary["report"]).read_text(encoding="utf-8")
    assert at_link in page
    assert payload in page


def test_a_box_that_loses_packets_and_is_said_to_conserve_them_is_named(tmp_path: Path) -> None:
    summary = judged(tmp_path, "lossy_router.py", declared="conserves_packets: true")
    assert summary["verdict"] == "invalid"
    assert summary["reason_codes"].count("LOSS_DIFFERS") == 1
    reason = summary["reasons"][summary["reason_codes"].index("LOSS_DIFFERS")]
    assert "between world and into-sat (pep-w), bound 0; if pep-w ends, splits" in reason


def test_a_proxy_that_swallows_payload_makes_a_run_invalid(tmp_path: Path) -> None:
    summary = judged(tmp_path, "splitter.py", "20")
    assert summary["verdict"] == "invalid"
    assert "PAYLOAD_DIFFERS" in summary["reason_codes"]
    assert "LOSS_DIFFERS" not in summary["reason_codes"]
    assert any(reason.startswith("TCP payload differs before and after pep-w") for reason in summary["reasons"])
