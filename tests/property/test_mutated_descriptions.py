# SPDX-License-Identifier: Apache-2.0
"""Whatever is done to a description, it loads or its mistakes are told: no traceback, no line that isn't there."""

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll_core.description.loader import load_experiment, load_lab, load_lab_or_experiment
from atoll_core.errors import DescriptionError, Diagnostic

ROOT = Path(__file__).parents[2]
LAB = (ROOT / "emulation/labs/island.yaml").read_text(encoding="utf-8")
EXPERIMENT = (
    (ROOT / "examples/meo.yaml").read_text(encoding="utf-8").replace("../emulation/labs/island.yaml", "lab.yaml")
)

TOKEN = re.compile(r"[^\s{}\[\],:#]+")
JUNK = [
    *[
        "",
        "null",
        "~",
        "true",
        "no",
        "[]",
        "{}",
        "[[1], {a: b}]",
        "{a: {b: c}}",
        "-1",
        "0",
        "1.5",
        "1e400",
        ".nan",
        "-.inf",
    ],
    *["9" * 30, "9" * 5000, "0x" + "f" * 5000, "10.10.0.1", "10.20.0.0/16", "0.0.0.0/0", "02:00:00:00:00:01", "1:2:3"],
    *[
        "sw-c/1",
        "sw-c/99999",
        "sw-x/1",
        "sat",
        "w1",
        "tap-w",
        "island",
        "world-special",
        "link",
        "router",
        "rtt-5",
        "delay",
    ],
    *["0 s", "1 h", "250 ms", "1 Gbit/s", "0 bit/s", "99999999999999 Gbit/s", "1 kB", "1.00000000001 ms", "16 furlong"],
    *[
        "'",
        '"',
        "\t",
        "*a",
        "&a",
        "&a [*a]",
        "!t 1",
        "!!binary x",
        "<<",
        "<<: *a",
        "? [a]",
        "2020-01-01",
        "é",
        "\x00",
        "\u2028",
    ],
    *[
        "%YAML 1.1\n---\n",
        "---",
        "...",
        "- ",
        ": ",
        "|",
        ">",
        "a" * 100,
        "lab",
        "{name: x}",
        "name",
        "port",
        "interface",
    ],
]


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """``text`` with a few lines deleted, repeated or moved and a few words replaced by junk or by each other."""
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["word", "word", "swap", "delete", "repeat", "move", "indent", "insert", "cut"])):
            case "word" if words := list(TOKEN.finditer(text)):
                word = draw(st.sampled_from(words))
                text = text[: word.start()] + draw(st.sampled_from(JUNK)) + text[word.end() :]
                continue
            case "swap" if words := list(TOKEN.finditer(text)):
                word, other = draw(st.sampled_from(words)), draw(st.sampled_from(words))
                text = text[: word.start()] + other[0] + text[word.end() :]
                continue
            case "insert":
                position = draw(st.integers(0, len(text)))
                text = text[:position] + draw(st.sampled_from(JUNK) | st.text(max_size=5)) + text[position:]
                continue
            case "delete":
                del lines[at]
            case "repeat":
                lines.insert(at, lines[at])
            case "move":
                lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
            case "indent":
                lines[at] = draw(st.sampled_from([" ", "  ", "\t", "- "])) + lines[at]
            case _:
                lines = lines[:at]
        text = "\n".join(lines)
    return text


@settings(max_examples=60, deadline=None)
@given(mutated(LAB), mutated(EXPERIMENT), st.booleans(), st.booleans())
def test_a_mutated_description_loads_or_tells_its_mistakes(
    lab: str, experiment: str, lab_too: bool, one_too: bool
) -> None:
    texts = {"lab.yaml": lab if lab_too else LAB, "experiment.yaml": experiment if one_too else EXPERIMENT}
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        for load, name in (
            (load_lab, "lab.yaml"),
            (load_experiment, "experiment.yaml"),
            (load_lab_or_experiment, "experiment.yaml"),
        ):
            for mistake in mistakes_of(load, Path(folder) / name):
                assert "\n" not in str(mistake)
                text = texts.get(Path(mistake.file).name, "")
                assert 0 <= mistake.line <= max(1, len(text.splitlines())), mistake


def mistakes_of(load: Callable[[Path], object], path: Path) -> tuple[Diagnostic, ...]:
    """What a loader complains of; nothing, if it loads."""
    try:
        load(path)
    except DescriptionError as error:
        return error.mistakes or (Diagnostic("", -1, "an error without a mistake"),)
    return ()
