# SPDX-License-Identifier: Apache-2.0
"""Templates of a directory to begin with: a shipped study with its experiment and lab, as files that need no others."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from atoll_core.clone import clone_root
from atoll_core.description.validation_messages import suggest
from atoll_core.errors import MachineError, UsageError

_STUDIES = {"demo": "geo-queues", "pep": "geo-full-peps", "coder": "coder-loss"}  # in the shipped studies

_OF_THE_REPOSITORY = re.compile(r"^# (SPDX|yaml-language-server).*\n|[;.] docs/\S+ explains it(?=\.)", re.MULTILINE)

_README = """\
# {title}
Made by `atoll init --template {name}`. {text}

    atoll check lab.yaml experiment.yaml study.yaml             # every mistake, with its line and a remedy
    atoll plan experiment.yaml --graph lab.svg                  # flow entries, addresses, jobs; draws the lab
    atoll setup                                                 # lists and installs the packages that runs need
    atoll kernel build                                          # the kernel for virtual time; minutes, once
    atoll run experiment.yaml --on virtual --duration '20 s'    # a run: verdict, figures, report below runs/
    atoll watch --open                                          # the live page, and replays of runs
    atoll sweep study.yaml --dry-run                            # the runs of the study; without --dry-run: makes them

Virtual time (`--on virtual`, and the study) is for x86-64 alone. Without `--on virtual`, `atoll run` is in real time on
this machine, as root, and needs no kernel; so are the runs of a study with `platform: mininet`.
`atoll init --list` prints the folder of more examples.
"""


@dataclass(frozen=True, slots=True)
class Template:
    """A lab, an experiment of it and a study of that."""

    text: str  # the comment of the experiment
    files: Mapping[str, str]  # content by name


def template_names() -> tuple[str, ...]:
    """The names of all templates."""
    return tuple(_STUDIES)


def examples() -> Path:
    """The folder of the shipped examples: in a clone, or where the package is installed. Raises MachineError."""
    if root := clone_root():
        return root / "examples"
    for file in metadata.files("atoll") or ():
        if file.match("share/atoll/examples/README.md"):
            return Path(file.locate()).resolve().parent
    raise MachineError("the examples of atoll are not in this installation; install atoll again")


def load_template(name: str) -> Template:
    """The files of a template. Raises UsageError for an unknown name, MachineError if the examples are missing."""
    if name not in _STUDIES:
        raise UsageError(f"--template {name}: unknown template; {suggest(name, _STUDIES, 'templates')}")
    study, experiment_file = _standing_alone(examples() / "studies" / f"{_STUDIES[name]}.yaml", "experiment")
    experiment, lab_file = _standing_alone(experiment_file, "lab")
    files = {"lab.yaml": _own_text(lab_file), "experiment.yaml": experiment, "study.yaml": study}
    comment = re.match(r"(# .*\n)+", experiment)
    return Template(comment[0].replace("# ", "").replace("\n", " ").strip() if comment else "", files)


def write_template(directory: Path, name: str) -> tuple[str, ...]:
    """Write a template and a README.md to a new or empty directory; returns the names of the files.

    Raises UsageError if the directory has files, or cannot be written.
    """
    template = load_template(name)
    readme = _README.format(title=directory.resolve().name, name=name, text=template.text)
    files = {**template.files, "README.md": readme}
    written: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise UsageError(f"{directory}: has files already, and none is overwritten; name a new directory")
        for file, content in files.items():
            with (directory / file).open("x", encoding="utf-8") as stream:
                written.append(directory / file)
                stream.write(content)
    except OSError as error:
        for path in written:
            with contextlib.suppress(OSError):
                path.unlink()
        reason = f"{directory}: {error.strerror}; name a new directory below one that you can write"
        raise UsageError(reason) from None
    return tuple(files)


def _standing_alone(file: Path, key: str) -> tuple[str, Path]:
    """A description whose ``key`` names a file in the same directory; with the file that it names in the examples."""
    text, reference = _own_text(file), re.compile(rf"^{key}: (\S+)", re.MULTILINE)
    (path,) = reference.findall(text)
    return reference.sub(f"{key}: {key}.yaml", text), file.parent / path


def _own_text(file: Path) -> str:
    return _OF_THE_REPOSITORY.sub("", file.read_text(encoding="utf-8"))
