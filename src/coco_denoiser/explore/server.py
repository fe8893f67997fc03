"""Serve the page to this machine alone, with Bokeh's server and the assets that Bokeh brings.

A page of another site, open in the same browser, could request ours too: under its own name, if
that was made to point to this machine. So every request must name this machine, and what opens a
channel must come from our own page.
"""

import logging
import webbrowser
from collections.abc import Callable

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.server.util import bind_sockets
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPServerRequest, ResponseStartLine
from tornado.ioloop import IOLoop
from tornado.routing import AnyMatches, Matcher, Rule, RuleRouter

from coco_denoiser.explore.page import build
from coco_denoiser.explore.simulation import Settings, simulate

ADDRESS = "127.0.0.1"
NAMES = ("localhost", ADDRESS)


class Server(BaseServer):  # type: ignore[misc]  # Bokeh is not typed
    """A server of the page that listens on the loopback interface; port 0 takes a free one.

    Raises:
        OSError: if the port is taken or not allowed.
    """

    def __init__(self, port: int) -> None:
        sockets, port = bind_sockets(ADDRESS, port)
        # A browser leaves out the port of a protocol.
        hosts = [name if port == 80 else f"{name}:{port}" for name in NAMES]
        pages = BokehTornado(
            {"/": Application(FunctionHandler(build))},
            extra_websocket_origins=[f"{name}:{port}" for name in NAMES],
        )
        http = HTTPServer(RuleRouter([Rule(_Ours(hosts), pages), Rule(AnyMatches(), _refuse)]))
        http.add_sockets(sockets)
        super().__init__(IOLoop.current(), pages, http)


class _Ours(Matcher):
    """Matches requests to this machine by its own name that no other site's page has made."""

    def __init__(self, hosts: list[str]) -> None:
        self._hosts = hosts
        self._origins = [f"http://{host}" for host in hosts]

    def match(self, request: HTTPServerRequest) -> dict[str, object] | None:
        origin = request.headers.get("Origin")
        # Browsers always say which page opens a channel, but not which one follows a link.
        from_us = origin in self._origins or (origin is None and "Upgrade" not in request.headers)
        return {} if from_us and request.host.lower() in self._hosts else None


def _refuse(request: HTTPServerRequest) -> None:
    content = b"This page is for the machine it runs on, at localhost.\n"
    headers = HTTPHeaders({"Content-Length": str(len(content)), "Content-Type": "text/plain"})
    assert request.connection is not None  # noqa: S101, Tornado answers what it was asked
    request.connection.write_headers(ResponseStartLine("", 403, "Forbidden"), headers, content)
    request.connection.finish()


def serve(server: Server, *, browser: bool, say: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C."""
    # A page that is closed while it plays is no reason for a line in the terminal.
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    server.start()
    say("Compiling whatever is not compiled yet: about 15 seconds the first time, none later.")
    simulate(Settings())
    address = f"http://localhost:{server.port}/"
    say(f"The page is at {address} and open to this machine alone. Ctrl-C ends it.")
    if browser:
        server.io_loop.add_callback(webbrowser.open, address)
    server.run_until_shutdown()
