"""Serve the page to this machine alone, with Bokeh's server and the assets that Bokeh brings."""

import logging
import webbrowser
from collections.abc import Callable

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.server.server import Server

from coco_denoiser.explore.page import build
from coco_denoiser.explore.simulation import Settings, simulate


def start(port: int) -> Server:
    """Return a server that listens on the loopback interface; port 0 takes a free one.

    Raises:
        OSError: if the port is taken or not allowed.
    """
    server = Server({"/": Application(FunctionHandler(build))}, address="127.0.0.1", port=port)
    server.start()
    return server


def serve(server: Server, *, browser: bool, say: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C."""
    # A page that is closed while it plays is no reason for a line in the terminal.
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    say("Compiling what is not compiled yet: about 15 seconds the first time, then none.")
    simulate(Settings())
    address = f"http://localhost:{server.port}/"
    say(f"The page is at {address} and open to this machine alone. Ctrl-C ends it.")
    if browser:
        server.io_loop.add_callback(webbrowser.open, address)
    server.run_until_shutdown()
