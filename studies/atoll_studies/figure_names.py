# SPDX-License-Identifier: Apache-2.0
"""The remedy for a name that no figure has."""

import re
from collections.abc import Iterable

from atoll_core.description.validation_messages import suggest
from atoll_core.errors import shown
from atoll_core.plural import first_of

_MOST = 8


def suggest_figure(given: str, known: Iterable[str]) -> str:
    """The figures that have all words of ``given``, otherwise the most similar one, and where all are listed."""
    names = list(known)
    words = re.findall(r"[a-z0-9]+", given.lower())
    meant = [name for name in names if words and all(word in name.lower() for word in words)]
    near = (
        f"did you mean {first_of([shown(each) for each in meant], _MOST)}?"
        if meant
        else suggest(given, names, "figures", _MOST)
    )
    return f"{near}; `atoll results` lists all {len(names)}"
