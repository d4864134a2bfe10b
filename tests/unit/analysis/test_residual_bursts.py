# SPDX-License-Identifier: Apache-2.0
"""What stays lost behind coders is what the taps outside them show, and is reported by burst length."""

import json
from pathlib import Path
from typing import Any

import pytest

from atoll_analysis import analyse
from atoll_analysis.figures.run_figures import measured_figures
from atoll_analysis.run_directory import RunDir
from atoll_core.codec import to_json
from atoll_core.lab.box_kind import ROUTER, BoxKind
from atoll_core.lab.coder import CODER
from atoll_core.lab.network import ChainBox, Interface
from atoll_core.lab.pep import PEP
from atoll_core.lab.port_ref import PortRef
from atoll_dashboards.report.key_figures import key_figures
from atoll_hosts.binary import find_binary
from tests.support.synthetic_run import simulate

HOPS = ["tap-w", "coder-w", "sat", "coder-i", "tap-i"]


def with_coders(tmp_path: Path, kind: BoxKind = CODER, between: BoxKind | None = None) -> RunDir:
    """A simulated run whose chain has boxes of a kind on both sides of the link, and perhaps another one."""
    run = simulate(tmp_path)
    manifest = run.manifest()
    others = {"coder-w": kind, "coder-i": kind, **({"pep-w": between} if between else {})}
    for number, (name, of) in enumerate(others.items()):
        world, island = (
            Interface(f"{name}-{side}", f"02:00:00:00:0{number + 1}:0{port}", PortRef("s1", 80 + 2 * number + port))
            for port, side in enumerate(("w", "i"))
        )
        manifest["network"]["boxes"].append(to_json(ChainBox(name, of, world, island)))
    manifest["experiment"]["chain"]["hops"] = ["tap-w", *(["pep-w"] if between else []), *HOPS[1:]]
    run.path.joinpath("manifest.json").write_text(json.dumps(manifest))
    return run


def test_packets_that_stay_lost_are_counted_by_burst_length(tmp_path: Path) -> None:
    """Coders that recover nothing: those that the link lost, which a run without coders shows at the link."""
    run = with_coders(tmp_path)
    summary: Any = analyse(run, find_binary())
    (bursts,) = summary["residual_bursts"].values()
    assert (bursts["first"], bursts["last"]) == ("world", "island")
    assert 0 < bursts["lost"] == sum(length * count for length, count in bursts["lengths"])
    uncoded: Any = analyse(simulate(tmp_path / "uncoded"), find_binary())
    assert bursts["lengths"] == uncoded["loss_bursts"]["sat"]["lengths"]
    assert bursts["packets"] == uncoded["loss_bursts"]["sat"]["packets"]
    figures = measured_figures(run.path, summary)
    assert figures["packets lost behind coders"] == bursts["lost"]
    assert figures["longest burst behind coders"] == bursts["longest"] > 1
    (shown,) = (each for each in key_figures(summary) if each.name == "lost behind coders")
    assert shown.text.startswith(f"{bursts['lost']}, ")
    assert shown.remark.endswith(f"at most {bursts['longest']}")


@pytest.mark.parametrize(("kind", "between"), [(ROUTER, None), (CODER, PEP)])
def test_without_coders_or_with_a_pep_among_them_there_is_no_such_figure(
    tmp_path: Path, kind: BoxKind, between: BoxKind | None
) -> None:
    run = with_coders(tmp_path, kind, between)
    summary: Any = analyse(run, find_binary())
    assert "residual_bursts" not in summary
    assert measured_figures(run.path, summary)["packets lost behind coders"] is None
