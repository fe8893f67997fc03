"""The page to play with, in a real browser, served by the command itself."""

import http.client
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.keys import Keys

from coco_denoiser import cli
from coco_denoiser.explore import standalone
from coco_denoiser.explore.page import FRAME
from coco_denoiser.explore.simulation import Settings, simulate
from tests.browser import chromium, complaints

_DEEP = """
function* deep(node) {
  for (const each of node.querySelectorAll("*")) {
    yield each;
    if (each.shadowRoot) yield* deep(each.shadowRoot);
  }
}
"""


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    command = [sys.executable, "-m", "coco_denoiser.cli", "explore", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline(), process.stdout.readline()]
        assert "Compiling" in printed[0]
        (address,) = re.findall(r"http://localhost:\d+/", printed[1])
        yield address
        process.send_signal(2)
        try:
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()  # or leaving the block would wait for ever
        assert "Traceback" not in process.stdout.read()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


@pytest.fixture(scope="module")
def opened(browser: webdriver.Chrome, served: str) -> webdriver.Chrome:
    browser.set_window_size(1400, 1000)
    browser.get(served)
    _until(lambda: "Relative gap" in _text(browser, "certificate"))
    return browser


@pytest.fixture
def page(opened: webdriver.Chrome) -> webdriver.Chrome:
    """The page with its first settings, shown to the end."""
    usual = asdict(Settings())
    usual.pop("method")
    opened.execute_script(_MODEL + "model('method').active = 0")
    _set(opened, usual)
    _until(lambda: "far" not in _text(opened, "text") and _shown(opened) == usual["steps"])
    return opened


def test_it_loads_without_complaint_and_from_this_machine_alone(
    page: webdriver.Chrome, served: str
) -> None:
    assert complaints(page) == []
    asked = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert asked
    assert [address for address in asked if not address.startswith(served)] == []
    assert page.execute_script(
        _DEEP + "return [...deep(document)].some(e => e.localName=='canvas')"
    )


def test_it_listens_on_the_loopback_interface_only(served: str) -> None:
    port = int(served.rstrip("/").rsplit(":", maxsplit=1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    # Linux answers for all of 127/8, so another address of it tells who else is listened to.
    with socket.socket() as other, pytest.raises(ConnectionRefusedError):
        other.connect(("127.0.0.2", port))


CHANNEL = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"Host": "localhost:PORT"}, 200),
        ("/", {"Host": "127.0.0.1:PORT", "Origin": "http://127.0.0.1:PORT"}, 200),
        ("/", {"Host": "evil.example:PORT"}, 403),
        ("/", {"Host": "localhost.evil.example:PORT"}, 403),
        ("/", {"Host": "localhost"}, 403),
        ("/static/js/bokeh.min.js", {"Host": "evil.example:PORT"}, 403),
        ("/", {"Host": "localhost:PORT", "Origin": "http://evil.example"}, 403),
        ("/", {"Host": "localhost:PORT", "Origin": "null"}, 403),
        ("/ws", {"Host": "localhost:PORT", **CHANNEL}, 403),
        ("/ws", {"Host": "localhost:PORT", "Origin": "http://evil.example:PORT", **CHANNEL}, 403),
        ("/ws", {"Host": "localhost:PORT", "Origin": "http://localhost:1", **CHANNEL}, 403),
        ("/ws", {"Host": "evil.example:PORT", "Origin": "http://evil.example:PORT"} | CHANNEL, 403),
    ],
)
def test_only_pages_of_this_machine_are_answered(
    served: str, path: str, headers: Mapping[str, str], status: int
) -> None:
    """A name of another's may be made to point here, so the address alone proves nothing."""
    port = served.rstrip("/").rsplit(":", maxsplit=1)[1]
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=120)
    told = {name: value.replace("PORT", port) for name, value in headers.items()}
    connection.request("GET", path, headers=told)
    answer = connection.getresponse()
    assert answer.status == status
    assert (answer.read() == b"This page is for the machine it runs on, at localhost.\n") == (
        status == 403
    )
    connection.close()


def test_a_slider_moves_the_picture_and_extremes_explain_themselves(page: webdriver.Chrome) -> None:
    before = _coco_path(page)
    _press(page, "L", Keys.ARROW_RIGHT)
    _until(lambda: _coco_path(page) != before)
    _set(page, {"L": 10, "mu": 0.9, "step": 1.9})
    _until(partial(_says, page, "diverged"))
    assert "nan" not in _text(page, "certificate")
    assert complaints(page) == []


def test_one_step_play_and_pause_with_the_keyboard(page: webdriver.Chrome) -> None:
    # Long enough not to end by itself before the key that pauses it arrives.
    _set(page, {"steps": 150})
    _until(lambda: _shown(page) == 150)
    _press(page, "one", Keys.ENTER)
    _until(lambda: _shown(page) == 1)
    _press(page, "play", Keys.SPACE)
    _until(lambda: _model(page, "play", "label") == "Pause" and _shown(page) > 1)
    _press(page, "play", Keys.SPACE)
    _until(lambda: _model(page, "play", "label") == "Play")
    # The server sends in order: what was drawn before the label changed is here already.
    shown = _shown(page)
    assert 1 < shown < 150
    time.sleep(3 * FRAME / 1000)
    assert _shown(page) == shown
    _set(page, {"steps": 10})
    _until(lambda: _shown(page) == 10)
    _press(page, "play", Keys.SPACE)
    _until(lambda: _shown(page) < 10)
    _until(lambda: _shown(page) == 10 and _model(page, "play", "label") == "Play")


def test_the_address_holds_the_settings(page: webdriver.Chrome, served: str) -> None:
    _set(page, {"window": 8, "L": 2, "objective": "valley"})
    _until(lambda: "L=2&" in f"{page.current_url}&")
    _until(lambda: "COCO_8" in _text(page, "text"))
    address, shown = page.current_url, _coco_path(page)
    assert address.startswith(f"{served}?")
    page.get("about:blank")
    page.get(address)
    _until(lambda: "Relative gap" in _text(page, "certificate"))
    assert _coco_path(page) == shown
    assert _model(page, "window", "value") == 8
    _set(page, {"window": 16, "L": 1, "objective": "quadratic"})
    _until(lambda: page.current_url == served)


def test_a_preset_turns_the_settings(page: webdriver.Chrome) -> None:
    _set(page, {"preset": "Adam"})
    _until(partial(_says, page, "with Adam"))
    _until(lambda: "method=Adam" in page.current_url)
    _set(page, {"noise": 1})
    _until(lambda: _model(page, "preset", "value") == "")
    assert complaints(page) == []


def test_a_point_that_is_touched_shows_the_disc_of_its_pair(page: webdriver.Chrome) -> None:
    place = _MODEL + (
        "const view = Bokeh.index.roots.find(each => each.model.name === 'paths');"
        "const {x, y} = model('points').data, {x_scale, y_scale} = view.frame;"
        "view.el.scrollIntoView(); const {left, top} = view.el.getBoundingClientRect();"
        "return [left + x_scale.compute(x[0]), top + y_scale.compute(y[0])]"
    )
    shown = _MODEL + "return [...model('ball').data.radius]"
    radius = _MODEL + "return model('points').data.ball_radius[0]"
    _set(page, {"window": 3, "steps": 10, "step": 0.2})  # three points, well apart
    _until(partial(_says, page, "COCO_3"))
    x, y = page.execute_script(place)
    for _ in "12":  # a second touch changes nothing
        page.execute_cdp_cmd("Input.synthesizeTapGesture", {"x": x, "y": y})
        _until(lambda: page.execute_script(shown) == [page.execute_script(radius)])
    page.execute_cdp_cmd("Input.synthesizeTapGesture", {"x": x, "y": y - 100})
    _until(lambda: page.execute_script(shown) == [])


def test_the_presets_work_without_a_server_and_without_the_network(
    browser: webdriver.Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"usual": Settings(steps=10), "valley": Settings(objective="valley", steps=10)}
    monkeypatch.setattr(standalone, "PRESETS", few)
    (tmp_path / "play.html").write_text(standalone.html(), "utf-8")
    home = browser.current_url
    browser.get((tmp_path / "play.html").as_uri())
    number = "return document.getElementById('number').textContent"
    _until(lambda: browser.execute_script(number) == "10 of 10")
    whole = _coco_path(browser)
    expected = simulate(few["usual"]).coco.points
    np.testing.assert_allclose(np.array(whole[0].split(","), float), expected[:, 0], rtol=1e-3)
    for name, value, event in (("step", "4", "input"), ("preset", "valley", "change")):
        before = _coco_path(browser)
        browser.execute_script(
            "const part = document.getElementById(arguments[0]); part.value = arguments[1];"
            "part.dispatchEvent(new Event(arguments[2]))",
            *(name, value, event),
        )
        assert _coco_path(browser) != before
    asked = browser.execute_script("return performance.getEntriesByType('resource').length")
    assert asked == 0
    assert complaints(browser) == []
    browser.get(home)
    _until(lambda: "Relative gap" in _text(browser, "certificate"))


@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_fits_its_window(page: webdriver.Chrome, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        _until(
            lambda: page.execute_script(
                "return innerWidth == arguments[0]"
                " && document.documentElement.scrollWidth <= innerWidth",
                width,
            )
        )
        plot = page.execute_script(
            _DEEP + "return Math.max(...[...deep(document.querySelector('.picture'))]"
            "  .filter(e => e.localName == 'canvas').map(e => e.getBoundingClientRect().width))"
        )
        assert plot >= min(300, width - 60)
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_port_in_use_is_one_line_that_names_the_remedy(served: str) -> None:
    port = served.rstrip("/").rsplit(":", maxsplit=1)[1]
    command = [sys.executable, "-m", "coco_denoiser.cli", "explore", "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("coco-denoiser: error: ")
    assert done.stderr.count("\n") == 1
    assert f"port {port}" in done.stderr
    assert "--port 0" in done.stderr


def test_without_bokeh_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name.startswith("coco_denoiser.explore")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "bokeh.application", None)
    assert cli.main(["explore"]) == 2
    assert "coco-denoiser[explore]" in capsys.readouterr().err


_MODEL = "const model = name => Bokeh.documents[0].get_model_by_name(name);"


def _model(page: webdriver.Chrome, name: str, attribute: str) -> Any:
    return page.execute_script(_MODEL + "return model(arguments[0])[arguments[1]]", name, attribute)


def _says(page: webdriver.Chrome, words: str) -> bool:
    return words in _text(page, "text")


def _set(page: webdriver.Chrome, settings: Mapping[str, object]) -> None:
    page.execute_script(
        _MODEL + "for (const [name, value] of Object.entries(arguments[0]))"
        "  model(name).value = name == 'L' ? Math.log10(value) : value",
        settings,
    )


def _shown(page: webdriver.Chrome) -> int:
    return int(re.findall(r"Step (\d+) of", _text(page, "certificate"))[0])


def _text(page: webdriver.Chrome, name: str) -> str:
    return str(
        page.execute_script(
            "const ready = window.Bokeh && Bokeh.documents[0];"
            "return ready ? document.getElementById(arguments[0]).textContent : ''",
            name,
        )
    )


def _coco_path(page: webdriver.Chrome) -> Any:
    return page.execute_script(
        _MODEL + "const s = model('coco-path').data; return [[...s.x].join(), [...s.y].join()]"
    )


def _focus(page: webdriver.Chrome, name: str) -> Any:
    """Focus a widget as the tabulator does, and return what has the focus."""
    return page.execute_script(
        _DEEP
        + """
        const id = Bokeh.documents[0].get_model_by_name(arguments[0]).id;
        const host = [...deep(document)].find(e => e.dataset && e.dataset.rootId == id);
        const inner = [...deep(host)].find(e => e.role == "slider" || e.localName == "button");
        inner.focus();
        return inner;
        """,
        name,
    )


def _press(page: webdriver.Chrome, name: str, key: str) -> None:
    """Press a key on a widget, found anew where it was drawn anew in the meantime."""

    def pressed() -> bool:
        try:
            _focus(page, name).send_keys(key)
        except StaleElementReferenceException:
            return False
        return True

    _until(pressed)


def _until(holds: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)
