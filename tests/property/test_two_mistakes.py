# SPDX-License-Identifier: Apache-2.0
"""Two independent mistakes in a description are both reported, each as if it were alone.

A mistake of meaning is reported once there is none of form, in the experiment once there is none in the lab.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from atoll_core.description.loader import load_lab_or_experiment
from atoll_core.errors import DescriptionError

ROOT = Path(__file__).parents[2]
TEXTS = {
    "lab.yaml": (ROOT / "emulation/labs/island.yaml").read_text(encoding="utf-8"),
    "e.yaml": (ROOT / "examples/switching.yaml")
    .read_text(encoding="utf-8")
    .replace("../emulation/labs/island.yaml", "lab.yaml"),
}

# What is written instead of what, each in a field of its own, many in the same item.
MISTAKES = {
    "role": ("w2: {role: world-server,", "w2: {role: world-servr,"),
    "address": ("ip: 10.10.0.2,", "ip: 10.10.0.1 ,"),
    "port": ("port: sw-w1/2}", "port: x/y}"),
    "no address": ("ip: 10.10.0.4,", ""),
    "outside": ("ip: 10.20.0.3,", "ip: 10.30.0.3,"),
    "taken port": ("port: sw-w1/3}", "port: sw-w1/1}"),
    "network": ("island: 10.20.0.0/16", "island: 10.20.0.1/16"),
    "dpid": ("sw-w2: {dpid: 2,", "sw-w2: {dpid: 1,"),
    "driver": ("dpid: 3, driver: ovs", "dpid: 3, driver: nvs"),
    "trunk": ("to: sw-c/2,", "to: sw-c/1,"),
    "trunk rate": ("to: sw-c/1, rate: 1 Gbit/s", "to: sw-c/1, rate: fast"),
    "kind": ("sat: {kind: link", "sat: {kind: sattelite"),
    "leg": ("island: sw-c/16", "island: sw-c/15"),
    "box rate": ("rate: 1 Gbit/s\n    classes", "rate: 1 GBit/x\n    classes"),
    "vlan": ("rtt-20: {vlan: 102", "rtt-20: {vlan: 101"),
    "rtt": ("rtt-90: {vlan: 104, rtt: 90 ms", "rtt-90: {vlan: 104, rtt: 90"),
    "jitter": ("rtt: 5 ms}", "rtt: 5 ms, jitter: 3 ms}"),
    "tap": ("host: cap-w,", "host: ws,"),
    "seed": ("seed: 1", "seed: one"),
    "hop": ("chain: [tap-w, sat, tap-i]\nchanges", "chain: [tap-w, sat, tpa-i]\nchanges"),
    "rate": ("to_island: {rate: 16 Mbit/s", "to_island: {rate: 16 Mbit"),
    "queue": ("rate: 4 Mbit/s, delay: 250 ms, queue: 100 kB}", "rate: 4 Mbit/s, delay: 250 ms, queue: 100 B}"),
    "class": ("{w1: rtt-5, w2", "{w1: rtt-7, w2"),
    "server": ("w3: rtt-50,", "w9: rtt-50,"),
    "change": ("- {at: 24 s", "- {at: soon"),
    "late change": ("- {at: 48 s", "- {at: 61 s"),
    "channels": ("channels: 20", "channels: many"),
    "transfer": ("size: 20 MB", "size: big"),
}


FORM = {  # of the lab, and of the experiment
    *("role", "port", "no address", "network", "driver", "trunk rate", "kind", "box rate", "rtt"),
    *("seed", "rate", "change", "channels", "transfer"),
}


def stage(name: str) -> int:
    """The stage at which a mistake is reported: its form, the meaning of the lab, that of the experiment."""
    return 0 if name in FORM else 1 if MISTAKES[name][0] in TEXTS["lab.yaml"] else 2


def is_reported(name: str, both: set[str]) -> bool:
    """Whether no other mistake has to be corrected first: of the same file's form, or of the lab."""
    lab = MISTAKES[name][0] in TEXTS["lab.yaml"]
    others = [each for each in both if (MISTAKES[each][0] in TEXTS["lab.yaml"]) or not lab]
    return stage(name) == 0 or stage(name) == min(map(stage, others))


def answer(*names: str) -> Sequence[str]:
    """The messages for the descriptions with these mistakes, without lines and suggested ports: others take them."""
    texts = dict(TEXTS)
    for name in names:
        old, new = MISTAKES[name]
        (file,) = [file for file, text in texts.items() if old in text]
        texts[file] = texts[file].replace(old, new, 1)
    with TemporaryDirectory() as folder:
        for file, text in texts.items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        try:
            load_lab_or_experiment(Path(folder) / "e.yaml")
        except DescriptionError as error:
            return [mistake.message.partition("; free is")[0] for mistake in error.mistakes]
    return []


@pytest.fixture(scope="module")
def alone() -> dict[str, Sequence[str]]:
    return {name: answer(name) for name in MISTAKES}


def test_each_is_one_mistake(alone: dict[str, Sequence[str]]) -> None:
    assert {name: messages for name, messages in alone.items() if len(messages) != 1} == {}


@pytest.mark.parametrize("one", MISTAKES)
def test_two_mistakes_are_reported_as_each_alone(one: str, alone: dict[str, Sequence[str]]) -> None:
    names = list(MISTAKES)
    for other in names[names.index(one) + 1 :]:
        reported = {message for name in (one, other) if is_reported(name, {one, other}) for message in alone[name]}
        assert set(answer(one, other)) == reported, other
