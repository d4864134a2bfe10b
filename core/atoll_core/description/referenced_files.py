# SPDX-License-Identifier: Apache-2.0
"""Traces and flow-size files that an experiment names. Each file is read once."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from atoll_core.description.flow_size_file import read_flow_sizes
from atoll_core.description.line_reader import FileContent
from atoll_core.description.link_trace import MOST_BYTES, read_loss_trace, read_trace
from atoll_core.description.yaml_document import label, read_text
from atoll_core.errors import Diagnostic
from atoll_core.experiment.experiment import LinkTrace, LossTrace
from atoll_core.experiment.flow_sizes import FlowSizes

T = TypeVar("T")

_OUTSIDE = "is outside the folder of files that this description may name"


class ReferencedFiles:
    """Files by their path relative to the folder of the experiment.

    A file that cannot be read is a FileContent with one mistake, at line 0. ``confined``: only files in the folder or
    below are read.
    """

    def __init__(self, folder: Path, *, confined: bool = False) -> None:
        self._folder = folder
        self._confined = confined
        self._traces: dict[str, FileContent[LinkTrace]] = {}
        self._loss_traces: dict[str, FileContent[LossTrace]] = {}
        self._flow_sizes: dict[str, FileContent[FlowSizes]] = {}

    def trace(self, name: str) -> FileContent[LinkTrace]:
        """A trace of rate, delay, loss and blockage."""
        return self._read(name, self._traces, "CSV", read_trace)

    def loss_trace(self, name: str) -> FileContent[LossTrace]:
        """A trace of lost packets."""
        return self._read(name, self._loss_traces, "text", read_loss_trace)

    def flow_sizes(self, name: str) -> FileContent[FlowSizes]:
        """A distribution of flow sizes."""
        return self._read(name, self._flow_sizes, "text", read_flow_sizes)

    def _read(
        self, name: str, known: dict[str, FileContent[T]], what: str, read: Callable[[str, str], FileContent[T]]
    ) -> FileContent[T]:
        if name not in known:
            path = self._folder / name
            text = Diagnostic(name, 0, _OUTSIDE) if self._leads_out(path) else read_text(path, what, MOST_BYTES)
            known[name] = FileContent(None, (text,)) if isinstance(text, Diagnostic) else read(text, label(path))
        return known[name]

    def _leads_out(self, path: Path) -> bool:
        try:
            return self._confined and not path.resolve().is_relative_to(self._folder.resolve())
        except (OSError, RuntimeError, ValueError):  # links in a circle, a NUL in the name
            return True
