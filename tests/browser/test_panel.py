"""The panel “Remote GPUs”: what it costs."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from browser.lab import Lab


@pytest.fixture
def overviews(page: Page) -> list[str]:
    """The requests of the panel so far."""
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url) if "/api/overview" in request.url else None)
    return found


def opened(lab: Lab, page: Page) -> Locator:
    page.goto(lab.url())
    page.wait_for_function("globalThis.jupyterapp?.restored.then(() => true)")
    tab(page).click()
    return page.get_by_role("region", name="Remote GPUs")


def tab(page: Page) -> Locator:
    return page.locator("[data-id=jupyter-gpu-kernel-panel]")


def test_a_hidden_panel_makes_no_request(lab: Lab, page: Page, overviews: list[str]) -> None:
    page.clock.install()
    panel = opened(lab, page)
    expect(panel).to_contain_text("of 4 free")
    with page.expect_request("**/api/overview*"):
        page.clock.fast_forward(60_000)
    tab(page).click()
    expect(panel).to_be_hidden()
    count = len(overviews)
    page.clock.fast_forward(60_000)
    page.clock.fast_forward(60_000)
    page.evaluate(
        "fetch('api/status').then(response => response.text())"
    )  # later requests would have come before
    assert len(overviews) == count
    with page.expect_request("**/api/overview*"):
        tab(page).click()
    expect(panel).to_contain_text("of 4 free")
