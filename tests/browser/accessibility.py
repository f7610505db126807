"""What axe-core finds in a part of a page: https://github.com/dequelabs/axe-core."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

AXE = Path(__file__).parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = """async selector => (await axe.run(selector)).violations
    .filter(found => ["serious", "critical"].includes(found.impact))
    .flatMap(found => found.nodes.map(node => `${found.id}: ${node.html}\\n${node.failureSummary}`))"""


def assert_accessible(page: Page, selector: str) -> None:
    """Nothing serious is found in the elements, in the light theme and in the dark one, which follow the browser's."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make labextension")
    expect(page.locator(selector).first).to_be_visible()
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        expect(page.locator("body")).to_have_attribute("data-jp-theme-light", str(scheme == "light").lower())
        page.wait_for_function("document.getAnimations().every(one => one.playState !== 'running')")
        found = page.evaluate(SERIOUS, selector)
        assert not found, f"{selector} in the {scheme} theme:\n" + "\n\n".join(found)
