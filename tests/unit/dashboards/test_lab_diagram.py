# SPDX-License-Identifier: Apache-2.0
"""``atoll plan --graph``: a drawing that is well-formed, names everything, and whose words do not cover each other."""

from dataclasses import replace
from ipaddress import IPv4Network
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from atoll_cli.commands.plan import print_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import UsageError
from atoll_core.experiment.experiment import Chain, Experiment, Protocol, TrafficSelector
from atoll_core.lab.network import Network, Trunk
from atoll_core.lab.port_ref import PortRef
from atoll_core.plan.plan import Backend
from atoll_dashboards.diagram.lab_diagram import graph
from atoll_dashboards.diagram.labels import name_ranges, wrapped
from atoll_dashboards.diagram.svg import text_width

SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]  # left, top, right, bottom


def texts(drawing: str) -> list[tuple[str, Box]]:
    """Every text with the room it takes in a common font (narrower than what the drawing reckons with)."""
    found: list[tuple[str, Box]] = []
    for text in ET.fromstring(drawing).iter(f"{SVG}text"):
        words, size = text.text or "", float(text.get("font-size", "0"))
        x, y, width = float(text.get("x", "0")), float(text.get("y", "0")), 0.85 * text_width(words, size)
        left = x - (width / 2 if text.get("text-anchor") == "middle" else 0)
        found.append((words, (left, y - 0.75 * size, left + width, y + 0.2 * size)))
    return found


def overlapping(boxes: list[tuple[str, Box]]) -> list[tuple[str, str]]:
    """Texts that cover each other."""
    return [
        (one, other)
        for (one, a), (other, b) in combinations(boxes, 2)
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]


def several_chains(experiment: Experiment) -> Experiment:
    """Branches that share boxes, pass them in another order, or none."""
    return replace(
        experiment,
        branches=(
            Chain(
                "coded",
                ("tap-w", "coder-w", "sat", "coder-i", "tap-i"),
                TrafficSelector(island=IPv4Network("10.20.0.0/30")),
            ),
            Chain("odd", ("sat", "tap-w", "pep-w"), TrafficSelector(protocol=Protocol.UDP)),
            Chain("plain", (), TrafficSelector(world=IPv4Network("10.10.0.0/31"), protocol=Protocol.TCP)),
        ),
    )


def ring(network: Network) -> Network:
    """More trunks, some between switches that are drawn one above the other."""
    trunks = (Trunk(PortRef("sw-w1", 30), PortRef("sw-w2", 30), network.trunks[0].rate),)
    return replace(network, trunks=(*network.trunks, *trunks))


@pytest.fixture(params=["geo", "half-coded", "meo", "laboratory", "laboratory-procurve"])
def shipped(request: pytest.FixtureRequest, project: Path) -> tuple[Network, Experiment]:
    """An experiment to draw."""
    return load_experiment(project / "examples" / f"{request.param}.yaml")


def test_words_do_not_cover_each_other_nor_leave_the_paper(shipped: tuple[Network, Experiment]) -> None:
    """At any size: an SVG scales as a whole."""
    drawing = graph(*shipped)
    words = texts(drawing)
    assert overlapping(words) == []
    root = ET.fromstring(drawing)
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    assert all(
        left >= 0 and top >= 0 and right <= width and bottom <= height for _, (left, top, right, bottom) in words
    )


def test_everything_that_is_passed_is_named(shipped: tuple[Network, Experiment]) -> None:
    """Hops of every chain in order, every switch, every trunk's rate."""
    network, experiment = shipped
    words = [text for text, _ in texts(graph(network, experiment))]
    for chain in experiment.chains:
        assert set(chain.hops) <= set(words)
    assert {switch.name for switch in network.switches} <= set(words)
    assert words.count(str(network.trunks[0].rate)) == len(network.trunks)
    where = {text: box[0] for text, box in texts(graph(network, experiment))}
    lefts = [where[hop] for hop in experiment.chain.hops]
    assert lefts == sorted(lefts)


def test_several_chains_share_boxes_and_have_captions(project: Path) -> None:
    """A shared box stands once for neighbouring lanes, and again where a chain passes it in another order."""
    network, experiment = load_experiment(project / "examples" / "geo.yaml")
    drawing = graph(ring(network), several_chains(experiment))
    words = [text for text, _ in texts(drawing)]
    assert words.count("sat") == 2
    assert {"main: the rest", "coded: island 10.20.0.0/30", "odd: UDP", "plain: world 10.10.0.0/31, TCP"} <= set(words)
    assert "in no chain: pep-i" in words
    assert overlapping(texts(drawing)) == []


def test_names_are_written_as_they_are(project: Path) -> None:
    """What XML would take for itself is escaped."""
    network, experiment = load_experiment(project / "examples" / "geo.yaml")
    assert "Experiment a<b&c, lab island" in [
        text for text, _ in texts(graph(network, replace(experiment, name="a<b&c")))
    ]


def test_names_that_count_up_are_a_range() -> None:
    """Ranges of two are two names; text without numbers stays as it is."""
    assert name_ranges(["w1", "w2", "w3", "ws", "i4", "i5", "i9"]) == "w1\u2013w3, ws, i4, i5, i9"
    assert name_ranges([]) == ""
    assert wrapped("aaaa, bbbb, cccc", 10) == ["aaaa, bbbb,", "cccc"]


def test_a_file_that_cannot_be_written_is_told_in_one_line(project: Path, tmp_path: Path) -> None:
    """Nothing is printed before."""
    described = load_experiment(project / "examples" / "geo.yaml")
    with pytest.raises(UsageError, match=r"--graph .*: cannot be written \(No such file or directory\)"):
        print_plan(described, Backend.ENGINE, as_json=False, drawing=tmp_path / "none" / "geo.svg")
    print_plan(described, Backend.ENGINE, as_json=False, drawing=tmp_path / "geo.svg")
    assert (tmp_path / "geo.svg").read_text(encoding="utf-8") == graph(*described)
