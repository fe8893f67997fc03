"""The interactive page, in a real browser, served by the command itself."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from coco_denoiser.paper import cli
from coco_denoiser.paper.explore import page as pages
from coco_denoiser.paper.explore import simulation
from coco_denoiser.paper.explore.simulation import Settings, simulate
from tests.browser import chromium, complaints, resize


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    words = "-m coco_denoiser.paper.cli explore --port 0 --no-browser"
    command = [sys.executable, *words.split()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        address: list[str] = []
        while not address:
            line = process.stdout.readline()
            assert line, "the command ended"
            address = re.findall(r"http://localhost:\d+/", line)
        yield address[0]
        process.send_signal(2)
        try:
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()  # or leaving the block would wait for ever
        assert process.stdout.read() == ""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as chrome:
        chrome.set_window_size(1400, 1000)
        yield chrome


@pytest.fixture
def page(browser: webdriver.Chrome, served: str) -> webdriver.Chrome:
    """The page with its first settings, shown to the end."""
    browser.get(served)
    _until(lambda: _text(browser, "number") == "60 of 60")
    return browser


def test_it_loads_without_complaint_and_from_this_machine_alone(
    page: webdriver.Chrome, served: str
) -> None:
    _until(lambda: "Median over" in _text(page, "seeds") and "…" not in _text(page, "seeds"))
    assert "solved" in _text(page, "certificate")
    asked = page.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert asked
    assert [address for address in asked if not address.startswith(served)] == []
    assert complaints(page) == []


def test_a_slider_moves_the_picture_and_extremes_explain_themselves(page: webdriver.Chrome) -> None:
    before = _path(page)
    page.find_element(By.ID, "L").send_keys(Keys.ARROW_RIGHT)
    _until(lambda: _path(page) != before)
    _set(page, mu=0.9, step=1.9, L=1)  # the slider of L shows its logarithm
    _until(lambda: "diverged" in _text(page, "words"))
    assert "nan" not in _text(page, "certificate")
    assert complaints(page) == []


def test_steps_play_and_pause_with_the_keyboard(page: webdriver.Chrome) -> None:
    play, shown = page.find_element(By.ID, "play"), page.find_element(By.ID, "shown")
    _set(page, steps=150)  # long enough not to end before the key that pauses it arrives
    _until(lambda: _text(page, "number") == "150 of 150")
    shown.send_keys(Keys.HOME)
    assert _text(page, "number") == "1 of 150"
    shown.send_keys(Keys.ARROW_RIGHT)
    assert _text(page, "number") == "2 of 150"
    play.send_keys(Keys.SPACE)
    assert _text(page, "play") == "Pause"
    _until(lambda: _text(page, "number") != "2 of 150")
    play.send_keys(Keys.SPACE)
    assert _text(page, "play") == "Play"
    assert page.execute_script("return playing") is None  # the clock that moves it is gone
    shown.send_keys(Keys.END, Keys.ARROW_LEFT)
    play.send_keys(Keys.SPACE)
    _until(lambda: _text(page, "number") == "150 of 150" and _text(page, "play") == "Play")


def test_the_address_holds_the_settings(page: webdriver.Chrome, served: str) -> None:
    _set(page, window=8, noise=1)
    _until(lambda: page.current_url == f"{served}?window=8&noise=1.0")
    address, shown = page.current_url, _path(page)
    page.get("about:blank")
    page.get(address)
    _until(lambda: _text(page, "number") == "60 of 60")
    assert _path(page) == shown
    _until(lambda: page.find_element(By.ID, "window").get_property("value") == "8")
    _set(page, window=16, noise=3)
    _until(lambda: page.current_url == served)


def test_a_preset_turns_the_settings(page: webdriver.Chrome) -> None:
    _set(page, preset="Flat valley")
    _until(lambda: "objective=valley" in page.current_url)
    assert page.find_element(By.ID, "steps").get_property("value") == "100"
    _set(page, noise=1)
    _until(lambda: page.find_element(By.ID, "preset").get_property("value") == "")
    assert complaints(page) == []


def test_the_presets_work_without_a_server_and_without_the_network(
    browser: webdriver.Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"usual": Settings(steps=10), "valley": Settings(objective="valley", steps=10)}
    monkeypatch.setattr(pages, "PRESETS", few)
    monkeypatch.setattr(simulation, "SEEDS", 3)
    (tmp_path / "play.html").write_text(pages.html(live=False), "utf-8")
    browser.get((tmp_path / "play.html").as_uri())
    _until(lambda: _text(browser, "number") == "10 of 10")
    expected = simulate(few["usual"]).paths["coco"].points
    np.testing.assert_allclose(_path(browser)[0], expected[:, 0], rtol=1e-3)
    assert "Median over 3 seeds" in _text(browser, "seeds")
    for change in ({"shown": 4}, {"preset": "valley"}):
        before = _path(browser)
        _set(browser, **change)
        assert _path(browser) != before
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert complaints(browser) == []


@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_fits_its_window(page: webdriver.Chrome, width: int) -> None:
    resize(page, width)
    fits = "return innerWidth == arguments[0] && document.body.scrollWidth <= innerWidth"
    plot = "return Bokeh.index.roots.find(v => v.model.name == 'paths').el.offsetWidth"
    try:
        _until(lambda: page.execute_script(fits, width))
        _until(lambda: page.execute_script(plot) >= min(300, width - 60))
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_port_in_use_is_one_line_that_names_the_remedy(
    served: str, capsys: pytest.CaptureFixture[str]
) -> None:
    port = served.rstrip("/").rsplit(":", maxsplit=1)[1]
    assert cli.main(["explore", "--port", port]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"coco-denoiser: error: cannot listen on port {port}")
    assert error.count("\n") == 1
    assert "--port 0" in error


def _set(page: webdriver.Chrome, **settings: object) -> None:
    """Change inputs as a visitor would: a value, and the events that come with it."""
    page.execute_script(
        "for (const [id, value] of Object.entries(arguments[0])) {"
        "  document.getElementById(id).value = value;"
        "  for (const name of ['input', 'change'])"
        "    document.getElementById(id).dispatchEvent(new Event(name)); }",
        settings,
    )


def _text(page: webdriver.Chrome, name: str) -> str:
    return str(page.execute_script(f"return document.getElementById('{name}').textContent"))


def _path(page: webdriver.Chrome) -> Any:
    return page.execute_script(
        "const {x, y} = Bokeh.documents[0].get_model_by_name('coco-path').data;"
        "return [[...x], [...y]]"
    )


def _until(holds: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)
