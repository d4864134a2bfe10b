# SPDX-License-Identifier: Apache-2.0
"""The error tree of the whole project.

AtollError                 base class; the message is for the user
├── DescriptionError       one or more mistakes in lab.yaml or experiment.yaml (exit code 2)
├── PlanError              a valid description that cannot be planned (exit code 2)
├── UsageError             a wrong word on the command line (exit code 2)
├── MachineError           this machine has no such tool, right or device (exit code 1)
├── LabError               the emulated lab, a switch, a host or the controller failed (exit code 1)
├── RunError               a step of a run failed (exit code 1)
├── InterruptedByUserError the user ended it: Ctrl-C, SIGTERM (exit code 130)
└── RunDirError            a path that is not a run directory, or of a newer format (exit code 2)
"""

from dataclasses import dataclass, field
from typing import Any, cast

_MAX_SHOWN = 40


class AtollError(Exception):
    """An error with a message for the user: ``str()`` has one mistake a line."""

    exit_code = 1


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """One mistake in a description: its key path, the error and the remedy.

    ``file`` is written as the user wrote it (relative below the working directory), ``line`` counts from 1.
    Line 0 means the file as a whole, such as one that is missing or not text. ``key_path``: keys and indices from the
    top, as far as they are known; it is not compared.
    """

    file: str
    line: int
    message: str
    key_path: tuple[str | int, ...] = field(default=(), compare=False)

    @property
    def where(self) -> str:
        """``file:line``, or the file alone."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def as_warning(self) -> str:
        """The line that reports it as a warning."""
        return f"{self.where}: warning: {self.message}"

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class DescriptionError(AtollError):
    """All mistakes of a description at once, in the order of their key paths."""

    exit_code = 2

    def __init__(self, mistakes: "list[Diagnostic] | tuple[Diagnostic, ...]") -> None:
        self.mistakes = tuple(sorted(mistakes))
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class PlanError(AtollError):
    """The description is valid but cannot be planned. The message has the reason and the remedy."""

    exit_code = 2


class UsageError(AtollError):
    """A wrong word on the command line."""

    exit_code = 2


class MachineError(AtollError):
    """The machine does not have a tool, right or device that is needed. The message has the remedy."""


class LabError(AtollError):
    """A switch, host, controller or agent of the lab failed."""


class RunError(AtollError):
    """A step of a run failed."""


class InterruptedByUserError(AtollError):
    """The user ended the work by Ctrl-C or SIGTERM. The message says in which state it was left."""

    exit_code = 130  # as shells have it: 128 and SIGINT


class RunDirError(AtollError):
    """A path is not a run directory, or the run was written by a newer version."""

    exit_code = 2


def plain(text: str, max_length: int | None = None) -> str:
    """Make text that a machine or a switch sent safe to print, on one line.

    Control characters, line ends and marks of writing direction become U+FFFD. ``max_length``: in characters.
    """
    if not text.isprintable():
        text = "".join(character if character.isprintable() or character == "\t" else "\ufffd" for character in text)
    return text if max_length is None or len(text) <= max_length else f"{text[: max_length - 1]}…"


def shown(value: Any) -> str:
    """Quote a value that a user wrote, in the words of YAML and on one short line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        text = _shortened(f"{value:d}" if isinstance(value, int) else repr(value))
        return f"the number {text}"
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping" if cast("dict[Any, Any]", value) else "an empty mapping"
    if isinstance(value, list):
        return "a list" if cast("list[Any]", value) else "an empty list"
    return repr(_shortened(str(value)))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
