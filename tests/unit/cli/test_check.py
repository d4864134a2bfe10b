# SPDX-License-Identifier: Apache-2.0
"""``atoll check``: what it prints, and its exit code."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from atoll_cli.commands.check import check, summary
from atoll_core.description.loader import load_experiment
from atoll_core.errors import MachineError
from atoll_emulation.this_machine.congestion_controls import local_controls, virtual_controls
from atoll_studies.study import load_study
from atoll_studies.study_directory import StudyDirectory
from atoll_studies.sweeping.sweep import Sweep


def test_right_files_are_summed_up_in_a_line_each(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    assert check([Path("emulation/labs/island.yaml"), Path("examples/geo.yaml")], as_json=False) == 0
    assert capsys.readouterr().out == (
        "emulation/labs/island.yaml: ok (lab island: 4 switches, 15 hosts, 5 chain boxes, 6 latency classes, 2 taps)\n"
        "examples/geo.yaml: ok (experiment geo on lab island: chain tap-w - sat - tap-i; 20 channels, 60 s)\n"
    )


def broken_lab_with_two_experiments(folder: Path, project: Path) -> list[Path]:
    lab = (project / "emulation/labs/island.yaml").read_text(encoding="utf-8").replace("10.10.0.2,", "10.10.0.1,")
    (folder / "lab.yaml").write_text(lab, encoding="utf-8")
    for name in ("geo", "meo"):
        text = (project / f"examples/{name}.yaml").read_text(encoding="utf-8")
        (folder / f"{name}.yaml").write_text(
            text.replace("../emulation/labs/island.yaml", "lab.yaml"), encoding="utf-8"
        )
    return [Path("geo.yaml"), Path("meo.yaml")]


def test_a_mistake_in_a_shared_lab_is_told_once(project, tmp_path, monkeypatch, capsys):
    files = broken_lab_with_two_experiments(tmp_path, project)
    monkeypatch.chdir(tmp_path)
    assert check([*files, project / "examples/geo.yaml"], as_json=False) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert err.startswith("lab.yaml:22: host 'w2': ip: address 10.10.0.1 is already taken by host 'w1'")
    assert out.startswith(f"{project}/examples/geo.yaml: ok (")


def test_json_is_one_object(project, tmp_path, monkeypatch, capsys):
    files = broken_lab_with_two_experiments(tmp_path, project)
    monkeypatch.chdir(tmp_path)
    assert check(files, as_json=True) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert [(one["file"], one["line"]) for one in answer["mistakes"]] == [("lab.yaml", 22)]
    monkeypatch.chdir(project)
    assert check([Path("examples/geo.yaml")], as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "mistakes": [], "warnings": [], "engine_only": {}}


def test_checking_loads_nothing_heavy_and_touches_nothing(project):
    """What makes a command line slow to answer, or could start something, is not even imported."""
    heavy = ["aiohttp", "asyncio", "matplotlib", "mininet", "numpy", "os_ken", "polars", "subprocess"]
    program = (
        "import sys; from pathlib import Path; from atoll_cli.commands.check import check; "
        "code = check([Path('examples/geo.yaml')], False); "
        f"print(*sorted(set({heavy}) & set(sys.modules))); sys.exit(code)"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=project, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[1:] == [""]


def test_a_study_is_checked_with_its_experiments(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check([project / "examples/studies/geo-queues.yaml"], as_json=False) == 0
    assert re.search(r"geo-queues.yaml: ok \(study: \d+ configurations; `atoll sweep ", capsys.readouterr().out)
    wrong = tmp_path / "study.yaml"
    wrong.write_text(
        f"name: s\nexperiment: {project}/examples/geo.yaml\nfigures: [sojourn p95]\nset: {{transfer.port: 0}}\n"
    )
    assert check([wrong], as_json=False) == 2
    said = capsys.readouterr().err
    assert "unknown figure 'sojourn p95'; did you mean 'queue sojourn p95'" in said
    assert "port: the number 0 is not a whole number from 1 to 65535" in said


@pytest.mark.parametrize("platform", ["virtual", "mininet"])
def test_an_unknown_congestion_control_of_a_study_is_named_where_the_study_sets_it(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], platform: str
) -> None:
    wrong = tmp_path / "study.yaml"
    head = f"name: s\nexperiment: {project}/examples/geo.yaml\nplatform: {platform}\nfigures: [goodput]\n"
    wrong.write_text(
        f"{head}set: {{transfer.congestion_control: rino}}\nfactors:\n  tcp.congestion_control:\n  - reno\n  - qubic\n"
        "  servers:\n    same: {}\n    other:\n      tcp.servers: {w1: renno}\n"
    )
    assert check([wrong], as_json=False) == 2
    lines = capsys.readouterr().err.splitlines()
    found = {tuple(line.removeprefix(f"{wrong}:").split(": congestion control ")[0].split(": ")) for line in lines}
    assert found == {
        ("5", "transfer.congestion_control"),
        ("9", "tcp.congestion_control"),
        ("13", "tcp.servers.w1"),
    }
    assert len(lines) == 3
    assert any("'qubic' is not in" in line and "did you mean 'cubic'?" in line for line in lines)
    wrong.write_text(head)
    assert check([wrong], as_json=False) == 0


def test_a_congestion_control_that_this_machine_does_not_have_is_named_where_the_study_sets_it(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the controls that it has; `atoll sweep` refuses the study with the same line."""
    here, virtual = local_controls(), virtual_controls()
    absent = sorted(virtual.usable - here.usable - here.unloaded)
    if not absent:
        return  # this kernel has all
    study = tmp_path / "study.yaml"
    head = f"name: s\nexperiment: {project}/examples/geo.yaml\nplatform: mininet\nfigures: [goodput]\nfactors:\n"
    study.write_text(f"{head}  tcp.congestion_control:\n  - reno\n  - {absent[0]}\n")
    line = (
        f"{study}:8: tcp.congestion_control: congestion control {absent[0]!r} is not in {here.name}, which has "
        f"{here}; --on virtual has it"
    )
    assert check([study], as_json=False) == 1
    assert capsys.readouterr().err.splitlines() == [line]
    sweep = Sweep(load_study(study), StudyDirectory(tmp_path / "runs"), None, None)
    with pytest.raises(MachineError, match=re.escape(line)):
        sweep.require_machine()


def test_figures_of_one_are_in_the_singular(project: Path) -> None:
    network, one = load_experiment(project / "examples/geo.yaml", ["traffic.channels=1"])
    assert summary(network, one).endswith("; 1 channel, 60 s")


def test_a_ping_interval_that_is_too_short_for_the_rtt_is_a_mistake(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = "links.sat.to_island={rate: 16 Mbit/s, delay: 60 s, queue: 1.5 MB}"
    assert check([project / "examples/geo.yaml"], as_json=False, settings=(far, "ping.interval=1 ms")) == 2
    (mistake,) = (line for line in capsys.readouterr().err.splitlines() if "warning" not in line)
    assert "ping: interval: 1 ms is too short for an RTT of 60.25 s" in mistake


def test_what_only_the_engine_can_play_is_named(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (project / "examples/geo.yaml").read_text().replace("../emulation", f"{project}/emulation")
    impaired = tmp_path / "impaired.yaml"
    impaired.write_text(text.replace("queue: 100 kB", "queue: 100 kB, loss: {bit_error: 1e-7}", 1))
    assert check([impaired], as_json=False) == 0
    said = capsys.readouterr().out
    assert (
        "links.sat.to_island.loss: needs --backend engine, also with --on virtual (netem loses packets at random"
        in said
    )
    check([impaired], as_json=True)
    (places,) = json.loads(capsys.readouterr().out)["engine_only"].values()
    assert list(places) == ["links.sat.to_island.loss"]


def test_what_a_change_makes_the_engine_necessary_for_is_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = "changes=[{at: 5 s, links: {sat: {to_island: {loss: {bit_error: 1e-7}}}}}]"
    check([project / "examples/geo.yaml"], as_json=True, settings=(change,))
    (places,) = json.loads(capsys.readouterr().out)["engine_only"].values()
    assert list(places) == ["links.sat.to_island.loss"]
