# SPDX-License-Identifier: Apache-2.0
"""Every verb on a rack of namespaces, as its user says it: the inventory is in ATOLL_INVENTORY, `--on` is left out."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.capture_file import unpacked
from tests.support.rack import EXPERIMENT, FIRST_DPID, LAB, Rack, rack_of
from tests.support.sandbox import ATOLL

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A rack after first contact."""
    with rack_of(LAB, tmp_path_factory.mktemp("rack-verbs")) as rack:
        rack.prepare()
        yield rack


def atoll(rack: Rack, *words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = rack.run("env", f"ATOLL_INVENTORY={rack.inventory}", ATOLL, *words)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_without_a_lab_every_verb_names_the_rack(rack: Rack) -> None:
    none = f"no lab is up on the machines of {rack.inventory}; `atoll up LAB --on hardware` starts one\n"
    asked: list[list[str | Path]] = [
        ["switches"],
        ["switches", "entries"],
        ["switches", "counters"],
        ["trace", EXPERIMENT, "w1", "i1", "--live"],
        ["apply", EXPERIMENT],
        ["shell"],
    ]
    for words in asked:
        said = atoll(rack, *words, code=1).stderr.splitlines(keepends=True)
        assert [line for line in said if ": warning: " not in line] == [none], words
    assert atoll(rack, "status").stdout == "no lab is up\n"


def test_what_needs_no_lab_answers(rack: Rack) -> None:
    """Descriptions and inventory, the way of a packet, the switches' own configuration, names of metrics."""
    assert "8 machines" in atoll(rack, "check", EXPERIMENT, "--inventory", rack.inventory).stdout
    assert "Plan of experiment rack" in atoll(rack, "plan", EXPERIMENT).stdout
    assert "takes chain main" in atoll(rack, "trace", EXPERIMENT, "w1", "i1").stdout
    assert "switch_port" in atoll(rack, "metrics", "names").stdout
    assert atoll(rack, "metrics", "check", code=2).stderr.startswith("no database is configured: write ")


def test_every_verb_of_a_lab_that_is_up(rack: Rack) -> None:
    """up, status, switches with entries and counters, trace, a swap, hosts, and what there is none of: a shell."""
    before = rack.states()
    up = atoll(rack, "up", EXPERIMENT)
    assert "connecting to 8 machines" in up.stderr, "the rack is meant, not a lab of this machine's"
    try:
        status = atoll(rack, "status").stdout
        assert f"on the machines of {rack.inventory}" in status
        assert "sw-w up, sw-i up" in status

        listed = json.loads(atoll(rack, "switches", "--json").stdout)["switches"]
        assert [each["dpid"] for each in listed] == [FIRST_DPID, FIRST_DPID + 1], "those of the rack"
        lines = atoll(rack, "switches").stdout.splitlines()
        assert [line.split()[2] for line in lines[1:]] == ["up", "up"]
        held = json.loads(atoll(rack, "switches", "entries", "--json").stdout)["switches"]
        assert [len(each["entries"]) for each in held] == [each["entries"] for each in listed]
        entries = atoll(rack, "switches", "entries", "sw-i").stdout
        assert "sat -> i1: out of the chain" in entries
        assert "sw-w" not in entries
        counters = json.loads(atoll(rack, "switches", "counters", "sw-w", "--json").stdout)["switches"]
        assert counters[0]["ports"]["1"]["rx_packets"] > 0, "every path was proven by probes"
        assert "sw-w-1 " in atoll(rack, "switches", "counters").stdout
        unknown = atoll(rack, "switches", "entries", "sw-x", code=2).stderr
        assert unknown.startswith("sw-x: no such switch in the running lab; did you mean")

        live = json.loads(atoll(rack, "trace", EXPERIMENT, "w1", "i1", "--live", "--json").stdout)
        assert live["proven"]
        assert (
            "proven, 3 of 3 probes answered"
            in atoll(rack, "trace", EXPERIMENT, "w1", "i1", "--live", "--probes", "3", "--protocol", "udp").stdout
        )

        short = rack.directory / "short.yaml"
        text = EXPERIMENT.read_text().replace("rack-lab.yaml", str(LAB)).replace("name: rack", "name: short")
        short.write_text(text.replace("[pep, tap-w, sat, tap-i]", "[tap-w, sat, tap-i]"))
        assert "changes would be made" in atoll(rack, "apply", short, "--dry-run").stdout
        assert "swapped in" in atoll(rack, "apply", short).stdout
        assert "chain tap-w - sat - tap-i" in atoll(rack, "status").stdout
        assert "0 changes made" in atoll(rack, "apply", short).stdout

        assert atoll(rack, "shell", code=1).stderr == (
            "there is no Mininet on hardware; `atoll hosts exec -- COMMAND` runs a command on its machines\n"
        )
        assert "in use by" in atoll(rack, "hosts", "status", "w1").stdout
        assert len(atoll(rack, "hosts", "exec", "--", "hostname").stdout.splitlines()) == len(rack.addresses)
        assert len(atoll(rack, "hosts", "ping").stdout.splitlines()) == len(rack.addresses)
        assert "already installed" in atoll(rack, "hosts", "install", "i1").stdout
    finally:
        assert atoll(rack, "down").stdout == "the lab is down\n"
    assert rack.states() == before


def test_links_are_calibrated_on_a_lab_of_its_own(rack: Rack) -> None:
    """The rack is taken for the test and let go; every figure is there; no packet is early, none too many."""
    before = rack.states()
    words = ["link", "calibrate", EXPERIMENT, "--direction", "to_island", "--seconds", "0.5", "--json"]
    done = rack.run("env", f"ATOLL_INVENTORY={rack.inventory}", ATOLL, *words)
    assert done.returncode in (0, 1), done.stderr  # a busy machine may spoil a figure
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    # Exact in virtual time (test_virtual_calibration.py); a busy machine adds to the one and takes from the other.
    assert rows["delay"]["measured"] > 19.9
    assert rows["rate of IP packets"]["measured"] < 17
    assert rack.states() == before


def test_a_run_takes_the_rack_and_its_metrics_say_so(rack: Rack) -> None:
    """By the environment alone, with UDP beside the channels; analysed, compared, its points named by the place."""
    runs = rack.directory / "runs"
    for seed in ("1", "2"):
        done = rack.run(
            "env",
            f"ATOLL_INVENTORY={rack.inventory}",
            ATOLL,
            *("run", EXPERIMENT, "--duration", "3 s", "--runs", runs, "--seed", seed),
            *("--set", "udp={rate: 1 Mbit/s, flow_sizes: 10 kB}"),
        )
        assert done.returncode in (0, 3), done.stderr
    made = sorted((runs / "rack").iterdir())
    assert len(made) == 2
    manifest = json.loads((made[0] / "manifest.json").read_text())
    assert (manifest["place"], manifest["inventory"]) == ("hardware", str(rack.inventory))
    summary = json.loads((made[0] / "summary.json").read_text())
    # A sender that gets no CPU at the end of these 3 s sends less; to 1 %: test_virtual_loads.py.
    assert 0.5 < summary["udp"]["sent_mbit_s"] < 1.1
    assert summary["udp"]["received_packets"] > 0
    spool = unpacked(made[0] / "metrics.lp.zst").decode()
    assert {"link", "switch_port", "flow_entries", "ping", "load"} <= {
        line.split(",")[0] for line in spool.splitlines()
    }
    assert all(",place=hardware," in line for line in spool.splitlines())
    compared = rack.run(ATOLL, "report", "--compare", *made).stdout
    assert "UDP received" in compared
    assert "hardware" in compared


def test_a_place_that_is_named_overrules_the_environment(rack: Rack) -> None:
    """`--on virtual` and `--on mininet` mean no rack; an inventory beside them is a contradiction."""
    refused = atoll(rack, "up", LAB, "--on", "virtual", code=2).stderr
    assert refused.startswith("up --on virtual: a lab in virtual time exists for one run")
    refused = atoll(rack, "up", LAB, "--on", "mininet", "--inventory", rack.inventory, code=2).stderr
    assert refused == "--inventory needs --on hardware, not --on mininet\n"
