"""The page of results in a real browser: it needs no network, and shows and judges everything."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from coco_denoiser import __version__
from coco_denoiser.paper.experiments.catalogue import EXPERIMENTS
from coco_denoiser.paper.experiments.claims import Verdict
from coco_denoiser.paper.experiments.reproduce import write_page
from coco_denoiser.paper.experiments.results import finish
from tests.browser import chromium, complaints, resize
from tests.paper.experiments.conftest import small
from tests.paper.experiments.test_units import complete

NAMES = ("elementwise-mse", "constraint-tightness", "counterexample", "mse-vs-distance")
VERDICTS = tuple(verdict.value for verdict in Verdict)
MISSING = "it <could> not be had from https://www.example.org/" + "a-long-address/" * 8


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page")
    for name in NAMES:
        experiment = small(name)
        complete(out, experiment=experiment)
        finish(experiment, out, 1.0)
    return write_page(out, {"logistic-fourclass": MISSING})


@pytest.fixture(scope="module")
def opened(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        browser.get(page.as_uri())
        yield browser


def test_it_says_what_it_is_the_verdict_in_three_numbers_and_what_is_missing(
    opened: webdriver.Chrome,
) -> None:
    about = opened.find_element(By.CLASS_NAME, "about").text
    assert f"coco-denoiser {__version__}" in about
    assert "seed 0" in about
    tiles = opened.find_elements(By.CSS_SELECTOR, ".verdict > div")
    shown = [int(tile.find_element(By.TAG_NAME, "b").text) for tile in tiles]
    tables = opened.find_elements(By.CSS_SELECTOR, ".claims")
    paper = [table for table in tables if table.text.startswith("The paper says")]
    listed = sum(len(table.find_elements(By.CSS_SELECTOR, "tbody tr")) for table in paper)
    assert len(shown) == 3
    assert sum(shown) == listed > 0
    assert f"Missing: {MISSING}" in opened.find_element(By.ID, "logistic-fourclass").text


def test_the_paper_comes_first_in_the_order_of_its_figures(opened: webdriver.Chrome) -> None:
    ids = [str(s.get_attribute("id")) for s in opened.find_elements(By.TAG_NAME, "section")]
    numbers = [EXPERIMENTS[name].numbers for name in ids]
    assert numbers == sorted(numbers)


def test_the_page_asks_for_nothing_but_what_lies_beside_it(page: Path) -> None:
    text = page.read_text("utf-8")
    asked = re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)([^"']*)""", text)
    assert len(asked) == 4 * len(NAMES)
    assert all((page.parent / path).is_file() for path in asked)
    assert not re.search(r"<script|url\(|@import", text)


@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_fits_its_window_and_figures_can_be_read(
    opened: webdriver.Chrome, width: int
) -> None:
    resize(opened, width)
    for image in opened.find_elements(By.TAG_NAME, "img"):
        opened.execute_script("arguments[0].scrollIntoView()", image)
        WebDriverWait(opened, 60).until(lambda _: image.get_property("naturalWidth"))  # noqa: B023
        panels = 1 if "counterexample" in str(image.get_attribute("src")) else 2
        assert image.size["width"] >= 300 * panels
        assert panels > 1 or image.size["width"] <= width
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    assert complaints(opened) == []


def test_each_figure_has_its_claims_parameters_and_command(opened: webdriver.Chrome) -> None:
    for name in NAMES:
        section = opened.find_element(By.ID, name)
        rows = section.find_elements(By.CSS_SELECTOR, ".claims tbody tr")
        assert rows
        assert all(row.text.endswith(VERDICTS) for row in rows)
        parameters = section.find_element(By.TAG_NAME, "details").get_attribute("innerHTML")
        assert "<td>seed</td>" in str(parameters)
        assert f"coco-denoiser reproduce {name}" in section.find_element(By.TAG_NAME, "code").text
