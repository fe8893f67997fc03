"""The page in a real browser: it needs no network, draws everything, and answers to clicks."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from coco_denoiser.experiments.catalogue import EXPERIMENTS
from coco_denoiser.experiments.reproduce import write_page
from coco_denoiser.experiments.results import save
from tests.browser import chromium, complaints
from tests.experiments.conftest import small

NAMES = ("synthetic-sgd", "elementwise-mse", "constraint-tightness", "mse-vs-distance")
MISSING = "it <could> not be had"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page")
    for name in NAMES:
        (out / name).mkdir()
        save(EXPERIMENTS[name].run(small(name)), name, out / name, 1.0)
    return write_page(out, {"logistic-fourclass": MISSING})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


@pytest.fixture
def opened(browser: webdriver.Chrome, page: Path) -> webdriver.Chrome:
    browser.set_window_size(1400, 900)
    browser.get(page.as_uri())
    return browser


def test_the_page_asks_for_nothing_from_outside(page: Path) -> None:
    text = page.read_text("utf-8")
    own = text[: text.index("<script>")]
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", own)
    assert "url(" not in own
    assert "@import" not in own


def test_nothing_is_complained_about_and_everything_is_drawn(opened: webdriver.Chrome) -> None:
    plots = opened.find_elements(By.CSS_SELECTOR, ".plot")
    expected = sum(len(EXPERIMENTS[n].panels(EXPERIMENTS[n].run(small(n)))) for n in NAMES[2:3])
    assert len(plots) > expected
    for plot in plots:
        shown = plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .trace, canvas")
        assert shown, plot.get_attribute("id")
        assert plot.size["height"] > 100
    assert complaints(opened) == []


def test_every_series_is_in_its_figure(opened: webdriver.Chrome) -> None:
    names = [item.text for item in _legend(opened, "synthetic-sgd-0")]
    assert names == ["SGD", *(f"SGD+COCO_{K}" for K in (2, 4, 8, 16)), "SGD+COCO"]


def test_a_click_in_the_legend_hides_a_series_and_its_band(opened: webdriver.Chrome) -> None:
    plot = opened.find_element(By.ID, "synthetic-sgd-0")
    before = _visible_traces(opened, plot)
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    _legend(opened, "synthetic-sgd-0")[1].find_element(By.XPATH, "..").find_element(
        By.CSS_SELECTOR, ".legendtoggle"
    ).click()
    # Plotly waits to see whether a second click follows.
    for _ in range(50):
        if len(_visible_traces(opened, plot)) < len(before):
            break
        opened.execute_async_script("setTimeout(arguments[0], 100)")
    hidden = [name for name in before if name not in _visible_traces(opened, plot)]
    assert hidden == ["SGD+COCO_2", "SGD+COCO_2"]


@pytest.mark.parametrize("width", [420, 800, 1400, 2200])
def test_the_page_fits_its_window(opened: webdriver.Chrome, width: int) -> None:
    opened.set_window_size(width, 900)
    opened.execute_async_script("setTimeout(arguments[0], 500)")
    inner, content = opened.execute_script(
        "return [window.innerWidth, document.documentElement.scrollWidth]"
    )
    assert content <= inner
    for plot in opened.find_elements(By.CSS_SELECTOR, ".plot"):
        (svg, *_) = plot.find_elements(By.CSS_SELECTOR, ".main-svg")
        assert abs(svg.size["width"] - plot.size["width"]) <= 2
        assert plot.size["width"] >= min(300, inner - 60)


def test_what_is_missing_is_shown_as_missing(opened: webdriver.Chrome) -> None:
    section = opened.find_element(By.ID, "logistic-fourclass")
    assert f"Missing: {MISSING}" in section.text
    assert section.find_elements(By.CSS_SELECTOR, ".plot") == []


def test_each_figure_has_its_claims_parameters_and_command(opened: webdriver.Chrome) -> None:
    for name in NAMES:
        section = opened.find_element(By.ID, name)
        rows = section.find_elements(By.CSS_SELECTOR, ".claims tbody tr")
        assert rows
        assert all(row.text.endswith(("holds", "does not hold", "not resolved")) for row in rows)
        parameters = section.find_element(By.TAG_NAME, "details").get_attribute("innerHTML")
        assert "<td>seed</td>" in str(parameters)
        assert f"coco-denoiser reproduce {name}" in section.find_element(By.TAG_NAME, "code").text


def test_it_prints_to_pages_with_every_figure(opened: webdriver.Chrome) -> None:
    printed = opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 100_000


def _legend(browser: webdriver.Chrome, identifier: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, f"#{identifier} .legendtext")


def _visible_traces(browser: webdriver.Chrome, plot: WebElement) -> list[str]:
    names = browser.execute_script(
        "return arguments[0]._fullData.filter(t => t.visible === true).map(t => t.legendgroup)",
        plot,
    )
    return [str(name) for name in names]
