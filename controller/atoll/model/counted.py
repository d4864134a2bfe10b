# SPDX-License-Identifier: Apache-2.0
"""Numbers of things, in the singular where there is one."""


def counted(count: int, noun: str) -> str:
    """``1 run``, ``2 runs``, ``2 switches``; of nouns that take an s, or an es after ch."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def were(count: int, noun: str) -> str:
    """``1 packet was``, ``2 packets were``."""
    return f"{counted(count, noun)} {'was' if count == 1 else 'were'}"
