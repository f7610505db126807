"""One Chromium and one JupyterLab for all of these tests, and a fresh page for each.

They need Chromium and the built JupyterLab extension (`make labextension`); without these they are skipped.
Playwright's event loop runs in the main thread while the browser is there: no test here may use asyncio.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from locked import locked
from playwright.sync_api import Browser, Page, expect, sync_playwright
from remote import Remote
from waiting import DEADLINE

from browser.lab import Lab
from browser.pages import NewPage, pages

__all__ = ["locked"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
EXTENSION = Path(sys.prefix, "share", "jupyter", "labextensions", "jupyter-gpu-kernel", "package.json")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium here")
    if not EXTENSION.exists():
        pytest.skip("the JupyterLab extension is not built: make labextension")
    expect.set_options(timeout=DEADLINE * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def lab_server(
    chromium: Browser, remote_session: Remote, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    with Lab(remote_session, tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="module")
def lab(lab_server: Lab, remote: Remote) -> Iterator[Lab]:
    """JupyterLab with our extension; its kernels can run on `remote`. They end with the module."""
    yield lab_server
    lab_server.end_kernels()


@pytest.fixture(scope="module")
def own_lab(chromium: Browser, remote: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One more, which tests may quit and restart."""
    with Lab(remote, tmp_path_factory.mktemp("lab")) as server:
        yield server
        server.end_kernels()


@pytest.fixture
def console() -> list[str]:
    """What the pages of this test wrote to the console."""
    return []


@pytest.fixture
def new_page(chromium: Browser, console: list[str]) -> Iterator[NewPage]:
    """One more browser with nothing stored, and a page in it; with options as `Browser.new_context` takes them."""
    with pages(chromium, console) as new:
        yield new


@pytest.fixture
def page(new_page: NewPage) -> Page:
    return new_page()
