# SPDX-License-Identifier: Apache-2.0
"""The losses and codes that are simulated."""

from residuallossbench.ideal_code import Chain

SIZE = 30
"""Packets of a generation."""

FALLBACK = 3
"""Repair packets of a generation without reports."""

TARGET = 0.002
"""Share of packets that may stay lost."""

CHAINS = (Chain(0.005, 3), Chain(0.01, 1.5), Chain(0.02, 3), Chain(0.05, 2))

DEPTHS = (1, 4)
"""Generations that take turns."""

CHANGES = (
    (15_000, None),
    (30_000, Chain(0.01, 3)),
    (30_000, Chain(0.05, 3)),
    (30_000, Chain(0.01, 3)),
    (15_000, None),
)
"""Packets, and how they are lost."""
