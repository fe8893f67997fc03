"""A headless Chromium that asks nothing of the network by itself."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-swiftshader",
)


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """Start one, with a profile of its own, that keeps what pages write to the console."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs Chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def resize(browser: webdriver.Chrome, width: int) -> None:
    """Give it a screen of this width in pixels, that of a phone below 500."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def complaints(browser: webdriver.Chrome) -> list[str]:
    """Return what the page wrote to the console as an error since last asked."""
    logged = browser.get_log("browser")  # type: ignore[no-untyped-call]
    return [each["message"] for each in logged if each["level"] in ("SEVERE", "ERROR")]
