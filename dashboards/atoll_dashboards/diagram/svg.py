# SPDX-License-Identifier: Apache-2.0
"""The SVG shapes of a laboratory's drawing. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

FONT = "Helvetica, Arial, 'Liberation Sans', sans-serif"
INK, GREY, FAINT, PAPER = "#1a1a1a", "#5f6368", "#c9ccd1", "#ffffff"
# Okabe and Ito's palette, distinguishable by colour-blind readers and in grey print.
LANES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")

_CHARACTER_WIDTH = 0.62  # of the font size: what a character takes at most on average in such fonts
_BOLD_CHARACTER_WIDTH = 0.66


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return a width that is sufficient for a text in any of the fonts."""
    return len(text) * size * (_BOLD_CHARACTER_WIDTH if bold else _CHARACTER_WIDTH)


@dataclass(frozen=True, slots=True)
class CardLine:
    """A line of text on a card."""

    text: str
    size: float = 11
    bold: bool = False
    colour: str = INK

    @property
    def width(self) -> float:
        """The room it takes."""
        return text_width(self.text, self.size, bold=self.bold)

    @property
    def height(self) -> float:
        """The distance to the next line."""
        return self.size * 1.35


def grey_line(text: str) -> CardLine:
    """A line of small print."""
    return CardLine(text, 9, colour=GREY)


@dataclass
class Drawing:
    """Shapes in drawing order."""

    title: str
    shapes: list[str] = field(default_factory=list[str])

    def line(self, points: Iterable[tuple[float, float]], colour: str, width: float) -> None:
        """A line through points."""
        points_text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.shapes.append(
            f'<polyline points="{points_text}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            'stroke-linejoin="round" stroke-linecap="round"/>'
        )

    def circle(self, x: float, y: float, radius: float, colour: str) -> None:
        """A disc of paper with a coloured rim."""
        self.shapes.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{PAPER}" stroke="{colour}" stroke-width="2"/>'
        )

    def card(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        lines: Sequence[CardLine],
        *,
        rim: str = INK,
        fill: str = PAPER,
    ) -> None:
        """A rectangle with lines of text in its middle."""
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5" fill="{fill}" '
            f'stroke="{rim}" stroke-width="1.3"/>'
        )
        top = y + (height - sum(line.height for line in lines)) / 2
        for line in lines:
            top += line.height
            self.text(x + width / 2, top - line.height * 0.28, line, anchor="middle")

    def text(self, x: float, y: float, line: CardLine, *, anchor: str = "start") -> None:
        """A line of text whose baseline begins, ends or is centred at a point."""
        weight = ' font-weight="bold"' if line.bold else ""
        self.shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{line.size:g}"{weight} fill="{line.colour}" '
            f'text-anchor="{anchor}">{escape(line.text)}</text>'
        )

    def render(self, width: float, height: float) -> str:
        """The whole document, of this many pixels at its natural size."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}" role="img">'
        )
        title = f"<title>{escape(self.title)}</title>"
        paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
        return "\n".join((head, title, paper, *self.shapes, "</svg>\n"))


def card_size(lines: Sequence[CardLine], *, margin: float = 10) -> tuple[float, float]:
    """The width and height of a card that holds these lines."""
    width = max((line.width for line in lines), default=0)
    return width + 2 * margin, sum(line.height for line in lines) + 1.6 * margin
