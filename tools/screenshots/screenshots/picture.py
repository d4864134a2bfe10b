# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false
# (matplotlib leaves the keyword arguments of its drawing methods untyped)
"""A figure as a small PNG: few colours are enough for lines and text."""

import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from atoll_dashboards.report.plot_style import common_style

_COLOURS = 96


def save(figure: Figure, path: Path, dpi: int) -> Path:
    """Write it; equal figures give equal bytes."""
    drawn = io.BytesIO()
    with common_style():
        figure.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    return path
