# SPDX-License-Identifier: Apache-2.0
"""The kind of a YAML file, by its keys, and the command that takes it."""

from collections.abc import Mapping

from pydantic import BaseModel

from atoll_core.description.raw_experiment import RawExperiment
from atoll_core.description.raw_inventory import RawInventory
from atoll_core.description.raw_lab import RawLab
from atoll_core.description.raw_study import RawStudy
from atoll_core.description.yaml_document import Document
from atoll_core.errors import DescriptionError, Diagnostic

_MODEL_BY_KIND: Mapping[str, type[BaseModel]] = {
    "a lab": RawLab,
    "an experiment": RawExperiment,
    "a study": RawStudy,
    "an inventory of machines": RawInventory,
}
LAB, EXPERIMENT, STUDY, INVENTORY = _MODEL_BY_KIND


def count_keys(document: Document, kind: str) -> int:
    """The number of the document's keys that a file of this kind may have; none for a kind without keys."""
    return len(set(document.tree or ()) & set(_MODEL_BY_KIND[kind].model_fields)) if kind in _MODEL_BY_KIND else 0


def is_kind(document: Document, kind: str) -> bool:
    """Whether the document has more keys of this kind than of any other."""
    return all(count_keys(document, kind) > count_keys(document, other) for other in _MODEL_BY_KIND if other != kind)


def kind_mistake(document: Document, *accepted: str) -> Diagnostic | None:
    """The mistake that a document is of another kind than the needed ones, with the command that takes it.

    ``accepted`` may also be "a run directory".
    """
    kind = max(_MODEL_BY_KIND, key=lambda kind: count_keys(document, kind))
    count = count_keys(document, kind)
    if count <= max(count_keys(document, kind) for kind in accepted):
        return None
    if 2 * count <= len(document.tree or ()):  # of none of these kinds: a run's summary.json has keys of an experiment
        return None
    message = f"is {kind}, but {' or '.join(accepted)} is needed; {_remedy(document, kind)}"
    return Diagnostic(document.file, 0, message)


def require_kind(document: Document, *accepted: str) -> None:
    """Raise DescriptionError if the document is of another kind than the needed ones."""
    if mistake := kind_mistake(document, *accepted):
        raise DescriptionError([mistake])


def _remedy(document: Document, kind: str) -> str:
    file = document.file
    if kind == LAB:
        return f"`atoll up {file}` brings it up"
    if kind == EXPERIMENT:
        return f"`atoll run {file}` runs it"
    if kind == INVENTORY:
        return f"`atoll check --inventory {file}` checks it"
    name = (document.tree or {}).get("name", "NAME")
    runs = f"`atoll sweep {file} --dry-run` estimates its runs, `atoll sweep {file}` makes them"
    return f"{runs}, `atoll report runs/studies/{name}` reports them"
