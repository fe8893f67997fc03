"""What the server of the page makes of requests that no browser sends."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("bokeh", reason="bokeh is not installed: pip install -e '.[test]'")

from coco_denoiser.paper.explore import server as module
from coco_denoiser.paper.explore.server import Server


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with Server(0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def _reply(port: int, request: str | bytes) -> bytes:
    """Send a request as it is, and return all that comes back until the server closes."""
    if isinstance(request, str):
        request = request.replace("HOST", "Host: localhost:PORT")
        request = request.replace("PORT", str(port)).encode("latin-1")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def _works(port: int) -> bool:
    asked = "GET /run?steps=10 HTTP/1.1\r\nHOST\r\nConnection: close\r\n\r\n"
    return _reply(port, asked).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        ("GET /run?steps=1e7 HTTP/1.1", "HOST", 200),
        ("GET /run?steps=10000000&window=999999999 HTTP/1.1", "HOST", 200),
        ("GET /run?steps=nan&L=inf&noise=-1&mu=x HTTP/1.1", "HOST", 200),
        (f"GET /run?seed={'9' * 5000} HTTP/1.1", "HOST", 200),
        ("GET /run?objective=__class__&%ff%00=%zz&=&& HTTP/1.1", "HOST", 200),
        (f"GET /{'a' * 70000} HTTP/1.1", "HOST", 414),
        ("GET / HTTP/1.1", f"HOST\r\nX: {'a' * 70000}", 431),
        ("GET / HTTP/1.1", "HOST" + "\r\nX: a" * 500, 431),
        ("GET / HTTP/1.1", "HOST\r\nHost: evil.example", 403),
        ("GET / HTTP/1.1", "X: no host", 403),
        ("GET /run?steps=10 HTTP/1.1", "Host: 127.0.0.1:PORT", 200),
        # A name of another's may be made to point here, so the address alone proves nothing.
        ("GET / HTTP/1.1", "Host: evil.example:PORT", 403),
        ("GET /run HTTP/1.1", "Host: localhost.evil.example:PORT", 403),
        ("GET /seeds HTTP/1.1", "Host: localhost", 403),
        ("GET http://[::1 HTTP/1.1", "HOST", 400),
        ("GET /../../etc/passwd HTTP/1.1", "HOST", 404),
        ("POST /run HTTP/1.1", "HOST\r\nContent-Length: 999999999", 501),
    ],
    ids=lambda value: str(value)[:40],
)
def test_every_request_has_an_answer(
    port: int, capfd: pytest.CaptureFixture[str], request_line: str, headers: str, status: int
) -> None:
    reply = _reply(port, f"{request_line}\r\n{headers}\r\nConnection: close\r\n\r\n")
    assert reply.startswith(f"HTTP/1.1 {status} ".encode())
    assert _works(port)
    assert capfd.readouterr() == ("", "")


def test_it_listens_on_the_loopback_interface_only(port: int) -> None:
    assert _works(port)
    # Linux answers for all of 127/8, so another address of it tells who else is listened to.
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", port))


def test_garbage_and_connections_that_say_nothing_are_closed_and_block_nobody(
    port: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for garbage in (bytes(range(256)) * 20, b"\x16\x03\x01\x02\r\n\r\n", b"GET / HT", b""):
        assert not _reply(port, garbage).startswith(b"HTTP/1.1 200")
    assert 0.0 < (module._Handler.timeout or 0.0) <= 60.0
    monkeypatch.setattr(module._Handler, "timeout", 1.0)
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in range(30)
        ]
        for connection in silent:
            connection.sendall(b"GET / HT")
        assert _works(port)
        assert [connection.recv(1) for connection in silent] == [b""] * 30
    assert _works(port)
    assert capfd.readouterr() == ("", "")
