# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, driven by the DevTools protocol over a pipe: no port, no further package.

https://chromedevtools.github.io/devtools-protocol/ describes the messages: JSON, each ended by a zero byte, which
Chromium reads from file descriptor 3 and writes to 4 (``--remote-debugging-pipe``). A pipe also reaches into a network
namespace.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

_POLL = "(() => { try { const it = %s; return it instanceof Node ? true : it } catch { return null } })()"

Message = dict[str, Any]
Command = Callable[[Sequence[str | Path]], Sequence[str]]

_KEYS = {"Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--mute-audio",
)


class BrowserError(Exception):
    """Chromium is not installed, ended, or failed a command; the message says which."""


def find_browser() -> str | None:
    """Where Chromium is, or None: Debian's package `chromium` brings it."""
    return next((path for name in _PROGRAMS if (path := shutil.which(name))), None)


class Browser:
    """A Chromium of its own, with nothing kept; use it as a context manager.

    ``command``: makes the command line that starts it elsewhere, in a network namespace say.
    """

    def __init__(self, command: Command = lambda argv: list(map(str, argv))) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0
        self._rest = b""
        self._to = self._from = -1
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Self:
        program = find_browser()
        if program is None:
            raise BrowserError("there is no Chromium on this machine; on Debian: apt-get install chromium")
        self._home = tempfile.TemporaryDirectory(prefix="atoll-browser-", ignore_cleanup_errors=True)
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        options = [*_OPTIONS, f"--user-data-dir={self._home.name}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # Chromium refuses to be root with it
        launcher = ["bash", "-c", f'exec "$@" 3<&{reads} 4>&{writes}', "bash", program, *options, "about:blank"]
        self._process = subprocess.Popen(
            self._command(launcher),
            pass_fds=(reads, writes),
            env={**os.environ, "HOME": self._home.name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None or self._home is None:
            return
        try:
            self.call("Browser.close", limit_s=5)
        except (BrowserError, OSError):
            self._process.kill()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._to)
        os.close(self._from)
        self._home.cleanup()

    def page(self, width: int, height: int, *, dark: bool = False) -> "Page":
        """A new page with a window of that size in CSS pixels, and the wish for light or dark of its user."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        return page

    def call(self, method: str, session: str | None = None, limit_s: float = 30.0, **params: Any) -> Message:
        """Ask for something and wait for the answer. Raises BrowserError."""
        self._number += 1
        request: Message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            request["sessionId"] = session
        os.write(self._to, json.dumps(request).encode() + b"\0")
        until = time.monotonic() + limit_s
        while (message := self._read(until)) is not None:
            if message.get("id") == self._number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error'].get('message')}")
                return message["result"]
        raise BrowserError(f"{method}: no answer within {limit_s:g} s")

    def listen(self, seconds: float) -> None:
        """Receive Chromium's events for a time."""
        until = time.monotonic() + seconds
        while self._read(until) is not None:
            pass

    def _read(self, until: float) -> Message | None:
        """The next message; None when there is none in time. Events go to their pages."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            more = os.read(self._from, 1 << 20)
            if not more:
                raise BrowserError("Chromium has ended")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        message: Message = json.loads(line)
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.take(message["method"], message["params"])
        return message


class Page:
    """One page. ``complaints``: errors of its scripts and on its console; ``requests``: the URLs that it requested."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._browser = browser
        self._session = session

    def take(self, method: str, params: Message) -> None:
        """Note an event."""
        match method:
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description", details["text"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(" ".join(str(arg.get("value", "")) for arg in params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case _:
                pass

    def call(self, method: str, **params: Any) -> Message:
        """Ask for something of this page. Raises BrowserError."""
        return self._browser.call(method, self._session, **params)

    def close(self) -> None:
        """Close it."""
        self.call("Page.close")

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def go(self, url: str) -> None:
        """Open an address. Raises BrowserError when nobody answers there."""
        if error := self.call("Page.navigate", url=url).get("errorText"):
            raise BrowserError(f"{url}: {error}")

    def value(self, expression: str) -> Any:
        """Evaluate a JavaScript expression; promises are awaited. Raises BrowserError with the script's error."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if details := answer.get("exceptionDetails"):
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, expression: str, limit_s: float = 60.0) -> Any:
        """Wait until an expression is true of the page, and return it (of an element, True).

        Raises BrowserError, with the page's text.
        """
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if value := self.value(_POLL % expression):
                return value
            self._browser.listen(0.1)
        text = self.value("document.body.innerText")[:1500]
        raise BrowserError(
            f"not within {limit_s:g} s: {expression}; complaints: {self.complaints}; the page says:\n{text}"
        )

    def listen(self, seconds: float) -> None:
        """Let the page live on for so long."""
        self._browser.listen(seconds)

    def press(self, key: str) -> None:
        """Press and release a key, as DOM names it: ` `, `d`, `ArrowLeft`."""
        number = _KEYS.get(key, ord(key[0].upper()))
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=number, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=number)

    def click(self, selector: str, times: int = 1) -> None:
        """Press the middle of an element with the pointer, as a user would."""
        place = self._place(selector)
        x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
        for count in range(1, times + 1):
            self._mouse("mousePressed", x, y, count)
            self._mouse("mouseReleased", x, y, count)

    def point(self, selector: str, share: float) -> None:
        """Have the pointer at so much of an element's width."""
        place = self._place(selector)
        self._mouse("mouseMoved", place["x"] + place["width"] * share, place["y"] + place["height"] / 2, button="none")

    def drag(self, selector: str, begin: float, end: float) -> None:
        """Drag across an element, from one share of its width to another."""
        place = self._place(selector)
        y = place["y"] + place["height"] / 2
        start, stop = (place["x"] + place["width"] * share for share in (begin, end))
        self._mouse("mouseMoved", start, y, button="none")
        self._mouse("mousePressed", start, y)
        for part in range(1, 6):
            self._mouse("mouseMoved", start + (stop - start) * part / 5, y)
        self._mouse("mouseReleased", stop, y)

    def shot(self, file: Path) -> Path:
        """Write a picture of the window as PNG."""
        picture = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        file.write_bytes(base64.b64decode(picture["data"]))
        return file

    def _place(self, selector: str) -> dict[str, float]:
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{element}.scrollIntoView({{block: 'nearest'}})")
        return self.value(
            f"(({{x, y, width, height}}) => ({{x, y, width, height}}))({element}.getBoundingClientRect())"
        )

    def _mouse(self, kind: str, x: float, y: float, count: int = 1, button: str = "left") -> None:
        buttons = 0 if kind == "mouseReleased" or button == "none" else 1
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=count)
