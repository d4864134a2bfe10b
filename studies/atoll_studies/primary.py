# SPDX-License-Identifier: Apache-2.0
"""The primary figure of a study."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Primary:
    """The figure that a study is made for."""

    figure: str
    margin: float | None  # deviation, as a share of the baseline, below which configurations are equivalent; None: none
    runs_before: int = 0  # completed attempts that the study had when it was named
