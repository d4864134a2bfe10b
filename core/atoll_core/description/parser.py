# SPDX-License-Identifier: Apache-2.0
"""Validate a document against a raw model: all mistakes of form, before any of meaning.

A description that has the right form is resolved (``resolve_*``), which reports all mistakes of meaning: names that do
not exist, values that contradict each other.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from atoll_core.description.raw_types import Raw
from atoll_core.description.validation_messages import entry_name, error_message, free_ports, suggest_key
from atoll_core.description.yaml_document import Document, Place
from atoll_core.errors import DescriptionError, Diagnostic

M = TypeVar("M", bound=Raw)


class Mistakes:
    """The mistakes of meaning in a document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.diagnostics: list[Diagnostic] = []

    def wrong(self, place: Place, message: str) -> None:
        """Note a mistake."""
        name = entry_name(place)
        self.diagnostics.append(self.document.mistake(place, f"{name}: {message}" if name else message))

    def of_file(self, place: Place, mistakes: Iterable[Diagnostic]) -> None:
        """Note those of a file that is named at ``place``. One of the file as a whole is reported there."""
        for mistake in mistakes:
            if mistake.line:
                self.diagnostics.append(mistake)
            else:
                self.wrong(place, f"{mistake.file}: {mistake.message}; the path is relative to this file")


def parse(model: type[M], document: Document, examples: Mapping[str, str] = MappingProxyType({})) -> M:
    """Validate ``document`` against ``model``. Raises DescriptionError with all mistakes of YAML and of form.

    ``examples``: by key, for messages, instead of those of the model.
    """
    mistakes = list(document.mistakes)
    if document.tree is not None:
        try:
            raw = model.model_validate(document.tree)
        except ValidationError as error:
            details = error.errors(include_url=False)
            ports = free_ports(document.tree)
            # A key that is missing because it is misspelt is reported once, as the misspelling.
            meant = {(*place[:-1], suggest_key(model, place)) for place in map(_place, details) if place}
            mistakes += [
                document.mistake(_place(detail), error_message(model, detail, ports, examples))
                for detail in details
                if detail["type"] != "missing" or _place(detail) not in meant
            ]
        else:
            if not mistakes:
                return raw
    raise DescriptionError(mistakes)


def _place(error: ErrorDetails) -> Place:
    return tuple(key for key in error["loc"] if key != "[key]")
