"""Panel, status item, form and dialogs: axe-core finds nothing serious, the keyboard is enough, and little width is."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from browser.accessibility import assert_accessible
from browser.lab import Lab

pytestmark = pytest.mark.full

PANEL = ".jp-RemoteGPU-panel"
OUTSIDE = """panel => [...panel.querySelectorAll('li *')]
    .filter(one => one.getBoundingClientRect().right > panel.getBoundingClientRect().right + 1)
    .map(one => one.outerHTML)"""
"""What does not fit into the panel's width."""


@pytest.fixture
def panel(lab: Lab, page: Page) -> Locator:
    """Beside a notebook whose kernel has a GPU; opened with the command palette."""
    notebook = lab.notebook(page, "accessible.ipynb", "print('it has one')", kernel="gpu")
    notebook.expect_kernel("idle")
    notebook.run(0)
    notebook.expect_done(0)
    page.keyboard.press("Control+Shift+c")
    page.keyboard.type("Show Remote GPUs")
    expect(page.locator(".lm-CommandPalette-item.lm-mod-active")).to_contain_text("Show Remote GPUs")
    page.keyboard.press("Enter")
    panel = page.locator(PANEL)
    expect(panel).to_contain_text("accessible.ipynb")
    return panel


def reached_by_tab(panel: Locator, page: Page) -> list[str]:
    """The names of what has the focus, from the panel's first element to its last."""
    names = []
    panel.get_by_role("button").first.focus()
    name = f"(one => one.closest('{PANEL}') && (one.ariaLabel || one.title || one.innerText))(document.activeElement)"
    while reached := page.evaluate(name):
        names.append(reached)
        page.keyboard.press("Tab")
    return names


def test_panel_and_dialogs(panel: Locator, page: Page) -> None:
    assert_accessible(page, PANEL)
    assert_accessible(page, ".jp-RemoteGPU-status")
    with pytest.raises(AssertionError, match="button-name"):  # something serious is found
        page.locator(".jp-RemoteGPU-status").evaluate("node => node.append(document.createElement('button'))")
        assert_accessible(page, ".jp-RemoteGPU-status")

    names = reached_by_tab(panel, page)
    for wanted in (
        "Add a remote GPU…",
        "Open accessible.ipynb",
        "Restart accessible.ipynb…",
        "Stop accessible.ipynb…",
    ):
        assert wanted in names

    panel.get_by_role("button", name="Stop accessible.ipynb…").focus()
    page.keyboard.press("Enter")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_be_visible()
    assert_accessible(page, ".jp-Dialog-content")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(panel).to_contain_text("accessible.ipynb")

    assert panel.evaluate(OUTSIDE) == []
    page.set_viewport_size({"width": 520, "height": 700})
    assert panel.evaluate(OUTSIDE) == []

    page.set_viewport_size({"width": 1280, "height": 800})
    panel.get_by_role("button", name="Add a remote GPU…").focus()
    page.keyboard.press("Enter")
    assert_accessible(page, ".jp-RemoteGPU-add")
