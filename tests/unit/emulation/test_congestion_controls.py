# SPDX-License-Identifier: Apache-2.0
"""Congestion controls are compared with what the kernel of the place has, and a missing one is told in one line."""

import json
import os
import platform
from dataclasses import replace
from pathlib import Path

import pytest

from atoll_cli.commands.check import check
from atoll_cli.commands.plan import print_plan
from atoll_core.description.loader import load_experiment
from atoll_core.errors import MachineError, PlanError
from atoll_core.experiment.experiment import Experiment
from atoll_core.plan.plan import Backend
from atoll_core.platforms import VIRTUAL
from atoll_emulation.this_machine.congestion_controls import (
    Controls,
    local_controls,
    missing_controls,
    require_controls,
    virtual_controls,
)

HERE = Controls("this kernel (6.18)", frozenset({"reno", "cubic"}), frozenset({"bbr"}), frozenset({"vegas"}))


@pytest.fixture(scope="module")
def geo(project):
    return load_experiment(project / "examples/geo.yaml")[1]


def naming(geo: Experiment, control: str, **servers: str) -> Experiment:
    return replace(geo, file="e.yaml", tcp=replace(geo.tcp, congestion_control=control, servers=tuple(servers.items())))


@pytest.mark.parametrize("control", ["reno", "cubic", "bbr"])
def test_what_is_there_or_loaded_when_a_socket_asks_is_not_missing(geo, control):
    assert missing_controls(naming(geo, control), HERE) == []


def test_a_missing_one_is_told_once_with_where_it_is_named_what_there_is_and_which_place_has_it(geo):
    (answer,) = missing_controls(naming(geo, "hybla", w1="hybla", w2="cubic"), HERE, virtual_controls())
    assert answer == (
        "e.yaml: tcp.congestion_control, tcp.servers.w1: congestion control 'hybla' is not in this kernel (6.18), "
        "which has bbr, cubic, reno; --on virtual has it"
    )


def test_a_module_that_a_plain_user_cannot_load_has_its_remedy(geo):
    answer = missing_controls(naming(geo, "vegas"), HERE, virtual_controls())
    assert [line.split(": ", 2)[2] for line in answer] == [
        "congestion control 'vegas' is a module that is not loaded: modprobe tcp_vegas (as root)"
    ]


def test_one_that_no_kernel_has_is_likened_to_one_that_there_is(geo):
    (answer,) = missing_controls(naming(geo, "hybra"), HERE, virtual_controls())
    assert answer.endswith(
        "'hybra' is not in this kernel (6.18), which has bbr, cubic, reno; did you mean 'hybla'? --on virtual has it"
    )


def test_of_a_misspelt_one_all_that_the_kernel_has_are_named_and_no_others(geo):
    """They are what one chooses from, and no other command lists them."""
    virtual = virtual_controls()
    (line,) = missing_controls(naming(geo, "cubik"), virtual)
    assert line.endswith(f"'cubik' is not in the virtual kernel, which has {virtual}; did you mean 'cubic'?")
    (line,) = missing_controls(naming(geo, "cubik"), HERE, virtual)
    assert line.endswith("'cubik' is not in this kernel (6.18), which has bbr, cubic, reno; did you mean 'cubic'?")
    (line,) = missing_controls(naming(geo, "qqq"), HERE, virtual)
    assert line.endswith("'qqq' is not in this kernel (6.18), which has bbr, cubic, reno")


def test_one_that_is_like_a_module_that_is_not_loaded_is_likened_to_it(geo):
    (line,) = missing_controls(naming(geo, "vegaz"), HERE)
    assert line.endswith("did you mean 'vegas'?")


def test_the_virtual_kernel_has_what_linux_has():
    assert {"reno", "cubic", "bbr", "hybla", "htcp", "highspeed", "westwood"} <= virtual_controls().usable
    assert not virtual_controls().usable & {"advanced", "hstcp"}


def test_modules_are_loaded_for_root_only(tmp_path):
    loaded = tmp_path / "available"
    loaded.write_text("reno cubic\n")
    modules = tmp_path / platform.release() / "kernel/net/ipv4"
    modules.mkdir(parents=True)
    for name in ("tcp_cubic.ko", "tcp_hybla.ko.xz", "tcp_diag.ko", "udp_diag.ko"):
        (modules / name).touch()
    root, user = (local_controls(loaded, tmp_path, root=who) for who in (True, False))
    assert (root.available, root.loadable, root.unloaded) == ({"reno", "cubic"}, {"hybla"}, set())
    assert (user.available, user.loadable, user.unloaded) == ({"reno", "cubic"}, set(), {"hybla"})


def test_this_kernel_has_reno(geo):
    assert "reno" in local_controls().usable
    require_controls(naming(geo, "reno"), local_controls())


def test_a_run_is_refused_before_anything_starts(geo):
    virtual = virtual_controls()
    with pytest.raises(PlanError, match=r"congestion control 'hybra' is not in this kernel"):
        require_controls(naming(geo, "hybra"), HERE, virtual)
    with pytest.raises(PlanError, match=r"congestion control 'hybra' is not in the virtual kernel"):
        require_controls(naming(geo, "hybra"), virtual)


def test_a_plan_for_virtual_time_refuses_what_its_kernel_has_not(project):
    """Before anything is printed."""
    described = load_experiment(project / "examples/geo.yaml", ["tcp.congestion_control=cubik"])
    with pytest.raises(PlanError, match=r"'cubik' is not in the virtual kernel, .*; did you mean 'cubic'"):
        print_plan(described, Backend.ENGINE, VIRTUAL, as_json=False)


def test_one_that_another_kernel_has_or_that_could_be_loaded_is_what_the_machine_lacks(geo):
    """The word is right, then: nothing about the description would have to change elsewhere."""
    for control in ("hybla", "vegas"):
        with pytest.raises(MachineError):
            require_controls(naming(geo, control), HERE, virtual_controls())


def test_check_compares_with_the_machine_only_when_asked_to(project, tmp_path, monkeypatch, capsys):
    text = (project / "examples/geo.yaml").read_text(encoding="utf-8")
    lab = os.path.relpath(project / "emulation/labs/island.yaml", tmp_path)
    text = text.replace("../emulation/labs/island.yaml", lab).replace("control: cubic", "control: hybra")
    (tmp_path / "e.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert check([Path("e.yaml")], as_json=False) == 0
    assert "e.yaml: ok (" in capsys.readouterr().out
    assert check([Path("e.yaml")], as_json=False, machine=True) == 2
    assert "e.yaml: ok (" not in capsys.readouterr().out
    assert check([Path("e.yaml")], as_json=True, machine=True) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert "reno" in found["machine"]["congestion_controls"]
    assert any("congestion control 'hybra' is not in this kernel" in line for line in found["lacks"])
