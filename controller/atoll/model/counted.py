# SPDX-License-Identifier: Apache-2.0
"""Numbers of things, in the singular where there is one, and things one after another."""

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """``1 run``, ``2 runs``, ``2 switches``; of nouns that take an s, or an es after ch."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def were(count: int, noun: str) -> str:
    """``1 packet was``, ``2 packets were``."""
    return f"{counted(count, noun)} {'was' if count == 1 else 'were'}"


def listed(words: Sequence[str], last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``; ``last``: what stands before the last one. There is one at least."""
    *others, end = words
    return f"{', '.join(others)} {last} {end}" if others else end
