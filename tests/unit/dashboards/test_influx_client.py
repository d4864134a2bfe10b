# SPDX-License-Identifier: Apache-2.0
"""Answers that are not those of a database: what is wrong is said, and nothing counts as stored."""

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from atoll_dashboards.influx.influx_client import Database, DatabaseError
from atoll_dashboards.influx.influx_settings import InfluxSettings


@contextmanager
def listening(answer: Callable[[socket.socket], None], scheme: str = "https") -> Generator[str]:
    """The URL of a server that does this with the first who connects, then goes away."""

    def serve() -> None:
        with server.accept()[0] as connection:
            answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def speak_plainly(connection: socket.socket) -> None:
    """What a server without TLS does with the begin of a TLS connection."""
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def hang_up(connection: socket.socket) -> None:
    """Leave without a word."""
    connection.recv(4096)


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (speak_plainly, r"the server at this address does not use TLS; write http:// \(SSLError .*"),
        (hang_up, r"the TLS connection failed \(SSLError .*"),
    ],
)
def test_what_is_wrong_with_tls_is_said(answer: Callable[[socket.socket], None], output: str) -> None:
    with (
        listening(answer) as url,
        Database(InfluxSettings(url)) as database,
        pytest.raises(DatabaseError, match=f"^no answer from {url}: {output}$"),
    ):
        database.check()


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "202 Accepted", "302 Found", "204 No Content"])
def test_only_204_means_that_points_are_stored(status: str) -> None:
    """A captive portal answers every request with 200 and a page."""

    def portal(connection: socket.socket) -> None:
        connection.recv(4096)
        body = "" if status.startswith("204") else "<html>Please log in</html>"
        head = f"HTTP/1.1 {status}\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())

    with listening(portal, "http") as url, Database(InfluxSettings(url)) as database:
        if status.startswith("204"):
            database.write(b"a n=1i 1\n")
            return
        with pytest.raises(DatabaseError, match=f"^{url} answers {status[:3]}"):
            database.write(b"a n=1i 1\n")
