"""The page in a real browser: it needs no network, draws everything, and answers to clicks."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from coco_denoiser import __version__
from coco_denoiser.experiments.catalogue import EXPERIMENTS
from coco_denoiser.experiments.claims import Verdict
from coco_denoiser.experiments.reproduce import write_page
from coco_denoiser.experiments.results import save_curves, save_run, save_the_rest
from tests.browser import chromium, complaints
from tests.experiments.conftest import small

NAMES = ("synthetic-sgd", "elementwise-mse", "constraint-tightness", "mse-vs-distance")
VERDICTS = tuple(verdict.value for verdict in Verdict)
MISSING = "it <could> not be had"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page")
    for name in NAMES:
        (out / name).mkdir()
        result = EXPERIMENTS[name].run(small(name))
        save_curves(result, out / name)
        save_the_rest(name, result.config, out / name)
        save_run(out / name, 1.0)
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


def _show(browser: webdriver.Chrome, plot: WebElement) -> None:
    """Scroll to a figure and wait until it is drawn."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    WebDriverWait(browser, 60).until(lambda _: plot.find_elements(By.CSS_SELECTOR, ".main-svg"))


def test_figures_are_drawn_when_they_come_into_view(opened: webdriver.Chrome) -> None:
    (*_, last) = opened.find_elements(By.CSS_SELECTOR, ".plot")
    first = opened.find_element(By.CSS_SELECTOR, ".plot")
    _show(opened, first)
    assert last.find_elements(By.CSS_SELECTOR, ".main-svg") == []
    _show(opened, last)


def test_it_says_what_it_is_and_the_verdict_in_three_numbers(opened: webdriver.Chrome) -> None:
    about = opened.find_element(By.CLASS_NAME, "about").text
    assert f"coco-denoiser {__version__}" in about
    assert "seed 0" in about
    tiles = opened.find_elements(By.CSS_SELECTOR, ".verdict > div")
    shown = [int(tile.find_element(By.TAG_NAME, "b").text) for tile in tiles]
    rows = opened.find_elements(By.CSS_SELECTOR, ".claims")
    paper = [table for table in rows if table.text.startswith("The paper says")]
    listed = sum(len(table.find_elements(By.CSS_SELECTOR, "tbody tr")) for table in paper)
    assert len(shown) == 3
    assert sum(shown) == listed > 0


def test_the_contents_stay_in_sight(opened: webdriver.Chrome) -> None:
    opened.execute_script("window.scrollTo(0, document.body.scrollHeight / 2)")
    nav = opened.find_element(By.TAG_NAME, "nav")
    top = opened.execute_script("return arguments[0].getBoundingClientRect().top", nav)
    assert 0 <= top < 5


def test_the_paper_comes_first_in_the_order_of_its_figures(opened: webdriver.Chrome) -> None:
    ids = [str(s.get_attribute("id")) for s in opened.find_elements(By.TAG_NAME, "section")]
    numbers = [EXPERIMENTS[name].numbers for name in ids]
    assert numbers == sorted(numbers)


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
        _show(opened, plot)
        shown = plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .trace, canvas")
        assert shown, plot.get_attribute("id")
        assert plot.size["height"] > 100
    assert complaints(opened) == []


def test_every_series_is_in_its_figure(opened: webdriver.Chrome) -> None:
    _show(opened, opened.find_element(By.ID, "synthetic-sgd-0"))
    names = [item.text for item in _legend(opened, "synthetic-sgd-0")]
    assert names == ["SGD", *(f"SGD+COCO_{K}" for K in (2, 4, 8, 16)), "SGD+COCO"]


def test_a_click_in_the_legend_hides_a_series_and_its_band(opened: webdriver.Chrome) -> None:
    plot = opened.find_element(By.ID, "synthetic-sgd-0")
    _show(opened, plot)
    before = _visible_traces(opened, plot)
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


@pytest.mark.parametrize("width", [390, 800, 1400, 2200])
def test_the_page_fits_its_window(opened: webdriver.Chrome, width: int) -> None:
    opened.set_window_size(width, 900)
    opened.execute_async_script("setTimeout(arguments[0], 500)")
    inner, content = opened.execute_script(
        "return [window.innerWidth, document.documentElement.scrollWidth]"
    )
    assert content <= inner
    for plot in opened.find_elements(By.CSS_SELECTOR, ".plot"):
        _show(opened, plot)
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
        assert all(row.text.endswith(VERDICTS) for row in rows)
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
