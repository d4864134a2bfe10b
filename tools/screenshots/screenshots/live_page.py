# SPDX-License-Identifier: Apache-2.0
"""Pictures of the live page: a run's replay in the middle of it, wide and narrow, light and dark."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

from PIL import Image  # comes with matplotlib

from screenshots.browser import Browser, Page

ATOLL = Path(__file__).resolve().parents[3] / ".venv" / "bin" / "atoll"

WIDE = (1600, 900)
NARROW = (420, 900)
INSTANT_S = 27.3  # of the measurement: there the demo's queue overflows
COLOURS = 256  # of a palette: the pictures look the same and take a third of the room


def make(run: Path, out: Path) -> list[Path]:
    """Write live-page-{wide,narrow}-{light,dark}.png."""
    with served(run) as url, Browser() as browser:
        return [
            shot(browser.page(*size, dark=dark), url, out / f"live-page-{shape}-{'dark' if dark else 'light'}.png")
            for shape, size in (("wide", WIDE), ("narrow", NARROW))
            for dark in (False, True)
        ]


def shot(page: Page, url: str, file: Path) -> Path:
    """Open the replay, go to the instant, and take the picture when it is drawn."""
    page.go(url)
    page.wait("document.querySelector('#state').textContent === 'replay'", 30)
    page.value(
        f"""(slider => {{
            slider.value = {INSTANT_S};
            slider.dispatchEvent(new Event("input"));
        }})(document.querySelector("#position"))"""
    )
    page.wait(f"Math.abs(document.querySelector('#position').value - {INSTANT_S}) < 0.06")
    page.listen(1.0)
    page.shot(file)
    with Image.open(file) as picture:
        colours, method = picture.convert("RGB"), Image.Quantize.MAXCOVERAGE
        # Refined by k-means: otherwise large grounds turn pink, as the palette is drawn towards the rare colours.
        small = colours.quantize(COLOURS, method, kmeans=1, dither=Image.Dither.NONE)
    small.save(file, optimize=True)
    return file


@contextlib.contextmanager
def served(run: Path) -> Generator[str]:
    """`atoll watch RUN` while the block lasts; the address of its page, with a token that is nobody's otherwise."""
    with tempfile.TemporaryDirectory(prefix="atoll-watch-") as home:
        environment = {**os.environ, "HOME": home}
        environment.pop("XDG_STATE_HOME", None)
        process = subprocess.Popen(
            [ATOLL, "watch", run, "--listen", "0", "--json"], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None  # noqa: S101 (a pipe)
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(10)
