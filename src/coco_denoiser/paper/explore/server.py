"""Serve the page to this machine alone.

A page of another site, open in the same browser, could request ours under its own name, if that
was made to point to this machine. So every request must name this machine.
"""

import json
import signal
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from coco_denoiser.paper.explore.page import html, run
from coco_denoiser.paper.explore.remarks import medians
from coco_denoiser.paper.explore.simulation import settings

PATIENCE = 5.0  # seconds, for the runs with other seeds
ADDRESS = "127.0.0.1"


class Server(ThreadingHTTPServer):
    """A server of the page that listens on the loopback interface; port 0 takes a free one.

    Raises:
        OSError: if the port is taken or not allowed.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__((ADDRESS, port), _Handler)
        names = ("localhost", ADDRESS)
        # A browser leaves out the port of a protocol.
        self.hosts = [n if self.server_port == 80 else f"{n}:{self.server_port}" for n in names]
        self.page = html(live=True).encode()

    def handle_error(self, *request: Any) -> None:
        """Print what went wrong, unless a page was merely closed in the meantime."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*request)


class _Handler(BaseHTTPRequestHandler):
    """Answers `/` with the page, `/run` with a run, and `/seeds` with a sentence on other noise."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 30.0  # seconds without a complete request, or between two

    def do_GET(self) -> None:
        """Answer a request."""
        hosts = [name.lower() for name in self.headers.get_all("Host", [])]
        if len(hosts) != 1 or hosts[0] not in self.server.hosts:
            self._answer(403, "text/plain", b"This page is for the machine it runs on.\n")
            return
        try:
            asked = urlsplit(self.path)
        except ValueError:  # such as an address with half of an IPv6 host
            self._answer(400, "text/plain", b"Malformed address.\n")
            return
        chosen = settings(dict(parse_qsl(asked.query)))
        if asked.path == "/":
            self._answer(200, "text/html; charset=utf-8", self.server.page)
        elif asked.path == "/run":
            self._send_json(run(chosen))
        elif asked.path == "/seeds":
            self._send_json(medians(chosen, patience=PATIENCE))
        else:
            self._answer(404, "text/plain", b"There is no such page.\n")

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _send_json(self, content: object) -> None:
        self._answer(200, "application/json", json.dumps(content).encode())

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def serve(server: Server, *, browser: bool, say: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C."""
    address = f"http://localhost:{server.server_port}/"
    say(f"{address}: serving on localhost only; Ctrl-C to stop")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also for a job in the background
    if browser:
        webbrowser.open(address)
    with suppress(KeyboardInterrupt), server:
        server.serve_forever()
