# SPDX-License-Identifier: Apache-2.0
"""Load a Network or an Experiment from files.

Every function raises DescriptionError with all mistakes that can be found, in both files.
Importing this module imports pydantic and ruamel.yaml (0.1 s), so it is imported where it is needed.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from atoll_core.description.file_kinds import EXPERIMENT, LAB, count_keys, require_kind
from atoll_core.description.overrides import override, override_lab, settings_of_lab
from atoll_core.description.raw_experiment import RawExperiment, RawTransfer
from atoll_core.description.referenced_files import ReferencedFiles
from atoll_core.description.resolve_experiment import resolve_experiment
from atoll_core.description.resolve_lab import Lab
from atoll_core.description.validation_messages import lab_examples, parse
from atoll_core.description.yaml_document import Document, read_document
from atoll_core.errors import DescriptionError, Diagnostic, shown
from atoll_core.experiment.experiment import Experiment
from atoll_core.lab.network import Network
from atoll_core.units import Duration


def parse_lab(document: Document, settings: Sequence[str]) -> Lab:
    """The lab of a document that was read already, with the settings (``lab.KEY=VALUE``) in it.

    Raises PlanError for a setting that cannot be read.
    """
    return Lab.read(override_lab(document, settings))


def load_lab(path: Path) -> Network:
    """The laboratory that a lab.yaml describes."""
    return Lab.read(read_document(path)).network


def load_experiment(path: Path, settings: Sequence[str] = ()) -> tuple[Network, Experiment]:
    """The experiment of an experiment.yaml with settings over it: :meth:`DescriptionFile.network_and_experiment`."""
    return DescriptionFile.read(path, settings).network_and_experiment()


def load_lab_or_experiment(path: Path, settings: Sequence[str] = ()) -> tuple[Network, Experiment | None]:
    """A lab, or an experiment with settings over it and its lab: :meth:`DescriptionFile.lab_or_experiment`."""
    return DescriptionFile.read(path, settings).lab_or_experiment()


@dataclass(frozen=True, slots=True)
class DescriptionFile:
    """An experiment.yaml or lab.yaml that has been read, and settings (``KEY=VALUE``) that replace values of it.

    Settings ``lab.KEY=VALUE`` replace values of the lab that an experiment names.

    The lab that an experiment names is read whenever the experiment is resolved. Methods raise PlanError for a setting
    that cannot be read.
    """

    path: Path
    document: Document
    settings: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, settings: Sequence[str] = ()) -> "DescriptionFile":
        """Read a file. Its mistakes are raised when it is resolved."""
        return cls(path, read_document(path), tuple(settings))

    def network_and_experiment(self) -> tuple[Network, Experiment]:
        """The experiment that the file describes, and the lab it names (relative to its own folder)."""
        require_kind(self.document, EXPERIMENT)
        return _resolve_with_settings(self.path, self.document, self.settings)

    def lab_or_experiment(self) -> tuple[Network, Experiment | None]:
        """A lab (without an experiment) or an experiment with its lab, depending on the keys of the file.

        A lab takes no settings.
        """
        document = self.document
        if document.tree is None:
            raise DescriptionError(document.mistakes)
        require_kind(document, LAB, EXPERIMENT)
        if count_keys(document, LAB) == count_keys(document, EXPERIMENT):
            message = "neither a lab (networks, switches, hosts, ...) nor an experiment (lab, chain, links, ...)"
            raise DescriptionError([*document.mistakes, document.mistake((), message)])
        if _is_lab(document):
            return Lab.read(document).network, None
        return _resolve_with_settings(self.path, document, self.settings)

    def lab_path(self) -> Path:
        """The file of the lab: the file itself, or the one that the experiment names. There are no mistakes in them."""
        if self.document.tree is None or _is_lab(self.document):
            return self.path
        return self.path.parent / str(self._tree()["lab"])

    @property
    def lab_settings(self) -> tuple[str, ...]:
        """The settings that replace values of the lab."""
        return settings_of_lab(self.settings)

    def transfer_starts(self) -> dict[str, Duration]:
        """The starts of an experiment's transfers by their keys; those with a mistake there are left out."""
        tree = self._tree()
        transfers = {"transfer": tree.get("transfer")}
        if isinstance(named := tree.get("transfers"), dict):
            transfers |= {f"transfers.{name}": each for name, each in cast("dict[str, Any]", named).items()}
        starts: dict[str, Duration] = {}
        for key, transfer in transfers.items():
            with suppress(TypeError, ValueError, AttributeError):
                start = cast("dict[str, Any]", transfer).get("start")
                starts[key] = RawTransfer.model_fields["start"].default if start is None else Duration.parse(start)
        return starts

    def _tree(self) -> dict[str, Any]:
        return override(self.document, self.settings).tree or {}


def resolve_document(
    document: Document, path: Path, loaded: Lab | None = None, settings: Sequence[str] = ()
) -> tuple[Network, Experiment]:
    """As :func:`load_experiment`, for a document that was read from the file already, with its own settings in it.

    Mistakes of form, and all of the lab, come before those of meaning.
    ``settings``: those of the lab replace values of it, others are ignored.
    ``loaded``: a lab that was loaded before; it is not resolved again if the experiment names the same one.
    """
    lab_name = (document.tree or {}).get("lab")
    lab_document = override_lab(read_document(path.parent / lab_name), settings) if isinstance(lab_name, str) else None
    raw = lab = None
    mistakes: list[Diagnostic] = []
    try:
        raw = parse(RawExperiment, document, lab_examples((lab_document and lab_document.tree) or {}))
    except DescriptionError as error:
        mistakes += error.mistakes
    if lab_document is not None and (reason := _wrong_lab_reason(lab_document)):
        mistakes.append(document.mistake(("lab",), f"lab: {reason}"))
    elif lab_document is not None:
        try:
            lab = loaded if loaded and loaded.document.tree == lab_document.tree else Lab.read(lab_document)
        except DescriptionError as error:
            mistakes += error.mistakes
    if raw is None or lab is None:
        raise DescriptionError(mistakes)
    return lab.network, resolve_experiment(raw, document, lab, ReferencedFiles(path.parent))


def experiment_on(lab: Lab, document: Document, folder: Path) -> Experiment:
    """The experiment that a document describes, on a lab that was loaded before. The document's key ``lab`` is ignored.

    Other files that it names are read if they are in ``folder`` or below.
    """
    raw = parse(RawExperiment, document, lab_examples(lab.document.tree or {}))
    return resolve_experiment(raw, document, lab, ReferencedFiles(folder, confined=True))


def _is_lab(document: Document) -> bool:
    return count_keys(document, LAB) > count_keys(document, EXPERIMENT)


def _resolve_with_settings(path: Path, document: Document, settings: Sequence[str]) -> tuple[Network, Experiment]:
    """The experiment with the settings in it. Mistakes that the settings cause name them."""
    try:
        return resolve_document(override(document, settings), path, settings=settings)
    except DescriptionError as error:
        if not settings or all(mistake.line == 0 for mistake in error.mistakes):
            raise
        file_mistakes = _mistakes_without_settings(path, document)
        if file_mistakes and not set(file_mistakes) & set(error.mistakes):
            raise  # they are of an earlier stage, and hide those that the file has itself
        cause = ", ".join(f"--set {shown(setting)}" for setting in settings)
        raise DescriptionError(
            [
                mistake
                if mistake.line == 0 or mistake in file_mistakes
                else replace(mistake, line=0, message=f"{cause}: {mistake.message}")
                for mistake in error.mistakes
            ]
        ) from None


def _mistakes_without_settings(path: Path, document: Document) -> Sequence[Diagnostic]:
    try:
        resolve_document(document, path)
    except DescriptionError as error:
        return error.mistakes
    return ()


def _wrong_lab_reason(document: Document) -> str | None:
    """The reason why a file that an experiment names is not a lab; None if it is one."""
    if document.tree is None:
        unreadable = [mistake for mistake in document.mistakes if mistake.line == 0]
        return f"{document.file}: {unreadable[0].message}; the path is relative to this file" if unreadable else None
    if count_keys(document, EXPERIMENT) > count_keys(document, LAB):
        return f"{document.file} is an experiment; name the file of a lab"
    return None
