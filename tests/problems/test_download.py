"""The download, against a server on this machine that can be told to misbehave."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coco_denoiser.problems import DatasetError, datasets

CONTENT = b"-1 1:167.000000 2:178.000000 \n+1 1:162.000000 2:31.000000 \n"


class Server(ThreadingHTTPServer):
    behaviour = "good"
    requests = 0

    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/binary/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        if self.server.behaviour == "missing":
            self.send_error(404)
            return
        body = b"<html>moved</html>" if self.server.behaviour == "wrong" else CONTENT
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # A dropped connection promises the whole file and delivers half.
        self.wfile.write(body[: len(body) // 2] if self.server.behaviour == "dropped" else body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setattr(datasets, "FOURCLASS_SHA256", hashlib.sha256(CONTENT).hexdigest())
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_good_file_is_downloaded_once_and_then_found_in_the_cache(
    server: Server, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    for _ in range(2):
        path = datasets.fetch_fourclass(cache=cache, base_url=server.url())
        assert path.read_bytes() == CONTENT
    assert [file.name for file in cache.iterdir()] == ["fourclass"]
    assert server.requests == 1


def test_a_damaged_cache_is_mended(server: Server, tmp_path: Path) -> None:
    (tmp_path / "fourclass").write_bytes(CONTENT[:-5])
    path = datasets.fetch_fourclass(cache=tmp_path, base_url=server.url())
    assert path.read_bytes() == CONTENT


def test_a_named_folder_comes_before_the_network(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fourclass").write_bytes(CONTENT)
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path))
    path = datasets.fetch_fourclass(base_url=server.url())
    assert path == tmp_path / "fourclass"
    assert server.requests == 0


@pytest.mark.parametrize("behaviour", ["wrong", "dropped", "missing", "no network"])
def test_a_failed_download_names_the_remedy_and_leaves_nothing(
    server: Server, tmp_path: Path, behaviour: str
) -> None:
    url = server.url()
    if behaviour == "no network":
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}/binary/"
    server.behaviour = behaviour
    with pytest.raises(DatasetError) as caught:
        datasets.fetch_fourclass(cache=tmp_path, base_url=url)
    message = str(caught.value)
    assert f"{url}fourclass" in message
    assert datasets.DATA_VARIABLE in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []
